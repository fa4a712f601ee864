"""Where the money went: one fact per submission and per job, grouped as asked. Integer nano-dollars throughout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tallybatch.domain import aws_cost
from tallybatch.domain.billing import LINES, line_of, money
from tallybatch.domain.lifecycle import JOB_FINAL, JobState
from tallybatch.domain.outcomes import ACCEPTED, OVERRULING, OutcomeClass
from tallybatch.domain.plan import polls_in
from tallybatch.domain.prices import usd
from tallybatch.domain.review import PEOPLE
from tallybatch.domain.rows import ON_DEMAND, Job, Submission

DIMENSIONS = ("tenant", "spec", "model", "class", "day")
HUMAN = "human_handling"
WITHDRAWN = "withdrawn"
_NOT_BACK = frozenset(
    {
        *(OutcomeClass.MISSING, OutcomeClass.WAITING, OutcomeClass.UNSETTLED, OutcomeClass.REUSED),
        *(OutcomeClass.TOO_FEW, OutcomeClass.CONFIRMED, OutcomeClass.REQUEUED, OutcomeClass.REJECTED),
    }
)
"""Outcomes of records for which nothing came from a provider in that attempt."""
COUNTS = ("submitted", "completed", "schema_valid", "accepted", "published", "in_review", "decided")


@dataclass(slots=True)
class Group:
    """Sums of what has the same keys. `lines` are nano-dollars by what they were for, `counts` records by how far they
    came: over attempts, a record that was submitted twice counts twice there."""

    lines: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    unpriced: int = 0
    aws: int = 0

    def document(self) -> dict[str, Any]:
        """Dollars are exact, as text; null where something that was paid for has no price."""
        cost = sum(self.lines.values())
        accepted = self.lines["first_success"] + self.lines["later_success"]
        each = round(cost / self.counts["accepted"]) if self.counts["accepted"] else None
        known = not self.unpriced
        return {
            "records": {name: self.counts[name] for name in COUNTS},
            "cost_usd": usd(cost) if known else None,
            "waste_usd": usd(cost - accepted - self.lines[HUMAN]) if known else None,
            "cost_per_accepted_usd": usd(each) if known else None,
            "unpriced": self.unpriced,
            "lines": {name: usd(self.lines[name]) for name in (*LINES, HUMAN)},
            "aws_cost_usd": usd(self.aws),
        }


@dataclass(frozen=True, slots=True)
class Fact:
    """`keys` by dimension; `class` is "" for what is of no one class."""

    keys: Mapping[str, str]
    lines: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    unpriced: int = 0
    aws: int = 0


def facts_of(job: Job, submissions: Sequence[Submission], *, human_nano_usd: int) -> Iterator[Fact]:
    """`human_nano_usd` is what one record costs that people look at: those that they have decided about, and those that
    wait for them."""
    for row in submissions:
        if row.provider == PEOPLE:
            yield _of_decisions(job, row, human_nano_usd)
        else:
            yield from _of_submission(job, row)
    in_review = job.counts.get("in_review", 0)
    keys = _keys(job, job.provider, "", job.updated_at)
    if in_review:
        counts = {"in_review": in_review}
        yield Fact({**keys, "class": HUMAN}, {HUMAN: in_review * human_nano_usd}, counts)
    if withdrawn := _withdrawn(job, submissions):
        yield Fact({**keys, "class": WITHDRAWN}, counts=withdrawn)
    yield Fact({**keys, "class": "aws"}, aws=aws_nano_usd(job, submissions))


def aws_nano_usd(job: Job, submissions: Sequence[Submission]) -> int:
    """An estimate of what AWS itself charges for a job, from what was counted of it."""
    asked = [row for row in submissions if row.provider != PEOPLE]
    polls = sum(
        polls_in(max(0.0, row.terminal_at - row.submitted_at))
        for row in asked
        if row.submitted_at and row.lane != ON_DEMAND
    )
    calls = aws_cost.counted(
        records=job.expected,
        sent=sum(row.input_records for row in asked),
        submissions=len(asked),
        attempts=max((row.attempt for row in submissions), default=0),
        shards=job.shard_count,
        polls=polls,
    )
    return aws_cost.nano_usd(calls)


def grouped(facts: Iterable[Fact], by: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A document for each group, its keys first, in the order of its keys; and one of all together."""
    groups: dict[tuple[str, ...], Group] = {}
    total = Group()
    for fact in facts:
        key = tuple(fact.keys[name] for name in by)
        for group in (groups.setdefault(key, Group()), total):
            group.lines.update(fact.lines)
            group.counts.update(fact.counts)
            group.unpriced += fact.unpriced
            group.aws += fact.aws
    rows = [{**dict(zip(by, key, strict=True)), **group.document()} for key, group in sorted(groups.items())]
    return rows, total.document()


