"""Random days at a provider, and what its bill says beside what the ledger booked."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from infra.local.simulator.server import SimulatorServer
from tallybatch.contracts import JobInput, ShardItem
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.rows import Job, Submission
from tallybatch.domain.submitting import CREATE_TIMEOUT_S
from tests.support.films import films, scenario, spec
from tests.support.pipeline import RULES, Pipeline

MODELS: Mapping[str, tuple[str, ...]] = {
    "openai": ("gpt-5-mini-2025-08-07", "gpt-6-luna-2026-09-01", "gpt-5.4-mini"),
    "bedrock": ("amazon.nova-lite-v1:0", "amazon.nova-micro-v1:0", "us.anthropic.claude-haiku-4-5-20251001-v1:0"),
    "gemini": ("gemini-2.5-flash", "gemini-2.5-pro"),
}
"""With rates that are whole nano-dollars and with some that are not, with and without tiers."""
RECORD_FAULTS = (
    *("error_400", "error_429", "error_500", "error_503", "error_in_body", "refusal", "length", "content_filter"),
    *("bad_json", "bad_schema", "wrong_model", "cached_prompt", "thinking", "long_prompt", "missing", "status_zero"),
    *("null_response", "body_as_string", "duplicate_same", "duplicate_different", "success_and_error", "unknown_id"),
    *("garbage_line", "crlf", "blank_lines", "bom"),
)
"""But those that hide a paid line from every reader."""
NOT_ON: Mapping[str, tuple[str, ...]] = {"bedrock": ("unknown_id",)}
"""Its lines have no request id, and a stopped job no token counts: whether a line of an unknown id was an execution of
its own cannot be told then, and it is booked as one."""
JOB_FAULTS = ("expire", "cancel", "wrong_counts", "backwards", "unknown_state", "none")
QUICK = {"validating": 5, "in_progress": 60, "finalizing": 5, "cancelling": 60}
HIDDEN_S = RULES.create_within_s + CREATE_TIMEOUT_S + RULES.settle_window_s + 60
"""Longer than anybody looks for a lost create, and short enough for its job to be found when the next one is read."""
RECONCILED_AGAIN = 3
"""Times after the first."""


@dataclass(frozen=True, slots=True)
class Bill:
    """Of one job, in nano-dollars."""

    job: Job
    billed: int
    booked: int
    unpriced: int
    ghosts: int
    """Provider jobs that nobody wanted."""

    @property
    def difference(self) -> int:
        return self.booked - self.billed


def random_day(seed: int, provider: str) -> tuple[dict[str, Any], str]:
    """A scenario and a model."""
    dice = random.Random(f"{seed}/{provider}")
    known = [fault for fault in RECORD_FAULTS if fault not in NOT_ON.get(provider, ())]
    faults = dice.sample(known, dice.randint(3, 8))
    rules = [
        {"fault": fault, "rate": round(dice.uniform(0.05, 0.3), 2), "times": dice.choice((1, 1, 2))} for fault in faults
    ]
    jobs = [
        {"nth": nth, "fault": fault, "done": round(dice.random(), 2), "durations": QUICK}
        for nth in range(1, 4)
        if (fault := dice.choice(JOB_FAULTS)) != "none"
    ]
    calls: list[dict[str, Any]] = []
    if dice.random() < 0.5:
        calls.append({"on": "create", "fault": dice.choice(("lost_reply", "reply_500_after"))})
        if provider != "bedrock":
            slow = {**QUICK, "in_progress": 3000}
            jobs.insert(0, {"nth": 1, "fault": f"invisible_in_list_for_s:{HIDDEN_S}", "durations": slow})
    day = {"seed": seed, "records": rules, "jobs": jobs, "calls": calls, "limits": {"min_records": 1}}
    return day, dice.choice(MODELS[provider])


def run_day(
    simulator: SimulatorServer,
    seed: int,
    provider: str,
    *,
    records: int = 60,
    min_records: Mapping[str, int] | None = None,
    **changed: str,
) -> Bill:
    """Run a job on a random day, reconcile it again and again, and hold the bills side by side. `changed` are keys of
    the spec."""
    day, model = random_day(seed, provider)
    simulator.control.reset()
    scenario(simulator.control, **day)
    pipeline = Pipeline(simulator, provider_name=provider, min_records=min_records or {})
    pipeline.push_spec(spec(provider, model=model, shard_records=max(10, records // 3), **changed))
    job = pipeline.run(films(records))
    before = [(row.cost_nano_usd, row.duplicate_cost_nano_usd) for row in pipeline.ledger.submissions(job.job_key)]
    for _ in range(RECONCILED_AGAIN):
        reconcile_again(pipeline, job)
    rows = pipeline.ledger.submissions(job.job_key)
    assert before == [(row.cost_nano_usd, row.duplicate_cost_nano_usd) for row in rows], "booked again"
    return Bill(
        job=job,
        billed=simulator.control.journal()["billed_nano_usd"],
        booked=sum(row.cost_nano_usd + row.duplicate_cost_nano_usd for row in rows),
        unpriced=sum(row.unpriced for row in rows),
        ghosts=sum(len(row.ghosts) for row in rows),
    )


def reconcile_again(pipeline: Pipeline, job: Job) -> None:
    """As after a crash before the ledger heard of it: the outcome objects are there, the rows are not yet booked."""
    for row in pipeline.ledger.submissions(job.job_key):
        collected = unbooked(row)
        if collected is None:
            continue
        assert pipeline.ledger.put_submission(collected, expected_version=row.version)
        item = ShardItem(
            tenant=row.tenant,
            job_key=row.job_key,
            attempt=row.attempt,
            shard_id=row.shard_id,
            shard_sha256=row.shard_sha256,
            record_count=row.input_records,
            provider=row.provider,
        )
        pipeline.reconcile_shard(item)
        pipeline.reconcile_shard(item)
    if job.state.value == "COMPLETED":
        pipeline.seal(JobInput(tenant=job.tenant, job_key=job.job_key, bucket="bucket", attempt=job.attempt))


def unbooked(row: Submission) -> Submission | None:
    """The row as it was before its reconciliation; None if it never was."""
    if row.state is not SubmissionState.RECONCILED or not row.channels:
        return None
    return replace(
        row,
        state=SubmissionState.COLLECTED,
        cost_nano_usd=0,
        costs={},
        duplicate_cost_nano_usd=0,
        unpriced=0,
        anomalies={name: count for name, count in row.anomalies.items() if name == "results_gone"},
    )
