"""Closure of a job: expected = succeeded + failed, disjoint, nothing missing, unknown or double, over all attempts.

Works shard by shard of the manifest on streams that are in the same order, so that memory does not grow with the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from tallybatch.domain.outcomes import ACCEPTED, NOTHING_USED, OVERRULING, OutcomeClass, Used
from tallybatch.domain.retries import ACCEPT, Decision, Disposition, RetryPolicy
from tallybatch.domain.rows import ON_DEMAND


class Row(msgspec.Struct, frozen=True, gc=False):
    """What closure needs of an outcome line; decoding skips the rest."""

    record_id: str
    shard_id: str
    outcome: OutcomeClass
    tries: int
    code: str = ""
    reason: str = ""
    used: Used = NOTHING_USED
    output_cap: int = 0


HELD = "held"
"""Reason of a record that was not sent yet, because the canary goes first."""


class OpenRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record that goes into the next attempt, and why; the rest is what its line there says (see `ShardRecord`)."""

    record_id: str
    shard_id: str
    tries: int
    reason: str
    used: Used = NOTHING_USED
    output_cap: int = 0
    feedback: str = ""


class ReviewRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that people decide about. `why` is a `ReviewClass`; the outcome is the one of its last attempt, to be
    found in `outcomes` (S3 key of the outcome object, "" for a record whose shard was lost)."""

    record_id: str
    shard_id: str
    tries: int
    why: str
    outcome: OutcomeClass
    code: str = ""
    outcomes: str = ""


class FoldedShard(NamedTuple):
    """What is left of a shard of the manifest: open records, records for people, and the S3 keys of the outcome objects
    in which its records appear."""

    open: list[OpenRecord]
    review: list[ReviewRecord]
    sources: list[str]


class SubmissionEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One submission as the closure and the certificate list it."""

    attempt: int
    shard_id: str
    submission_key: str
    state: str
    generation: int = 1
    provider: str = ""
    model: str = ""
    lane: str = "batch"
    provider_jobs: tuple[str, ...] = ()
    records: int = 0
    refusal: str = ""
    outcomes: str = ""
    """S3 key of the outcome object, "" for a lost shard."""
    counts: dict[str, int] = {}
    tokens: dict[str, int] = {}
    duplicate_tokens: dict[str, int] = {}
    price: str = ""
    cost_nano_usd: int = 0
    costs: dict[str, int] = {}
    duplicate_cost_nano_usd: int = 0
    unpriced: int = 0
    anomalies: dict[str, int] = {}
    unknown_codes: dict[str, int] = {}
    """Records by each code that the provider's table does not have."""
    submitted_at: float = 0
    terminal_at: float = 0

    @property
    def handed_over(self) -> bool:
        """Whether records of it went to a provider."""
        return bool(self.provider_jobs) or (self.lane == ON_DEMAND and self.records > 0)


class Closure(msgspec.Struct, frozen=True, kw_only=True):
    """The sets after an attempt. `failed` counts terminal failures by class; `open` records have a next attempt, or
    wait for another job (`waiting`) or for their own submission (`unsettled`); `in_review` counts those that wait for
    people, by `ReviewClass`."""

    job_key: str
    attempt: int
    at: float
    expected: int
    succeeded: int
    reused: int
    failed: dict[str, int]
    open: int
    waiting: int
    unsettled: int
    missing: int
    unknown: int
    duplicate: int
    overdue: bool
    open_key: str
    """S3 key of the open records, one JSON line each."""
    publish_key: str
    """S3 key of what PublishMap would publish."""
    submissions: tuple[SubmissionEntry, ...]
    held: int = 0
    """Of `open`: records that were in no attempt yet, because the canary goes first."""
    in_review: dict[str, int] = {}
    acknowledged: int = 0
    """Unknown lines that somebody has seen; they are not in `unknown` any more."""
    review_key: str = ""
    """S3 key of the records in review, one `ReviewRecord` as a JSON line each; "" if there are none."""

    @property
    def in_review_total(self) -> int:
        return sum(self.in_review.values())

    @property
    def failed_total(self) -> int:
        return sum(self.failed.values())

    @property
    def closed(self) -> bool:
        """|E| = |S| + |F|, and nothing missing, unknown, double or undecided. Reused answers are in S."""
        return (
            not (self.missing or self.unknown or self.duplicate or self.open or self.in_review)
            and self.expected == self.succeeded + self.failed_total
        )


@dataclass(slots=True)
class Sets:
    """Running counts while shards are folded in."""

    expected: int = 0
    succeeded: int = 0
    reused: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    in_review: Counter[str] = field(default_factory=Counter)
    open: int = 0
    waiting: int = 0
    unsettled: int = 0
    held: int = 0
    unknown: int = 0
    duplicate: int = 0

    @property
    def missing(self) -> int:
        return self.expected - self.succeeded - sum(self.failed.values()) - sum(self.in_review.values()) - self.open


_FINISHED = frozenset({Disposition.ACCEPTED, Disposition.FAILED})

decode_row = msgspec.json.Decoder(Row).decode


