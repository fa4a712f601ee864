"""Reconcile: fold every attempt's outcomes into the job's sets, and decide: closed, once more, or partial."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Self, cast

import msgspec
import zstandard

from tallybatch.contracts import JobInput, PublishItem, ReconcileReply
from tallybatch.domain import lanes
from tallybatch.domain.closure import Closure, Sets, SubmissionEntry, fold_shard
from tallybatch.domain.errors import Conflict, Permanent, ProviderRefused
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.review import PEOPLE
from tallybatch.domain.rows import ON_DEMAND, Submission
from tallybatch.domain.shards import ZSTD_LEVEL
from tallybatch.ports import Clock, Ledger, Objects
from tallybatch.steps import budget
from tallybatch.steps.acknowledgements import acknowledged_ids
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.job_sets import attempt_rows, record_ids
from tallybatch.steps.quality_gates import judgement_after
from tallybatch.steps.transitions import advance_job


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    clock: Clock


def run(request: JobInput, ports: Ports) -> ReconcileReply:
    context = load_job(ports.objects, request.tenant, request.job_key)
    job = advance_job(ports.ledger, ports.clock, request.job_key, JobState.RECONCILING, attempt=request.attempt)
    closure = closure_after(
        request.attempt,
        context,
        ports.objects,
        ports.ledger,
        ports.clock,
        deadline_at=job.deadline_at,
        partial=bool(job.partial_requested_at),
    )
    budget.settle(job, ports.ledger, ports.clock, closed=False)
    _stop_if_nothing_was_taken(closure, context)
    if not job.cancel_requested_at and not job.partial_requested_at:
        _stop_if_nothing_was_handed_over(closure, context)
    reply = ReconcileReply(
        tenant=request.tenant,
        job_key=request.job_key,
        bucket=request.bucket,
        attempt=request.attempt,
        verdict="closed" if closure.closed else "partial",
        items_key=closure.publish_key,
        max_parallel=max(8, context.spec.shards.max_parallel),
    )
    if closure.closed and not judgement_after(closure, job, context, ports.objects).passed:
        return reply.model_copy(update={"verdict": "gate"})
    if job.partial_requested_at and not closure.closed:
        return reply.model_copy(update={"verdict": "publish_partial"})
    if job.cancel_requested_at and not closure.closed:
        return reply.model_copy(update={"verdict": "cancelled"})
    if context.in_canary(job, request.attempt) and not closure.closed:
        return reply.model_copy(update={"verdict": "canary"})
    if closure.open and not closure.overdue:
        wait_s = _pause_s(closure, context, job.deadline_at)
        return reply.model_copy(update={"verdict": "retry", "next_attempt": request.attempt + 1, "wait_s": wait_s})
    return reply


def closure_after(
    attempt: int,
    context: JobContext,
    objects: Objects,
    ledger: Ledger,
    clock: Clock,
    *,
    deadline_at: float = float("inf"),
    partial: bool = False,
) -> Closure:
    """The closure of an attempt, made now if the attempt ended before it had one. `partial`: its shards may be
    published though the sets do not close."""
    if objects.head(context.keys.closure(attempt)) is None:
        _reconcile(attempt, deadline_at, context, objects, ledger, clock, partial=partial)
    return read_closure(objects, context.keys, attempt)


def read_closure(objects: Objects, keys: JobKeys, attempt: int) -> Closure:
    return msgspec.json.decode(objects.get(keys.closure(attempt)), type=Closure)


def _stop_if_nothing_was_taken(closure: Closure, context: JobContext) -> None:
    """A key that is wrong, or a model that is not there: every shard was refused, by each target that records may go
    to, so another attempt is no use. What was refused in an earlier run says nothing of one that has not asked yet."""
    if all(entry.attempt != closure.attempt for entry in closure.submissions):
        return
    asked = {(entry.provider, entry.model) for entry in closure.submissions if entry.provider != PEOPLE}
    if len(asked) <= len(context.spec.fallback):
        return
    refusals = {entry.refusal for entry in closure.submissions}
    if closure.succeeded == 0 and refusals and "" not in refusals and not closure.overdue:
        raise ProviderRefused(
            "the provider refused every shard",
            where=f"job {closure.job_key}",
            why=sorted(refusals)[0],
            do="mend the cause and drop the file again; nothing was spent",
        )


def _stop_if_nothing_was_handed_over(closure: Closure, context: JobContext) -> None:
    """Not one shard of the job came as far as a submission, and not for the first time: the fault is ours."""
    if closure.expected and not closure.submissions and closure.attempt >= context.spec.retry.max_attempts:
        raise Permanent(
            "no shard could be handed over",
            where=f"job {closure.job_key}",
            why="SubmitShard, or what comes before it, failed for every one",
            do="look at the logs of ReserveQuota and SubmitShard, mend the cause, and drop the file again; "
            "nothing was spent",
        )


def _reconcile(
    attempt: int,
    deadline_at: float,
    context: JobContext,
    objects: Objects,
    ledger: Ledger,
    clock: Clock,
    *,
    partial: bool,
) -> None:
    """Write what is open and what would be published, each under its own hash, and then the closure that names them.
    Of several that race, the first closure stays. If the next attempt could only begin after the deadline, the job is
    overdue now: nothing would come of waiting for it."""
    now, keys = clock.now(), context.keys
    submissions = submissions_now(context.manifest.job_key, ledger)
    closure = _fold(attempt, submissions, context, objects, now=now, overdue=now >= deadline_at, partial=partial)
    waits = closure.open and not closure.held and not closure.overdue
    if waits and now + _pause_s(closure, context, deadline_at) >= deadline_at:
        closure = _fold(attempt, submissions, context, objects, now=now, overdue=True, partial=partial)
    body = msgspec.json.format(msgspec.json.encode(closure), indent=1)
    with suppress(Conflict):
        objects.put_once(
            keys.closure(attempt), body, content_type="application/json", retention=context.retention("results")
        )


def _pause_s(closure: Closure, context: JobContext, deadline_at: float) -> int:
    """Before the attempt that follows."""
    patient = closure.open == closure.waiting + closure.unsettled
    decided = any(entry.attempt == closure.attempt and entry.provider == PEOPLE for entry in closure.submissions)
    wait_s = context.retry_policy.wait_s(closure.attempt, only_waiting=patient, now=closure.at, decided=decided)
    return lanes.pause_s(wait_s, context.spec, now=closure.at, deadline_at=deadline_at)


def _fold(
    attempt: int,
    submissions: tuple[SubmissionEntry, ...],
    context: JobContext,
    objects: Objects,
    *,
    now: float,
    overdue: bool,
    partial: bool,
) -> Closure:
    keys = context.keys
    rows = [attempt_rows(objects, keys, number, submissions) for number in range(1, attempt + 1)]
    sets = Sets()
    publish: list[PublishItem] = []
    with _List() as still_open, _List() as review:
        for shard in context.manifest.shards:
            ids = record_ids(objects, keys, shard.sha256)
            folded = fold_shard(
                sets,
                shard.shard_id,
                ids,
                rows,
                context.retry_policy,
                overdue=overdue,
                holds_back=context.has_canary,
            )
            still_open.write(folded.open)
            review.write(folded.review)
            publish.append(_publish_item(shard.shard_id, folded.sources, attempt, context, partial=partial))
        open_key = keys.open_records(attempt, still_open.close())
        objects.put_once(open_key, still_open.file, retention=context.retention("working"))
        review_key = keys.review_records(attempt, review.close()) if sets.in_review else ""
        if review_key:
            objects.put_once(review_key, review.file, retention=context.retention("results"))
    items = msgspec.json.encode([item.model_dump() for item in publish])
    publish_key = keys.publish_items(attempt, sha256_hex(items))
    objects.put_once(publish_key, items, content_type="application/json", retention=context.retention("results"))
    acknowledged = acknowledged_ids(objects, keys, before=attempt)
    sets.unknown += sum(
        row.anomalies.get("unknown", 0) for row in submissions if row.submission_key not in acknowledged
    )
    sets.unknown += sum(stream.left_over for stream in rows)
    return Closure(
        job_key=context.manifest.job_key,
        attempt=attempt,
        at=now,
        expected=sets.expected,
        succeeded=sets.succeeded,
        reused=sets.reused,
        failed=dict(sorted(sets.failed.items())),
        open=sets.open,
        waiting=sets.waiting,
        unsettled=sets.unsettled,
        missing=sets.missing,
        unknown=sets.unknown,
        duplicate=sets.duplicate,
        overdue=overdue,
        open_key=open_key,
        publish_key=publish_key,
        submissions=submissions,
        held=sets.held,
        in_review=dict(sorted(sets.in_review.items())),
        review_key=review_key,
        acknowledged=sum(acknowledged.values()),
    )


class _List:
    """Records as zstd JSON lines in a temporary file, and the SHA-256 of the lines."""

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile()
        self._digest = hashlib.sha256()
        self._packed = zstandard.ZstdCompressor(level=ZSTD_LEVEL).stream_writer(self._file, closefd=False)
        return self

    def write(self, records: Sequence[msgspec.Struct]) -> None:
        lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        self._digest.update(lines)
        self._packed.write(lines)

    def close(self) -> str:
        """Ends the lines; gives their digest in hex."""
        self._packed.flush(zstandard.FLUSH_FRAME)
        return self._digest.hexdigest()

    @property
    def file(self) -> BinaryIO:
        return cast("BinaryIO", self._file)

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _publish_item(
    shard_id: str, outcomes: list[str], attempt: int, context: JobContext, *, partial: bool
) -> PublishItem:
    return PublishItem(
        tenant=context.manifest.tenant,
        job_key=context.manifest.job_key,
        attempt=attempt,
        shard_id=shard_id,
        outcomes=outcomes,
        partial=partial,
    )


def submissions_now(job_key: str, ledger: Ledger) -> tuple[SubmissionEntry, ...]:
    """All submissions of a job so far."""
    return tuple(_entry(row) for row in ledger.submissions(job_key))


def _entry(row: Submission) -> SubmissionEntry:
    bound = (row.provider_job_id,) if row.provider_job_id and row.lane != ON_DEMAND else ()
    done = row.state is SubmissionState.RECONCILED
    return SubmissionEntry(
        attempt=row.attempt,
        shard_id=row.shard_id,
        submission_key=row.submission_key,
        state=row.state.value,
        generation=row.generation,
        provider=row.provider,
        model=row.model,
        lane=row.lane,
        provider_jobs=row.earlier_jobs + bound + row.ghosts,
        records=row.input_records,
        refusal=row.refusal,
        outcomes=row.outcomes_key if done else "",
        counts=row.counts,
        tokens=row.tokens,
        duplicate_tokens=row.duplicate_tokens,
        price=row.price,
        cost_nano_usd=row.cost_nano_usd,
        costs=row.costs,
        duplicate_cost_nano_usd=row.duplicate_cost_nano_usd,
        unpriced=row.unpriced,
        anomalies=row.anomalies,
        unknown_codes=row.unknown_codes,
        submitted_at=row.submitted_at,
        terminal_at=row.terminal_at,
    )
