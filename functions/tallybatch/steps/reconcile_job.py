"""Reconcile: fold every attempt's outcomes into the job's sets, and decide: closed, once more, or partial."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, cast

import msgspec
import zstandard

from tallybatch.contracts import JobInput, PublishItem, ReconcileReply
from tallybatch.domain.closure import Closure, Sets, SubmissionEntry, fold_shard
from tallybatch.domain.errors import Conflict, ProviderRefused
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.rows import Submission
from tallybatch.domain.shards import ZSTD_LEVEL
from tallybatch.ports import Clock, Ledger, Objects
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.job_sets import attempt_rows, record_ids
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
        request.attempt, context, ports.objects, ports.ledger, ports.clock, deadline_at=job.deadline_at
    )
    _stop_if_nothing_was_taken(closure)
    reply = ReconcileReply(
        tenant=request.tenant,
        job_key=request.job_key,
        bucket=request.bucket,
        attempt=request.attempt,
        verdict="closed" if closure.closed else "partial",
        items_key=closure.publish_key,
        max_parallel=max(8, context.spec.shards.max_parallel),
    )
    if job.cancel_requested_at and not closure.closed:
        return reply.model_copy(update={"verdict": "cancelled"})
    if closure.open and not closure.overdue:
        patient = closure.open == closure.waiting + closure.unsettled
        wait_s = context.retry_policy.wait_s(request.attempt, only_waiting=patient)
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
) -> Closure:
    """The closure of an attempt, made now if the attempt ended before it had one."""
    if objects.head(context.keys.closure(attempt)) is None:
        _reconcile(attempt, deadline_at, context, objects, ledger, clock)
    return read_closure(objects, context.keys, attempt)


def read_closure(objects: Objects, keys: JobKeys, attempt: int) -> Closure:
    return msgspec.json.decode(objects.get(keys.closure(attempt)), type=Closure)


def _stop_if_nothing_was_taken(closure: Closure) -> None:
    """A key that is wrong, or a model that is not there: every shard was refused, so another attempt is no use."""
    refusals = {entry.refusal for entry in closure.submissions}
    if closure.succeeded == 0 and refusals and "" not in refusals:
        raise ProviderRefused(
            "the provider refused every shard",
            where=f"job {closure.job_key}",
            why=sorted(refusals)[0],
            do="mend the cause and drop the file again; nothing was spent",
        )


def _reconcile(
    attempt: int, deadline_at: float, context: JobContext, objects: Objects, ledger: Ledger, clock: Clock
) -> None:
    """Write what is open and what would be published, each under its own hash, and then the closure that names them.
    Of several that race, the first closure stays."""
    now = clock.now()
    keys = context.keys
    submissions = tuple(_entry(row) for row in ledger.submissions(context.manifest.job_key))
    rows = [attempt_rows(objects, keys, number, submissions) for number in range(1, attempt + 1)]
    sets = Sets()
    publish: list[PublishItem] = []
    overdue = now >= deadline_at
    with tempfile.TemporaryFile() as file:
        digest = hashlib.sha256()
        with zstandard.ZstdCompressor(level=ZSTD_LEVEL).stream_writer(file, closefd=False) as packed:
            for shard in context.manifest.shards:
                ids = record_ids(objects, keys, shard.sha256)
                still_open, sources = fold_shard(sets, shard.shard_id, ids, rows, context.retry_policy, overdue=overdue)
                lines = b"".join(msgspec.json.encode(record) + b"\n" for record in still_open)
                digest.update(lines)
                packed.write(lines)
                publish.append(_publish_item(shard.shard_id, sources, attempt, context))
        open_key = keys.open_records(attempt, digest.hexdigest())
        objects.put_once(open_key, cast("BinaryIO", file), retention=context.retention("working"))
    items = msgspec.json.encode([item.model_dump() for item in publish])
    publish_key = keys.publish_items(attempt, sha256_hex(items))
    objects.put_once(publish_key, items, content_type="application/json", retention=context.retention("results"))
    sets.unknown += sum(row.anomalies.get("unknown", 0) for row in submissions)
    sets.unknown += sum(stream.left_over for stream in rows)
    closure = Closure(
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
    )
    body = msgspec.json.format(msgspec.json.encode(closure), indent=1)
    with suppress(Conflict):
        objects.put_once(
            keys.closure(attempt), body, content_type="application/json", retention=context.retention("results")
        )


def _publish_item(shard_id: str, outcomes: list[str], attempt: int, context: JobContext) -> PublishItem:
    manifest = context.manifest
    return PublishItem(
        tenant=manifest.tenant, job_key=manifest.job_key, attempt=attempt, shard_id=shard_id, outcomes=outcomes
    )


def _entry(row: Submission) -> SubmissionEntry:
    bound = (row.provider_job_id,) if row.provider_job_id else ()
    done = row.state is SubmissionState.RECONCILED
    return SubmissionEntry(
        attempt=row.attempt,
        shard_id=row.shard_id,
        submission_key=row.submission_key,
        state=row.state.value,
        generation=row.generation,
        provider=row.provider,
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
        submitted_at=row.submitted_at,
        terminal_at=row.terminal_at,
    )
