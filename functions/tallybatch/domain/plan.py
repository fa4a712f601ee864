"""plan.json: what a job would take if nothing goes wrong, and at worst. Computed from the manifest; spends nothing."""

from __future__ import annotations

import math

import msgspec

from tallybatch.domain import aws_cost
from tallybatch.domain.canary import waves
from tallybatch.domain.estimate import DENSE_BYTES_PER_TOKEN, Tokens, estimate
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.outcomes import Usage
from tallybatch.domain.prices import Lane, Price, dearest, find, pricer, usd
from tallybatch.domain.retries import MAX_BACKOFF_S
from tallybatch.domain.spec import Spec

DAY_S = 86_400
QUICK_ROUND_S = 600
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
    """Likely, in one attempt; see `estimate`."""
    worst_case_input_tokens: int
    """If every record needs every attempt, and its text is dense in tokens."""
    least_output_tokens: int
    worst_case_output_tokens: int | None
    """If each record needs every attempt and each answer is as long as allowed; null without a cap."""
    provider_jobs: int
    """Without retries."""
    history_events: dict[str, int]
    price: str
    """Lane and date of the price, "" if nobody knows one."""
    price_source: str
    cost_low_usd: str | None
    """Each record succeeds at once, with the shortest answer that fits."""
    cost_high_usd: str | None
    """The worst case of all of the above; null without a price, or without a cap on answers."""
    aws_cost_usd: str
    """Estimated for AWS itself, without retries and with providers that take a day."""
    rounds: int
    """How often the shards in flight at once (`shards.max_parallel`) are filled, canary and waves included."""
    time_s: dict[str, int]
    """`low`: the providers end each round in ten minutes. `high`: each takes its whole window of a day, every attempt
    is needed, with the pauses between. The deadline ends it in any case."""

    def to_bytes(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def plan_of(manifest: Manifest, spec: Spec, *, syntax_bytes: int) -> JobPlan:
    """`syntax_bytes`: of a request line that are no text, 0 for native files."""
    records, shards = manifest.expected_record_count, len(manifest.shards)
    tries = spec.retry.max_attempts * len(spec.targets)
    canary_jobs = -(-manifest.canary_records // spec.shards.max_records)
    parallel = spec.shards.max_parallel
    sizes = waves(shards, parallel) if manifest.canary_records else [shards]
    rounds = bool(canary_jobs) + sum(-(-size // parallel) for size in sizes)
    request_bytes = sum(shard.bytes for shard in manifest.shards)
    tokens = estimate(spec, records=records, request_bytes=request_bytes, syntax_bytes=syntax_bytes)
    price = _price(manifest, spec, spec.lane)
    caps = _caps(tokens, records, spec)
    longest = max(shard.largest_bytes for shard in manifest.shards) - syntax_bytes
    low, high = _cost(tokens, records, caps, manifest, spec, longest=math.ceil(longest / DENSE_BYTES_PER_TOKEN))
    calls = aws_cost.counted(
        records=records,
        sent=records,
        submissions=shards + canary_jobs,
        attempts=1 + bool(canary_jobs),
        shards=shards,
        polls=(shards + canary_jobs) * polls_in(DAY_S),
    )
    return JobPlan(
        job_key=manifest.job_key,
        provider=manifest.provider,
        model=manifest.model_resolved,
        records=records,
        quarantined_lines=manifest.source.quarantined_lines,
        shards=shards,
        canary_records=manifest.canary_records,
        waves=sizes,
        request_bytes=request_bytes,
        estimated_input_tokens=tokens.likely_input,
        worst_case_input_tokens=tokens.worst_input * tries,
        least_output_tokens=tokens.least_output,
        worst_case_output_tokens=None if tokens.most_output is None else sum(caps) * records * len(spec.targets),
        provider_jobs=shards + canary_jobs if spec.lane == "batch" else 0,
        history_events={
            "job": job_events(
                waves_=len(sizes), canary=bool(canary_jobs), asks=bool(spec.canary and spec.canary.approval == "manual")
            ),
            "shard": shard_events(DAY_S),
        },
        price=price.id if price else "",
        price_source=price.source if price else "",
        cost_low_usd=usd(low),
        cost_high_usd=usd(high),
        aws_cost_usd=usd(aws_cost.nano_usd(calls)) or "0",
        rounds=rounds,
        time_s={"low": rounds * QUICK_ROUND_S, "high": _longest_s(rounds, spec)},
    )


def _caps(tokens: Tokens, records: int, spec: Spec) -> list[int]:
    """The longest answer of each attempt, in tokens: a cut answer may be asked for again with more."""
    cap = (tokens.most_output or 0) // max(1, records)
    raised = spec.retry.raise_output_cap
    caps = []
    for _ in range(spec.retry.max_attempts):
        caps.append(cap)
        cap = max(cap, min(int(cap * raised.factor), raised.max)) if raised is not None else cap
    return caps


def _cost(
    tokens: Tokens, records: int, caps: list[int], manifest: Manifest, spec: Spec, *, longest: int
) -> tuple[int | None, int | None]:
    """Nano-dollars, low and high, each record as the mean one, rounded up. High: all attempts at each target, at the
    rates of the longest request, of `longest` tokens, and at the price of single calls where records that are too few,
    or near the deadline, may go that way."""
    likely, worst = -(-tokens.likely_input // records), -(-tokens.worst_input // records)
    low = pricer(_price(manifest, spec, spec.lane))(Usage(input=likely, output=tokens.least_output // records))
    if tokens.most_output is None:
        return _times(low, records), None
    lanes: set[Lane] = {spec.lane}
    if spec.retry.small_set == "on_demand" or spec.retry.deadline_rescue is not None:
        lanes.add("on_demand")
    high: int | None = 0
    for there in spec.targets:
        for cap in caps:
            prices = [dearest(_price(manifest, there, lane), up_to=longest) for lane in lanes]
            each = [pricer(price)(Usage(input=worst, output=cap)) for price in prices]
            known = [cost for cost in each if cost is not None]
            high = None if high is None or len(known) < len(each) else high + max(known)
    return _times(low, records), _times(high, records)


def _price(manifest: Manifest, spec: Spec, lane: Lane) -> Price | None:
    return find(manifest.prices, spec.provider, spec.model_resolved, lane)


def _times(cost: int | None, records: int) -> int | None:
    return None if cost is None else cost * records


def _longest_s(rounds: int, spec: Spec) -> int:
    deadline = round(spec.limits.deadline.total_seconds())
    first = spec.retry.backoff.total_seconds()
    again = spec.retry.max_attempts * len(spec.targets) - 1
    pauses = sum(min(first * (1 << number), max(MAX_BACKOFF_S, first)) for number in range(again))
    return min(deadline, round((rounds + again) * DAY_S + pauses))


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


class _WorstCase(msgspec.Struct):
    cost_high_usd: str | None = None


def worst_case(plan: bytes) -> str | None:
    """Dollars, of a stored plan; null if nobody can tell."""
    return msgspec.json.decode(plan, type=_WorstCase).cost_high_usd
