"""`poe fairness`: many jobs of three tenants at once against tight quotas, on three providers.

The pools' limits are the simulator's own, which refuses what exceeds them; so a violation shows as a refusal there, or
as a peak of its counters above the limit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from infra.local.simulator.server import SimulatorServer
from tallybatch.domain.quotas import ADMISSION, ALL
from tests.support.films import MODELS, films, scenario, spec
from tests.support.many_jobs import ManyJobs

TENANTS = ("acme", "brick", "cargo")
PRIORITIES = ("low", "normal", "high")
"""In the order of their arrival: those who must not be passed come last."""
PROVIDERS = ("openai", "openai", "openai", "bedrock", "gemini")
RUNS_FOR_S = 600.0
TOKENS = 5_000
"""OpenAI: enqueued at once."""
COUNTED_TOKENS = 380
"""The same as the simulator counts, which counts the words of a prompt and not the JSON around them: of these short
records one has 9 tokens, and is estimated at 118. Two small shards, or one large, and not a token more."""
JOBS = 2
"""Bedrock: of the model; Gemini: of the project."""
ADMITTED = 24
SHARDS = 3
RECORDS = 20
"""A shard."""


@dataclass(frozen=True)
class Contender:
    job_key: str
    tenant: str
    provider: str
    priority: str


@dataclass(frozen=True)
class Figures:
    jobs: int
    completed: int
    pool_violations: int
    priority_inversions: int
    fifo_inversions: int
    left_over: int
    """Holds that nobody has given back."""
    oldest_wait_s: float
    ideal_s: float
    """For which the tightest pool would be busy if it were never idle."""
    took_s: float
    contenders: tuple[Contender, ...]
    waits: dict[tuple[str, str], list[float]]
    """By provider and priority."""
    peaks: dict[str, Any]

    def last_line(self) -> str:
        names = ("jobs", "completed", "pool_violations", "priority_inversions")
        return json.dumps({name: getattr(self, name) for name in names})


def compete(simulator: SimulatorServer, jobs: int) -> Figures:
    scenario(
        simulator.control,
        durations={"validating": 1, "in_progress": RUNS_FOR_S, "finalizing": 1},
        quota={"enqueued_tokens": {MODELS["openai"][0]: COUNTED_TOKENS}, "concurrent_jobs": {"*": JOBS}},
        gemini={"concurrent_jobs": JOBS},
        limits={"min_records": 1},
    )
    simulator.control.reset()
    many = ManyJobs(simulator, sorted(set(PROVIDERS)))
    many.set_limits("openai", limits={MODELS["openai"][0]: {"tokens": TOKENS}})
    many.set_limits("bedrock", limits={MODELS["bedrock"][0]: {"jobs": JOBS}})
    many.set_limits("gemini", limits={ALL: {"jobs": JOBS}})
    many.set_limits(ADMISSION, limits={ALL: {"jobs": min(ADMITTED, max(3, jobs - 6))}})
    began = many.clock.now()
    contenders = tuple(_dropped(many, jobs))
    many.run()
    ledger = many.ledger
    inversions = [(took, other) for took, other in ledger.passed if took.rank > other.rank]
    meter = simulator.control.journal()["quotas"]
    waits: dict[tuple[str, str], list[float]] = {}
    for taken in ledger.taken:
        priority = ("high", "normal", "low")[taken.hold.rank]
        waits.setdefault((taken.hold.pool, priority), []).append(taken.waited_s)
    tokens = sum(taken.hold.amount.tokens for taken in ledger.taken if taken.hold.pool == "openai")
    created = {name: sum(t.hold.pool == name for t in ledger.taken) for name in ("bedrock", "gemini")}
    return Figures(
        jobs=len(contenders),
        completed=sum(many.any_pipeline.job(each.job_key).state == "COMPLETED" for each in contenders),
        pool_violations=len(ledger.over) + _violations(meter),
        priority_inversions=len(inversions),
        fifo_inversions=len(ledger.passed) - len(inversions),
        left_over=sum(1 for name in (*set(PROVIDERS), ADMISSION) for _ in ledger.quota_holds(name)),
        oldest_wait_s=max(taken.waited_s for taken in ledger.taken),
        ideal_s=RUNS_FOR_S * max(tokens / TOKENS, *(number / JOBS for number in created.values())),
        took_s=max(many.ended_at.values()) - began,
        contenders=contenders,
        waits=waits,
        peaks={
            name: {**level["all"], "limit": COUNTED_TOKENS if name == "openai" else JOBS}
            for name, level in meter.items()
        },
    )


def _dropped(many: ManyJobs, jobs: int) -> Iterator[Contender]:
    """Each of its own films; the files differ in size, and every fourth has one shard larger than the others."""
    for number in range(jobs):
        tenant = TENANTS[number % len(TENANTS)]
        provider = PROVIDERS[number % len(PROVIDERS)]
        priority = PRIORITIES[number * len(PRIORITIES) // jobs]
        records = RECORDS * (2 if number % 4 == 0 else 1)
        text = spec(provider, limits=f", priority: {priority}", shard_records=records)
        pipeline = many.pipelines[provider]
        pipeline.push_spec(text, tenant=tenant, name="genre")
        body = films(records * SHARDS, first=1 + 1000 * number)
        job_key = pipeline.drop(body, tenant=tenant, name=f"{number}.jsonl")["job_key"]
        many.start(job_key, provider, tenant=tenant, after_s=number)
        yield Contender(job_key, tenant, provider, priority)


def _violations(meter: dict[str, Any]) -> int:
    """Refusals, and peaks above the limits, by the simulator's own counters."""
    peaks: tuple[bool, ...] = (
        meter["openai"]["all"]["peak_tokens"] > COUNTED_TOKENS,
        meter.get("bedrock", {"all": {"peak_jobs": 0}})["all"]["peak_jobs"] > JOBS,
        meter.get("gemini", {"all": {"peak_jobs": 0}})["all"]["peak_jobs"] > JOBS,
    )
    refused = sum(int(level["all"]["refused"]) for level in meter.values())
    return refused + sum(peaks)


def show(figures: Figures) -> None:
    console = Console(width=110)
    table = Table("provider", "priority", "reservations", "mean wait", "oldest wait", box=None)
    for (provider, priority), waits in sorted(figures.waits.items()):
        mean = sum(waits) / len(waits)
        table.add_row(provider, priority, str(len(waits)), f"{mean / 60:.1f} min", f"{max(waits) / 60:.1f} min")
    console.print(table)
    peaks = Table("\nprovider", "\nlimit", "\npeak tokens", "\npeak jobs", "\nrefused", box=None)
    for provider, level in sorted(figures.peaks.items()):
        peaks.add_row(provider, *(str(level[name]) for name in ("limit", "peak_tokens", "peak_jobs", "refused")))
    console.print(peaks)
    console.print(
        f"\nall ended after {figures.took_s / 60:.0f} min; the tightest pool had {figures.ideal_s / 60:.0f} min of "
        f"work; nobody waited longer than {figures.oldest_wait_s / 60:.0f} min; {figures.fifo_inversions} were passed "
        f"within their priority; {figures.left_over} holds left over"
    )


def main(jobs: int = 30) -> int:
    with SimulatorServer("calm", clock_scale=0) as simulator:
        figures = compete(simulator, jobs)
    show(figures)
    print(figures.last_line())
    fair = figures.completed == figures.jobs and not figures.left_over and not figures.fifo_inversions
    return 0 if fair and not figures.pool_violations and not figures.priority_inversions else 1


if __name__ == "__main__":
    sys.exit(main())
