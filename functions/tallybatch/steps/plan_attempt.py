"""Prepare: the shards of an attempt. The first are the manifest's; later ones hold only the records that need it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tallybatch.contracts import AttemptPlan, JobInput, ShardItem
from tallybatch.domain import quotas
from tallybatch.domain.closure import Closure, OpenRecord
from tallybatch.domain.errors import Permanent
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.manifest import ShardEntry
from tallybatch.domain.records import decode_record, encode_record
from tallybatch.domain.shards import BYTES_PER_TOKEN, ShardFile, ShardLimits, ShardWriter, read_zstd_lines
from tallybatch.ports import Clock, Events, Formats, Ledger, Objects
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.job_sets import attempt_items, was_planned
from tallybatch.steps.reconcile_job import closure_after
from tallybatch.steps.rendering import Requests
from tallybatch.steps.transitions import advance_job


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    events: Events
    clock: Clock
    formats: Formats


def run(request: JobInput, ports: Ports) -> AttemptPlan:
    context = load_job(ports.objects, request.tenant, request.job_key)
    items_key, count = _plan(request, context, ports)
    job = advance_job(ports.ledger, ports.clock, request.job_key, JobState.SUBMITTING, attempt=request.attempt)
    if request.attempt == 1:
        ports.events.publish("JobStarted", {"job_key": job.job_key, "tenant": job.tenant, "expected": job.expected})
    return AttemptPlan(
        tenant=request.tenant,
        job_key=request.job_key,
        bucket=request.bucket,
        attempt=request.attempt,
        items_key=items_key,
        shard_count=count,
        max_parallel=context.spec.shards.max_parallel,
    )


def _plan(request: JobInput, context: JobContext, ports: Ports) -> tuple[str, int]:
    """The list of shards and its length. A plan that is there stays; a cancelled job gets none, so that a later run
    still knows what was never handed over."""
    objects, attempt = ports.objects, request.attempt
    items_key = context.keys.items(attempt)
    if objects.head(items_key) is None:
        job = ports.ledger.job(request.job_key)
        if job is not None and job.cancel_requested_at:
            items_key = context.keys.no_items(attempt)
            items: list[ShardItem] = []
        elif was_planned(objects, context.keys, before=attempt):
            items = _retry_items(context, attempt, ports)
        else:
            items = [_item(context, attempt, s.shard_id, s) for s in context.manifest.shards]
            _check_quota(items, ports.ledger)
        body = msgspec.json.encode([item.model_dump() for item in items])
        objects.put_once(items_key, body, content_type="application/json", retention=context.retention("results"))
    return items_key, len(msgspec.json.decode(objects.get(items_key)))


def _check_quota(items: list[ShardItem], ledger: Ledger) -> None:
    """A shard that no waiting would ever let through stops the job before anything is spent."""
    pool = ledger.quota_pool(items[0].provider) if items else None
    for item in items if pool is not None and pool.version else ():
        most = quotas.largest(pool, item.model, "tokens")
        if most is not None and item.tokens > most:
            raise Permanent(
                "a shard is larger than the quota for all shards together",
                where=f"job {item.job_key} shard {item.shard_id}",
                why=f"it has about {item.tokens} prompt tokens; the limit for {item.model} is {most}",
                do="give the spec a smaller shards.max_records or shards.max_bytes, or raise the limit with "
                f"`tallybatch quota set {item.provider} {item.model} --tokens N`; nothing was spent",
            )


def _item(context: JobContext, attempt: int, shard_id: str, shard: ShardEntry | ShardFile) -> ShardItem:
    return ShardItem(
        tenant=context.manifest.tenant,
        job_key=context.manifest.job_key,
        attempt=attempt,
        shard_id=shard_id,
        shard_sha256=shard.sha256,
        record_count=shard.record_count,
        provider=context.manifest.provider,
        model=context.manifest.model_resolved,
        tokens=shard.estimated_tokens,
        priority=context.spec.limits.priority,
    )


def _retry_items(context: JobContext, attempt: int, ports: Ports) -> list[ShardItem]:
    """Retry shards, merged over their parents; each line keeps its parent and the reason."""
    spec = context.spec
    closure = closure_after(attempt - 1, context, ports.objects, ports.ledger, ports.clock)
    most = quotas.largest(ports.ledger.quota_pool(spec.provider), spec.model_resolved, "tokens")
    max_bytes = spec.shards.max_bytes if most is None else min(spec.shards.max_bytes, most * BYTES_PER_TOKEN)
    limits = ShardLimits(spec.shards.max_records, max_bytes)
    with tempfile.TemporaryDirectory(prefix="tallybatch-") as folder:
        writer = ShardWriter(Path(folder), limits)
        requests = Requests(spec, ports.formats)
        for line, request_bytes in _retry_lines(closure, context, attempt, requests, ports.objects):
            writer.add(line, request_bytes)
        shards = writer.close()
        for shard in shards:
            _store(shard, context, ports.objects)
    retries = [_item(context, attempt, f"r{attempt}-{s.shard_id}", s) for s in shards]
    return retries + _resumed(closure, context, ports.objects)


def _resumed(closure: Closure, context: JobContext, objects: Objects) -> list[ShardItem]:
    """Shards that were lost while their submission was out go on as they are, under their own attempt."""
    unsettled = {(entry.attempt, entry.shard_id) for entry in closure.submissions if not entry.outcomes}
    return [
        item
        for earlier in sorted({number for number, _ in unsettled})
        for item in attempt_items(objects, context.keys, earlier)
        if (earlier, item.shard_id) in unsettled
    ]


def _store(shard: ShardFile, context: JobContext, objects: Objects) -> None:
    with shard.path.open("rb") as body:
        objects.put_once(context.keys.shard(shard.sha256), body, retention=context.retention("working"))


def _retry_lines(
    closure: Closure, context: JobContext, attempt: int, requests: Requests, objects: Objects
) -> Iterator[tuple[bytes, int]]:
    """Walk the open records and the manifest's shards side by side; both are in the same order."""
    decode: Any = msgspec.json.Decoder(OpenRecord).decode
    with objects.open(closure.open_key) as stream:
        waiting: dict[str, OpenRecord] = {}
        open_records = (decode(line) for line in read_zstd_lines(stream))
        upcoming: OpenRecord | None = next(open_records, None)
        for shard in context.manifest.shards:
            while upcoming is not None and upcoming.shard_id == shard.shard_id:
                waiting[upcoming.record_id] = upcoming
                upcoming = next(open_records, None)
            if waiting:
                yield from _lines_of(shard.sha256, waiting, context, attempt, requests, objects)
                waiting = {}


def _lines_of(
    sha256: str,
    wanted: dict[str, OpenRecord],
    context: JobContext,
    attempt: int,
    requests: Requests,
    objects: Objects,
) -> Iterator[tuple[bytes, int]]:
    with objects.open(context.keys.shard(sha256)) as stream:
        for line in read_zstd_lines(stream):
            record = decode_record(line)
            why = wanted.get(record.record_id)
            if why is None:
                continue
            retried = replace(
                record,
                tries=why.tries,
                attempt=attempt,
                parent_job_key=context.manifest.job_key,
                parent_shard_id=why.shard_id,
                retry_reason=why.reason,
                used=why.used,
                output_cap=why.output_cap,
                feedback=why.feedback,
            )
            yield encode_record(retried), len(requests.line(retried))