def _of_decisions(job: Job, row: Submission, human_nano_usd: int) -> Fact:
    """Nothing of it went to a provider; the answers that people gave are accepted."""
    decided = sum(row.counts.values())
    given = row.counts.get(OutcomeClass.SUCCEEDED.value, 0)
    counts = {"decided": decided, "schema_valid": given, "accepted": given}
    counts["published"] = given if _is_published(job, row.attempt) else 0
    keys = {**_keys(job, job.provider, "", row.updated_at), "class": HUMAN}
    return Fact(keys, {HUMAN: decided * human_nano_usd}, {name: count for name, count in counts.items() if count})


def _withdrawn(job: Job, submissions: Sequence[Submission]) -> dict[str, int]:
    """Answers that were accepted once and that people took back, as negative counts. Told once the job has ended."""
    if (
        job.state not in JOB_FINAL
        or "succeeded" not in job.counts
        or all(row.provider != PEOPLE for row in submissions)
    ):
        return {}
    ever: Counter[str] = Counter()
    for row in submissions:
        ever.update(row.counts)
    most = -sum(ever[outcome.value] for outcome in OVERRULING)
    reused = job.counts.get("reused", 0)
    accepted = max(most, job.counts["succeeded"] - reused - ever[OutcomeClass.SUCCEEDED.value])
    published = max(most, accepted + reused - ever[OutcomeClass.REUSED.value])
    told = {"accepted": accepted, "published": published if _is_published(job, job.attempt) else 0}
    return {name: count for name, count in told.items() if count}


def _is_published(job: Job, attempt: int) -> bool:
    """Whether what an attempt has accepted is published, be it as a part."""
    return job.state is JobState.COMPLETED or attempt <= job.published_attempt


def _of_submission(job: Job, row: Submission) -> Iterator[Fact]:
    """One fact for each class of outcome that the submission has, one for duplicates, and one for its records."""
    keys = _keys(job, row.provider, row.model, row.submitted_at or row.updated_at)
    spent = money([(row.attempt, row.costs, row.duplicate_cost_nano_usd, 0)])
    published = _is_published(job, row.attempt)
    for line in LINES:
        counts = _counts(row, line, published=published)
        if spent.lines[line] or counts:
            yield Fact({**keys, "class": line}, {line: spent.lines[line]}, counts)
    submitted = {"submitted": row.input_records} if row.input_records else {}
    if submitted or row.unpriced:
        yield Fact({**keys, "class": ""}, counts=submitted, unpriced=row.unpriced)


def _counts(row: Submission, line: str, *, published: bool) -> dict[str, int]:
    told: Counter[str] = Counter()
    for kind, count in row.counts.items():
        if line_of(kind, row.attempt) != line:
            continue
        outcome = OutcomeClass(kind)
        told["completed"] += count if outcome not in _NOT_BACK else 0
        told["accepted"] += count if outcome is OutcomeClass.SUCCEEDED else 0
        told["schema_valid"] += count if outcome is OutcomeClass.SUCCEEDED else 0
        told["published"] += count if outcome in ACCEPTED and published else 0
    if line == "quality_failure":
        told["schema_valid"] += row.schema_valid
    return {name: count for name, count in told.items() if count}


def _keys(job: Job, provider: str, model: str, moment: float) -> dict[str, str]:
    return {
        "tenant": job.tenant,
        "spec": job.spec,
        "model": f"{provider or job.provider} {model or job.model_resolved}".strip(),
        "day": datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d"),
    }


def human_nano_usd(dollars: Decimal) -> int:
    return round(dollars.scaleb(9))
