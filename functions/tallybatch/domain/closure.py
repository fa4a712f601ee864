"""Closure of a job: expected = succeeded + failed, disjoint, nothing missing, unknown or double, over all attempts.

Works shard by shard of the manifest on streams that are in the same order, so that memory does not grow with the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.retries import Disposition, RetryPolicy


class Row(msgspec.Struct, frozen=True, gc=False):
    """What closure needs of an outcome line; decoding skips the rest."""

    record_id: str
    shard_id: str
    outcome: OutcomeClass
    tries: int
    code: str = ""


class OpenRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that goes into the next attempt, and why."""

    record_id: str
    shard_id: str
    tries: int
    reason: str


class SubmissionEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One submission as the closure and the certificate list it."""

    attempt: int
    shard_id: str
    submission_key: str
    state: str
    generation: int = 1
    provider: str = ""
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
    submitted_at: float = 0
    terminal_at: float = 0


class Closure(msgspec.Struct, frozen=True, kw_only=True):
    """The sets after an attempt. `failed` counts terminal failures by class; `open` records have a next attempt, or
    wait for another job (`waiting`) or for their own submission (`unsettled`)."""

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

    @property
    def failed_total(self) -> int:
        return sum(self.failed.values())

    @property
    def closed(self) -> bool:
        """|E| = |S| + |F|, and nothing missing, unknown or double. Reused answers are in S."""
        return (
            not (self.missing or self.unknown or self.duplicate or self.open)
            and self.expected == self.succeeded + self.failed_total
        )


@dataclass(slots=True)
class Sets:
    """Running counts while shards are folded in."""

    expected: int = 0
    succeeded: int = 0
    reused: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    open: int = 0
    waiting: int = 0
    unsettled: int = 0
    unknown: int = 0
    duplicate: int = 0

    @property
    def missing(self) -> int:
        return self.expected - self.succeeded - sum(self.failed.values()) - self.open


decode_row = msgspec.json.Decoder(Row).decode


class AttemptRows:
    """One attempt's rows, taken shard by shard of the manifest. `rows` are (S3 key of the outcome object or "", row)
    in the attempt's order: one for every record that was in the attempt."""

    def __init__(self, rows: Iterable[tuple[str, Row]]) -> None:
        self._rows = iter(rows)
        self._next = next(self._rows, None)

    def take(self, shard_id: str) -> Iterator[tuple[str, Row]]:
        """(S3 key, row) of every line that belongs to this shard of the manifest."""
        while self._next is not None and self._next[1].shard_id == shard_id:
            yield self._next
            self._next = next(self._rows, None)

    @property
    def left_over(self) -> bool:
        """Whether lines remain that belong to no shard that was asked for."""
        return self._next is not None


def fold_shard(
    sets: Sets,
    shard_id: str,
    record_ids: Sequence[str],
    attempts: Sequence[AttemptRows],
    policy: RetryPolicy,
    *,
    overdue: bool,
) -> tuple[list[OpenRecord], list[str]]:
    """Fold one shard of the manifest into `sets`. Returns its open records, and the outcome objects it appears in."""
    expected = set(record_ids)
    sets.expected += len(record_ids)
    sets.duplicate += len(record_ids) - len(expected)
    by_attempt: list[dict[str, Row]] = []
    keys: dict[str, None] = {}
    for attempt in attempts:
        rows: dict[str, Row] = {}
        for key, row in attempt.take(shard_id):
            if key:
                keys[key] = None
            if row.record_id not in expected:
                sets.unknown += 1
            elif row.record_id in rows:
                sets.duplicate += 1
            rows[row.record_id] = row
        by_attempt.append(rows)
    still_open = []
    for record_id in dict.fromkeys(record_ids):
        decisive, disposition = _history(record_id, by_attempt, policy, overdue=overdue)
        if decisive is None:
            continue
        outcome = decisive.outcome
        if disposition is Disposition.ACCEPTED:
            sets.succeeded += 1
            sets.reused += outcome is OutcomeClass.REUSED
        elif disposition is Disposition.FAILED:
            sets.failed[outcome.value] += 1
        elif disposition is Disposition.RESUME:
            sets.open += 1
            sets.unsettled += 1
        else:
            sets.open += 1
            sets.waiting += outcome is OutcomeClass.WAITING
            still_open.append(OpenRecord(record_id, shard_id, decisive.tries, decisive.code or outcome.value))
    return still_open, list(keys)


def _history(
    record_id: str, by_attempt: Sequence[dict[str, Row]], policy: RetryPolicy, *, overdue: bool
) -> tuple[Row | None, Disposition]:
    """The row that decides: the first that accepts or fails for good, else the last. An attempt without a row did not
    have this record."""
    decisive: Row | None = None
    disposition = Disposition.RETRY
    for rows in by_attempt:
        row = rows.get(record_id)
        if row is None:
            continue
        decisive, disposition = row, policy.decide(row.outcome, row.tries, overdue=False)
        if disposition in (Disposition.ACCEPTED, Disposition.FAILED):
            return decisive, disposition
    if decisive is not None and overdue:
        disposition = policy.decide(decisive.outcome, decisive.tries, overdue=True)
    return decisive, disposition
