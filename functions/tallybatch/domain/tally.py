"""The tally of one shard: what came back for each record. Joined by record_id, never by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from tallybatch.domain.outcomes import SUCCEEDED, OutcomeClass, RawRef, RecordResult, Usage
from tallybatch.domain.retries import FOREVER_FAILED


class Tallied(msgspec.Struct, gc=False):
    """What the channels said of one record."""

    result: RecordResult
    raw: RawRef
    provider_job_id: str = ""
    """Set when a duplicate provider job gave the answer."""
    conflict: bool = False
    notes: tuple[str, ...] = ()
    billed: tuple[Usage, ...] | None = None
    """What each of its executions in the bound job used; None: there was one, whose result this is."""


_UNKNOWN = Tallied(RecordResult("", OutcomeClass.MISSING), RawRef("", 0, 0, ""))
"""Stands for an id that was not expected."""


_AROUND_A_LINE = (1, 3, 4)
"""Bytes of a carriage return, of a byte order mark, and of both: with and without, it is the same line."""


class ShardTally:
    """Collects result lines in any order. Unknown ids and repeated ids are counted, never dropped silently."""

    def __init__(self, expected: Iterable[str]) -> None:
        self._by_id: dict[str, Tallied | None] = dict.fromkeys(expected)
        self.anomalies: Counter[str] = Counter()
        self.ghost_usage: list[Usage] = []
        """One per execution, told apart as those of the bound job are."""
        self.unpriced_calls = 0
        """Lost calls for records of which no other answer tells what one costs."""
        self._ghost_executions: set[tuple[str, str]] = set()
        self._strangers: list[tuple[str, Usage]] = []
        """Request id and usage of each line with an unknown id."""
        self._known: list[Usage] = []
        """Of each execution whose line names a record that was asked for."""

    @property
    def usage(self) -> Usage:
        """What the provider bills: over all executions, failed ones and those of unknown ids included. A line that was
        delivered twice is one execution, told by its request id or, where there is none, by its bytes."""
        return total_usage([*self._known, *self.strangers])

    def believe(self, told: Mapping[str, int]) -> None:
        """Where the provider counts the whole job's tokens (`told`, else empty), and what we know of is all of them,
        lines of unknown ids are no executions of their own, whatever their bytes."""
        if not told:
            return
        known = total_usage(self._known)
        if told.get("input", 0) <= known.input and told.get("output", 0) <= known.output:
            self._strangers.clear()

    @property
    def strangers(self) -> list[Usage]:
        """Of each execution whose line names a record that was not asked for."""
        if not self._strangers:
            return []
        seen = {back.result.request_id for back in self._by_id.values() if back is not None}
        executions = []
        for request_id, usage in self._strangers:
            if not request_id or request_id not in seen:
                seen.add(request_id)
                executions.append(usage)
        return executions

    def add(self, result: RecordResult, raw: RawRef) -> bool:
        """False if the id was not expected here."""
        record_id = result.record_id
        known = self._by_id.get(record_id, _UNKNOWN)
        if known is None:
            self._by_id[record_id] = Tallied(result, raw)
            self._known.append(result.usage)
        elif known is _UNKNOWN:
            self._strangers.append((result.request_id, result.usage))
            self.anomalies["unknown"] += 1
            return False
        else:
            if not _same_execution(known, result, raw):
                self._known.append(result.usage)
                known.billed = (*_billed(known), result.usage)
            self._add_again(known, result, raw)
        return True

    def add_ghost(self, result: RecordResult, raw: RawRef, provider_job_id: str) -> None:
        """A line of a duplicate provider job: it is billed too, and its answer counts where there is no other."""
        execution = (provider_job_id, result.request_id or raw.sha256)
        if execution not in self._ghost_executions:
            self._ghost_executions.add(execution)
            self.ghost_usage.append(result.usage)
        if result.record_id not in self._by_id or not _answered(result):
            return
        known = self._by_id[result.record_id]
        if known is None or not _answered(known.result):
            billed = _billed(known) if known is not None else ()
            notes = ("duplicate_submission",)
            self._by_id[result.record_id] = Tallied(result, raw, provider_job_id, notes=notes, billed=billed)

    def add_lost(self, record_id: str, calls: int) -> None:
        """Calls for a record whose answers were lost: each may have cost what the one that came did."""
        known = self._by_id.get(record_id)
        self.anomalies["reply_lost"] += calls
        if known is None:
            self.unpriced_calls += calls
        else:
            self.ghost_usage += [known.result.usage] * calls
            known.notes += ("reply_lost",)

    def _add_again(self, known: Tallied, result: RecordResult, raw: RawRef) -> None:
        was, now = _answered(known.result), _answered(result)
        if was and now:
            if known.result.answer == result.answer:
                self._note(known, "duplicate_same")
            else:
                known.conflict = True
                self._note(known, "conflict")
        elif was or now:
            if now:
                known.billed = _billed(known)
                known.result, known.raw = result, raw
            self._note(known, "success_and_error")
        elif (known.result.outcome, known.result.code) == (result.outcome, result.code):
            self._note(known, "duplicate_same")
        else:
            if _rank(result) < _rank(known.result):
                known.billed = _billed(known)
                known.result, known.raw = result, raw
            self._note(known, "errors_differ")

    def _note(self, known: Tallied, anomaly: str) -> None:
        self.anomalies[anomaly] += 1
        if anomaly not in known.notes:
            known.notes += (anomaly,)

    def returned(self) -> Collection[Tallied | None]:
        """What came back for every expected id, in the order given."""
        return self._by_id.values()


def total_usage(usages: Sequence[Usage]) -> Usage:
    return Usage(*(sum(map(attrgetter(kind), usages)) for kind in Usage.__struct_fields__))


def _billed(known: Tallied) -> tuple[Usage, ...]:
    return (known.result.usage,) if known.billed is None else known.billed


def _same_execution(known: Tallied, result: RecordResult, raw: RawRef) -> bool:
    if result.request_id or known.result.request_id:
        return result.request_id == known.result.request_id
    if raw.sha256 == known.raw.sha256:
        return True
    return abs(raw.length - known.raw.length) in _AROUND_A_LINE and result == known.result


def _answered(result: RecordResult) -> bool:
    return result.outcome is SUCCEEDED


def _rank(failure: RecordResult) -> tuple[bool, str, str]:
    """Of two different failures the one that may be tried again counts, whichever line came first."""
    return failure.outcome in FOREVER_FAILED, failure.outcome.value, failure.code
