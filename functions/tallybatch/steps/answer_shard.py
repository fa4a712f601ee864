"""Submit, Monitor, on demand: a shard's records are asked one by one; their replies become a channel like any other.

An intent is written before each call and its reply at once after it, so that whoever goes on after a crash repeats at
most the one call whose answer was lost. Nobody can tell whether that one was paid for: it is counted and booked as if.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from tallybatch.contracts import AnswerReply, ShardItem
from tallybatch.domain import lanes
from tallybatch.domain.errors import (
    AnswerUnknown,
    Conflict,
    Permanent,
    ProviderRefused,
    ProviderUnavailable,
    QuotaRefused,
)
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.lines import CHUNK_BYTES, newline_split
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.rows import ON_DEMAND_JOB, Submission
from tallybatch.ports import Clock, Formats, Ledger, Objects, OnDemand
from tallybatch.steps.call_log import CallLog, End
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.submission_input import prepare_input
from tallybatch.steps.submit_shard import first_generation, place_of
from tallybatch.steps.transitions import advance_job, change_submission, job_of

_S = SubmissionState
_PASSES = 2
"""Over the records in one invocation: the second repeats calls that brought no answer in the first."""
_QUOTA_WAIT_S = 15
QUOTA_WAIT_MAX_S = 300


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    lane: OnDemand
    clock: Clock
    formats: Formats


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """`work_s`: no call begins later than this after the function did. `call_s`: after this long the answer of a call
    that nobody heard of counts as lost."""

    work_s: float
    call_s: float


class _Refused(Exception):
    """What the provider would answer to every record. `untried`: it says nothing about the records."""

    def __init__(self, refusal: Permanent) -> None:
        super().__init__(str(refusal)[:500])
        self.untried = not isinstance(refusal, ProviderRefused) or refusal.account


class _Named(msgspec.Struct):
    """The id of a request line, whichever provider's."""

    custom_id: str = ""
    recordId: str = ""  # noqa: N815 - the wire's name
    key: str = ""


_named = msgspec.json.Decoder(_Named).decode


def run(item: ShardItem, ports: Ports, *, rules: AnswerRules) -> AnswerReply:
    row = ports.ledger.submission(item.job_key, item.attempt, item.shard_id)
    context = load_job(ports.objects, item.tenant, item.job_key)
    if row is None:
        if job_of(ports.ledger, item.job_key).cancel_requested_at:
            return AnswerReply(status="cancelled")
        row = _open(item, context, ports)
    if row.state is _S.EMPTY:
        return AnswerReply(status="empty")
    if row.state in (_S.SUBMITTED, _S.TERMINAL):
        advance_job(ports.ledger, ports.clock, item.job_key, JobState.RUNNING, attempt=item.attempt)
        return _Shard(item, row, context, ports, rules).work()
    if row.state in (_S.COLLECTED, _S.RECONCILED):
        return AnswerReply(status="answered")
    raise Permanent("the submission is not on demand", where=place_of(row), why=f"it is {row.state}")


def _open(item: ShardItem, context: JobContext, ports: Ports) -> Submission:
    """Claim the records and write the requests; nothing is sent before the row says so."""
    now = ports.clock.now()
    fresh = first_generation(item, context, now, home=ports.objects.bucket)
    prepared = prepare_input(
        item, fresh.submission_key, context, objects=ports.objects, ledger=ports.ledger, formats=ports.formats
    )
    fresh = prepared.noted_in(fresh)
    row = lanes.opened(fresh, now) if prepared.sent else replace(fresh, state=_S.EMPTY)
    stored = ports.ledger.put_submission(row, expected_version=None)
    stored = stored or ports.ledger.submission(item.job_key, item.attempt, item.shard_id)
    assert stored is not None  # noqa: S101 - a lost race means that somebody's row is there
    return stored


