"""plan.json: what a job would take if nothing goes wrong, and at worst. Computed from the manifest; spends nothing."""

from __future__ import annotations

import msgspec

from tallybatch.domain.canary import waves
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.spec import Spec

DAY_S = 86_400
FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 600.0
PAUSE_GROWTH = 1.5
"""How PollShard's pauses grow, in seconds."""

ATTEMPT_EVENTS = 20
"""Of an attempt without waves: PlanAttempt, ShardMap, IsLastWave, ReconcileJob, IsClosed, WaitBeforeRetry."""
WAVE_EVENTS = 11
"""Of each further wave: PlanAttempt, ShardMap, IsLastWave."""
JUDGE_EVENTS = 7
"""JudgeCanary and IsApproved."""
ASK_EVENTS = 12
"""ApproveCanary, and a second judgement."""
END_EVENTS = 13
"""PublishMap, SealJob, IsComplete and the end."""
SHARD_EVENTS = 17
"""Of a shard but its polls."""
POLL_EVENTS = 9
START_AND_END = 2


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`history_events` are of the job's own execution without retries and of one
    shard whose provider takes a day; each may have 25,000."""

    plan_version: int = 1
    job_key: str
    provider: str
    model: str
    records: int
    quarantined_lines: int
    shards: int
    canary_records: int
    waves: list[int]
    """Shards let go together, one wave after the other."""
    request_bytes: int
    estimated_input_tokens: int
    """A quarter of the requests' bytes."""
    worst_case_output_tokens: int | None
    """If each record needs every attempt and each answer is as long as allowed; null without a cap."""
    provider_jobs: int
    """Without retries."""
    history_events: dict[str, int]
    cost_usd: str | None = None
    """Null while nothing has a price."""

    def to_bytes(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def plan_of(manifest: Manifest, spec: Spec) -> JobPlan:
    shards = len(manifest.shards)
    cap = spec.generation.get("max_output_tokens")
    canary_jobs = -(-manifest.canary_records // spec.shards.max_records)
    sizes = waves(shards, spec.shards.max_parallel) if manifest.canary_records else [shards]
    return JobPlan(
        job_key=manifest.job_key,
        provider=manifest.provider,
        model=manifest.model_resolved,
        records=manifest.expected_record_count,
        quarantined_lines=manifest.source.quarantined_lines,
        shards=shards,
        canary_records=manifest.canary_records,
        waves=sizes,
        request_bytes=sum(shard.bytes for shard in manifest.shards),
        estimated_input_tokens=sum(shard.estimated_tokens for shard in manifest.shards),
        worst_case_output_tokens=None
        if cap is None
        else cap * manifest.expected_record_count * spec.retry.max_attempts,
        provider_jobs=shards + canary_jobs,
        history_events={
            "job": job_events(
                waves_=len(sizes), canary=bool(canary_jobs), asks=bool(spec.canary and spec.canary.approval == "manual")
            ),
            "shard": shard_events(DAY_S),
        },
    )


def job_events(*, waves_: int, canary: bool, asks: bool) -> int:
    """Of an execution whose every attempt succeeds."""
    total = START_AND_END + ATTEMPT_EVENTS + (waves_ - 1) * WAVE_EVENTS + END_EVENTS
    if canary:
        total += ATTEMPT_EVENTS + JUDGE_EVENTS + asks * ASK_EVENTS
    return total


def shard_events(seconds: float) -> int:
    """Of a shard whose provider job takes so long."""
    return START_AND_END + SHARD_EVENTS + polls_in(seconds) * POLL_EVENTS


def polls_in(seconds: float) -> int:
    polls, waited, pause = 0, 0.0, FIRST_PAUSE_S
    while waited < seconds:
        waited += pause
        polls += 1
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE_S)
    return polls
