"""What a submission cost: each record's executions, and what no record's line tells of. Sums of integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from tallybatch.domain.outcomes import ACCEPTED, OutcomeClass, Usage
from tallybatch.domain.prices import Price, Pricer, bulk_pricer, pricer
from tallybatch.domain.tally import ShardTally, Tallied, total_usage

STRANGERS = "unknown"
"""Cost of lines whose id nobody asked for."""
UNREAD = "unread"
"""Cost of what the provider counts as used, and no line that could be read tells of."""
_TOKENS_COME_WITH = frozenset({OutcomeClass.SUCCEEDED, OutcomeClass.TRUNCATED})
_KINDS = ("input", "cached_input", "output", "reasoning", "cache_write")


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Of one submission. `by_class` has the bound provider job's cost by the outcome class of its records, and under
    `STRANGERS` and `UNREAD`; `duplicates` is the cost of its ghosts. `unpriced` counts executions whose cost nobody can
    tell: the sums are too low by those."""

    by_class: dict[str, int]
    duplicates: int
    unpriced: int

    @property
    def total(self) -> int:
        """Without duplicates."""
        return sum(self.by_class.values())


class Biller:
    """Prices the records of one submission."""

    def __init__(self, price: Price | None) -> None:
        self.price = pricer(price)
        self.bulk = bulk_pricer(price)
        """For the tokens of many requests together."""

    def record(self, back: Tallied) -> int | None:
        """Nano-dollars of what the bound job did for a record; None if that cannot be told, as for an answer whose
        tokens the provider does not count."""
        if back.billed is None:
            usage = back.result.usage
            if usage.input or usage.output:
                return self.price(usage)
            return None if back.result.outcome in _TOKENS_COME_WITH else 0
        return self.all(back.billed)

    def all(self, usages: Iterable[Usage]) -> int | None:
        costs = [self.price(usage) for usage in usages]
        return None if None in costs else sum(cost for cost in costs if cost is not None)


def settle(
    biller: Biller,
    tally: ShardTally,
    records: Mapping[OutcomeClass, int],
    unpriced_records: int,
    *,
    told: Mapping[str, int],
    ghosts_told: Mapping[str, int],
    lost: int,
    unread_jobs: int,
) -> Costs:
    """Book a submission. `records` is the cost of its outcome rows by class, `told` and `ghosts_told` the tokens that
    the provider itself counts for the bound job and for all ghosts (empty if it does not), `lost` the records without a
    line that may have had one which could not be read, `unread_jobs` the provider jobs whose bill nobody can tell."""
    booked = Counter({outcome.value: cost for outcome, cost in records.items() if cost})
    unpriced = unpriced_records + unread_jobs + tally.unpriced_calls

    def book(kind: str, usages: Iterable[Usage], price: Pricer) -> None:
        nonlocal unpriced
        for usage in usages:
            cost = price(usage)
            unpriced += cost is None
            if cost:
                booked[kind] += cost

    book(STRANGERS, tally.strangers, biller.price)
    unread = _beyond(told, tally.usage)
    if unread is not None:
        book(UNREAD, [unread], biller.bulk)
    elif not told:
        unpriced += lost
    by_class = dict(booked)
    booked.clear()
    book("", tally.ghost_usage, biller.price)
    unread = _beyond(ghosts_told, total_usage(tally.ghost_usage))
    if unread is not None:
        book("", [unread], biller.bulk)
    return Costs(by_class=dict(sorted(by_class.items())), duplicates=booked[""], unpriced=unpriced)


def _beyond(told: Mapping[str, int], read: Usage) -> Usage | None:
    """What the provider counts more than the lines do; None if it counts no more, or does not count."""
    more = Usage(*(max(0, told.get(kind, 0) - getattr(read, kind)) for kind in _KINDS))
    return more if more.input or more.output else None


def tokens_of(usage: Usage) -> dict[str, int]:
    """By kind, with zeros, but for cache writes, which few providers have."""
    told = {kind: getattr(usage, kind) for kind in _KINDS}
    return told if usage.cache_write else {kind: count for kind, count in told.items() if kind != "cache_write"}


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """Of a job, in nano-dollars. `lines` are the parts of `cost`, by what the money was for."""

    cost: int
    waste: int
    """What was paid for anything but an accepted answer."""
    unpriced: int
    lines: dict[str, int]

    @property
    def known_cost(self) -> int | None:
        """None while the cost of something is unknown."""
        return None if self.unpriced else self.cost

    @property
    def known_waste(self) -> int | None:
        return None if self.unpriced else self.waste


_LINES: Mapping[str, str] = {
    OutcomeClass.UNQUALIFIED.value: "quality_failure",
    OutcomeClass.PERMANENT.value: "terminal_failure",
    OutcomeClass.REFUSED.value: "terminal_failure",
    OutcomeClass.TRUNCATED.value: "terminal_failure",
    OutcomeClass.CONFLICT.value: "conflict",
    STRANGERS: "unknown_ids",
    UNREAD: "unread_results",
}
LINES = (
    *("first_success", "later_success", "retryable_failure", "quality_failure", "terminal_failure", "conflict"),
    *("duplicate_submission", "unknown_ids", "unread_results"),
)


def money(submissions: Iterable[tuple[int, Mapping[str, int], int, int]]) -> Money:
    """Of a job's submissions, each (attempt, cost by class, cost of duplicates, unpriced)."""
    lines = dict.fromkeys(LINES, 0)
    unpriced = 0
    for attempt, by_class, duplicates, unknown in submissions:
        lines["duplicate_submission"] += duplicates
        unpriced += unknown
        for kind, cost in by_class.items():
            lines[line_of(kind, attempt)] += cost
    cost = sum(lines.values())
    accepted = lines["first_success"] + lines["later_success"]
    return Money(cost=cost, waste=cost - accepted, unpriced=unpriced, lines=lines)


def line_of(kind: str, attempt: int) -> str:
    """What an outcome class, `STRANGERS` or `UNREAD` is called on the bill."""
    if kind in ACCEPTED:
        return "first_success" if attempt == 1 else "later_success"
    return _LINES.get(kind, "retryable_failure")