class _Shard:
    """One function's work on one submission."""

    def __init__(self, item: ShardItem, row: Submission, context: JobContext, ports: Ports, rules: AnswerRules) -> None:
        self._item, self._row, self._context, self._ports, self._rules = item, row, context, ports, rules
        self._began = ports.clock.now()
        prefix = context.keys.calls(row.submission_key)
        self._log = CallLog(ports.objects, prefix, rules.call_s, context.retention("raw")).load()

    def work(self) -> AnswerReply:
        try:
            for _ in range(_PASSES):
                for record_id, line in self._requests():
                    number = self._log.next_call(record_id, self._now())
                    if not number:
                        continue
                    if self._is_over():
                        return self._finish(cut_short=True)
                    if self._now() >= self._began + self._rules.work_s:
                        return AnswerReply(status="more", wait_s=1)
                    if wait_s := self._call(record_id, number, line):
                        return AnswerReply(status="quota", wait_s=wait_s)
        except _Refused as refused:
            return self._finish(refused)
        now = self._now()
        until = [self._log.under_way_until(record_id, now) for record_id, _ in self._requests()]
        pending = [moment for moment in until if moment]
        if pending:
            return AnswerReply(status="more", wait_s=max(1, round(max(pending) - now)))
        return self._finish()

    def _now(self) -> float:
        return self._ports.clock.now()

    def _is_over(self) -> bool:
        """Whether no further call is wanted: the job was cancelled, or its deadline has passed."""
        job = job_of(self._ports.ledger, self._item.job_key)
        return bool(job.cancel_requested_at) or 0 < job.deadline_at <= self._now()

    def _requests(self) -> Iterator[tuple[str, bytes]]:
        """Record id and request line, in the order of the request file."""
        key = self._context.keys.request(self._row.attempt, self._row.submission_key)
        with self._ports.objects.open(key) as stream:
            for line in newline_split(iter(lambda: stream.read(CHUNK_BYTES), b"")):
                if line:
                    named = _named(line)
                    yield named.custom_id or named.recordId or named.key, line

    def _call(self, record_id: str, number: int, line: bytes) -> int:
        """Send one request. Returns the seconds to wait if the provider has no room now, else 0."""
        log = self._log
        if not log.begin(record_id, number, self._now()):
            return 0
        target = self._context.for_target(self._row.provider, self._row.model).spec
        try:
            reply = self._ports.lane.answer(line, endpoint=target.endpoint, model=target.model_resolved)
        except QuotaRefused as refused:
            wait_s = refused.retry_after_s or min(_QUOTA_WAIT_S * 2 ** log.refusals(record_id), QUOTA_WAIT_MAX_S)
            log.end(record_id, number, End.REFUSED)
            return max(1, round(wait_s))
        except AnswerUnknown as unknown:
            log.end(record_id, number, End.UNKNOWN, unknown.reply)
        except ProviderUnavailable:
            log.end(record_id, number, End.REFUSED)
            raise
        except Permanent as refused:
            log.end(record_id, number, End.REFUSED)
            raise _Refused(refused) from None
        else:
            log.end(record_id, number, End.REPLY, reply)
        return 0

    def _finish(self, refused: _Refused | None = None, *, cut_short: bool = False) -> AnswerReply:
        """Put the replies together, in the order of the requests. Of two functions that do, the first one's count."""
        row, context, ports = self._row, self._context, self._ports
        lines: list[bytes] = []
        lost: dict[str, int] = {}
        for record_id, _ in self._requests():
            if line := self._log.line(record_id):
                lines.append(line + b"\n")
            if calls := self._log.lost(record_id):
                lost[record_id] = calls
        channels: dict[str, str] = {}
        if lines:
            key = context.keys.raw(row.attempt, row.submission_key, f"{ON_DEMAND_JOB}.jsonl")
            with suppress(Conflict):
                ports.objects.put_once(
                    key, b"".join(lines), content_type="application/x-ndjson", retention=context.retention("raw")
                )
            channels = {ON_DEMAND_JOB: key}
        now = self._now()

        def ended(current: Submission) -> Submission | None:
            if current.state is not _S.SUBMITTED:
                return None
            if refused is not None:
                current = replace(
                    current,
                    refusal=str(refused),
                    refusal_code="provider_refused",
                    refusal_class=OutcomeClass.RETRYABLE.value,
                    untried=refused.untried,
                )
            return replace(
                current,
                state=_S.TERMINAL,
                channels=channels,
                lost_calls=lost,
                cancelled_at=now if cut_short else 0,
                terminal_at=now,
                updated_at=now,
            )

        def collected(current: Submission) -> Submission | None:
            return replace(current, state=_S.COLLECTED, updated_at=now) if current.state is _S.TERMINAL else None

        for change in (ended, collected):
            change_submission(ports.ledger, row.job_key, row.attempt, row.shard_id, change)
        return AnswerReply(status="answered")