class AttemptRows:
    """One attempt's rows, taken shard by shard of the manifest. `streams` are (S3 key of the outcome object or "", row)
    in the attempt's order, one stream for each target: one row for every record that was in the attempt."""

    def __init__(self, *streams: Iterable[tuple[str, Row]]) -> None:
        self._streams = [_Ahead(stream) for stream in streams]

    def take(self, shard_id: str) -> Iterator[tuple[str, Row]]:
        """(S3 key, row) of every line that belongs to this shard of the manifest."""
        for stream in self._streams:
            yield from stream.take(shard_id)

    @property
    def left_over(self) -> bool:
        """Whether lines remain that belong to no shard that was asked for."""
        return any(stream.next is not None for stream in self._streams)


class _Ahead:
    """Rows with a look at the next one."""

    def __init__(self, rows: Iterable[tuple[str, Row]]) -> None:
        self._rows = iter(rows)
        self.next = next(self._rows, None)

    def take(self, shard_id: str) -> Iterator[tuple[str, Row]]:
        while self.next is not None and self.next[1].shard_id == shard_id:
            yield self.next
            self.next = next(self._rows, None)


def fold_shard(
    sets: Sets,
    shard_id: str,
    record_ids: Sequence[str],
    attempts: Sequence[AttemptRows],
    policy: RetryPolicy,
    *,
    overdue: bool,
    holds_back: bool = False,
) -> FoldedShard:
    """Fold one shard of the manifest into `sets`. `holds_back`: a canary goes first, so a record that is in no attempt
    is held, not missing."""
    expected = set(record_ids)
    sets.expected += len(record_ids)
    sets.duplicate += len(record_ids) - len(expected)
    by_attempt: list[dict[str, Row]] = []
    places: list[dict[str, str]] = []
    keys: dict[str, None] = {}
    for attempt in attempts:
        rows: dict[str, Row] = {}
        unaccepted: dict[str, str] = {}
        for key, row in attempt.take(shard_id):
            record_id = row.record_id
            if key:
                keys[key] = None
            if record_id not in expected:
                sets.unknown += 1
            elif record_id in rows:
                sets.duplicate += 1
            rows[record_id] = row
            if row.outcome not in ACCEPTED:
                unaccepted[record_id] = key
        by_attempt.append(rows)
        places.append(unaccepted)
    folded = FoldedShard([], [], list(keys))
    for record_id in dict.fromkeys(record_ids):
        number, decision = _history(record_id, by_attempt, policy, overdue=overdue)
        if decision is None:
            if holds_back:
                sets.open += 1
                sets.held += 1
                folded.open.append(OpenRecord(record_id, shard_id, 0, HELD))
            continue
        row = by_attempt[number][record_id]
        if decision.disposition is Disposition.ACCEPTED:
            sets.succeeded += 1
            sets.reused += row.outcome is OutcomeClass.REUSED
        else:
            _leave(sets, row, decision, shard_id, places[number][record_id], folded, policy)
    return folded


def _leave(
    sets: Sets, row: Row, decision: Decision, shard_id: str, key: str, folded: FoldedShard, policy: RetryPolicy
) -> None:
    """Count a record that is not accepted, and put it on the list it belongs to."""
    disposition, why = decision
    outcome = row.outcome
    if disposition is Disposition.FAILED:
        sets.failed[outcome.value] += 1
    elif why is not None:
        sets.in_review[why.value] += 1
        folded.review.append(ReviewRecord(row.record_id, shard_id, row.tries, why.value, outcome, row.code, key))
    elif disposition is Disposition.RESUME:
        sets.open += 1
        sets.unsettled += 1
    else:
        sets.open += 1
        sets.waiting += outcome is OutcomeClass.WAITING
        folded.open.append(_again(row, shard_id, policy))


def _again(row: Row, shard_id: str, policy: RetryPolicy) -> OpenRecord:
    """Another model is not told what was wrong with the answer of the one before; and a reason that comes with a code
    is not that of our checks, but the provider's or the model's own words."""
    used = policy.onward(row.outcome, row.tries, row.used, row.output_cap)
    told = policy.feedback and row.outcome is OutcomeClass.UNQUALIFIED and not row.code
    told = told and used.targets == row.used.targets
    return OpenRecord(
        row.record_id,
        shard_id,
        row.tries,
        row.code or row.outcome.value,
        used,
        policy.next_cap(row.outcome, row.output_cap),
        row.reason if told else "",
    )


def _history(
    record_id: str, by_attempt: Sequence[dict[str, Row]], policy: RetryPolicy, *, overdue: bool
) -> tuple[int, Decision | None]:
    """The place of the attempt whose row decides: the first that accepts or fails for good, else the last, for people
    may send a record on that waits for them. Where people overrule what stood, it starts again from their decision. An
    attempt without a row did not have this record."""
    last, decision = 0, None
    finished = False
    for number, rows in enumerate(by_attempt):
        row = rows.get(record_id)
        if row is None or (finished and row.outcome not in OVERRULING):
            continue
        last, decision = number, _decide(row, policy, overdue=False)
        finished = decision.disposition in _FINISHED
    if decision is not None and overdue and not finished and decision.disposition is not Disposition.REVIEW:
        decision = _decide(by_attempt[last][record_id], policy, overdue=True)
    return last, decision


def _decide(row: Row, policy: RetryPolicy, *, overdue: bool) -> Decision:
    if row.outcome in ACCEPTED:
        return ACCEPT
    return policy.decision(row.outcome, row.tries, overdue=overdue, used=row.used, output_cap=row.output_cap)
