"""Prepare: the shards of an attempt. The first are the manifest's; later ones hold only the records that need it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tallybatch.contracts import AttemptPlan, JobInput, ShardItem
from tallybatch.domain import quotas
from tallybatch.domain.closure import HELD, Closure, OpenRecord
from tallybatch.domain.errors import Permanent
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.manifest import ShardEntry
from tallybatch.domain.records import ShardRecord, decode_record, encode_record
from tallybatch.domain.rows import Job
from tallybatch.domain.shard_tail import even_tail
from tallybatch.domain.shards import BYTES_PER_TOKEN, ShardFile, ShardLimits, ShardWriter, read_zstd_lines
from tallybatch.domain.spec import MAX_BYTES, MIN_RECORDS
from tallybatch.ports import Clock, Events, Formats, Ledger, Objects
from tallybatch.steps.canary_shards import CANARY, canary_lines, next_wave, wave
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.job_sets import attempt_items, was_planned
from tallybatch.steps.lane_items import in_lanes
from tallybatch.steps.reconcile_job import closure_after
from tallybatch.steps.rendering import Requests
from tallybatch.steps.review_decisions import carry_out, carry_out_late
from tallybatch.steps.transitions import advance_job


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    events: Events
    clock: Clock
    formats: Formats
    min_records: Mapping[str, int] = field(default_factory=lambda: MIN_RECORDS)
    """Records that a provider job must have, by provider."""


def run(request: JobInput, ports: Ports) -> AttemptPlan:
    context = load_job(ports.objects, request.tenant, request.job_key)
    items_key, items = _plan(request, context, ports)
    job = advance_job(ports.ledger, ports.clock, request.job_key, JobState.SUBMITTING, attempt=request.attempt)
    if request.attempt == 1 and not request.next_shard:
        ports.events.publish("JobStarted", {"job_key": job.job_key, "tenant": job.tenant, "expected": job.expected})
    key, count, following = wave(request, items_key, items, context, job, objects=ports.objects, ledger=ports.ledger)
    return AttemptPlan(
        tenant=request.tenant,
        job_key=request.job_key,
        bucket=request.bucket,
        attempt=request.attempt,
        items_key=key,
        shard_count=count,
        max_parallel=context.spec.shards.max_parallel,
        next_shard=following,
        wave=next_wave(request.wave) if following else 1,
    )


def _plan(request: JobInput, context: JobContext, ports: Ports) -> tuple[str, list[ShardItem]]:
    """The list of shards. A plan that is there stays; a job that is to end gets none, so that a later run still knows
    what was never handed over. An attempt of decisions has nothing to hand over either; where its run failed before it
    came so far, the next run carries the decisions out before anything else."""
    objects, attempt = ports.objects, request.attempt
    items_key = context.keys.items(attempt)
    job = ports.ledger.job(request.job_key)
    review = job.review if job is not None else None
    if review is not None and review.attempt < attempt:
        carry_out_late(review, context, objects, ports.ledger)
    if review is not None and review.attempt == attempt:
        carry_out(review, context, objects, ports.ledger)
        items_key = context.keys.no_items(attempt)
        objects.put_once(items_key, b"[]", content_type="application/json", retention=context.retention("results"))
    elif objects.head(items_key) is None:
        if job is not None and (job.cancel_requested_at or job.partial_requested_at):
            items_key = context.keys.no_items(attempt)
            items: list[ShardItem] = []
        elif was_planned(objects, context.keys, before=attempt):
            held_too = job is None or not context.in_canary(job, attempt)
            before = closure_after(attempt - 1, context, objects, ports.ledger, ports.clock)
            items = _retry_items(before, context, attempt, ports, held_too=held_too)
            items = _in_lanes(items, context, attempt, before, job, ports)
        elif context.has_canary:
            items = _in_lanes(_canary_items(context, attempt, ports), context, attempt, None, job, ports)
        else:
            items = [_item(context, attempt, s.shard_id, s) for s in context.manifest.shards]
            items = _in_lanes(items, context, attempt, None, job, ports)
            _check_quota(items, ports.ledger)
        body = msgspec.json.encode([item.model_dump() for item in items])
        objects.put_once(items_key, body, content_type="application/json", retention=context.retention("results"))
    return items_key, [ShardItem.model_validate(item) for item in msgspec.json.decode(objects.get(items_key))]


def _in_lanes(
    items: list[ShardItem], context: JobContext, attempt: int, before: Closure | None, job: Job | None, ports: Ports
) -> list[ShardItem]:
    return in_lanes(
        items,
        context,
        ports.objects,
        attempt=attempt,
        now=ports.clock.now(),
        deadline_at=job.deadline_at if job is not None else 0,
        min_records=ports.min_records,
        before=before,
    )


def _check_quota(items: list[ShardItem], ledger: Ledger) -> None:
    """A shard that no waiting would ever let through stops the job before anything is spent."""
    if not items:
        return
    pool = ledger.quota_pool(items[0].provider)
    for item in items if pool.version else ():
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
        provider=context.spec.provider,
        model=context.spec.model_resolved,
        tokens=shard.estimated_tokens,
        priority=context.spec.limits.priority,
    )


def _canary_items(context: JobContext, attempt: int, ports: Ports) -> list[ShardItem]:
    with tempfile.TemporaryDirectory(prefix="tallybatch-") as folder:
        canary = _Shards(context, attempt, f"{CANARY}{attempt}", Path(folder), ports)
        for line, request_bytes in canary_lines(context, attempt, canary.requests, ports.objects):
            canary.writer.add(line, request_bytes)
        return canary.stored()


def _retry_items(
    closure: Closure, context: JobContext, attempt: int, ports: Ports, *, held_too: bool
) -> list[ShardItem]:
    """Retry shards, merged over their parents, for each target by itself; each line keeps its parent and the reason.
    `held_too`: with the records that were held back while the canary ran."""
    with tempfile.TemporaryDirectory(prefix="tallybatch-") as folder:
        shards = [_Shards(context, attempt, f"r{attempt}", Path(folder), ports)]
        for place in range(1, len(context.spec.targets)):
            within = Path(folder, f"fallback-{place}")
            within.mkdir()
            shards.append(_Shards(context.at(place), attempt, f"r{attempt}-f{place}", within, ports))
        for record in _retry_records(closure, context, attempt, ports.objects, held_too=held_too):
            shards[record.used.targets].add(record)
        return [item for target in shards for item in target.stored()] + _resumed(closure, context, ports.objects)


class _Shards:
    """The shards of an attempt at one target; none is larger than its quota for all of them."""

    def __init__(self, target: JobContext, attempt: int, prefix: str, folder: Path, ports: Ports) -> None:
        self._target, self._attempt, self._prefix, self._folder, self._ports = target, attempt, prefix, folder, ports
        spec = target.spec
        most = quotas.largest(ports.ledger.quota_pool(spec.provider), spec.model_resolved, "tokens")
        limits = (spec.shards.max_bytes, MAX_BYTES[spec.provider], *(() if most is None else (most * BYTES_PER_TOKEN,)))
        self._max_bytes = min(limits)
        self.writer = ShardWriter(folder, ShardLimits(spec.shards.max_records, self._max_bytes))
        self.requests = Requests(spec, ports.formats)

    def add(self, record: ShardRecord) -> None:
        self.writer.add(encode_record(record), len(self.requests.line(record)))

    def stored(self) -> list[ShardItem]:
        shards = even_tail(
            self.writer.close(),
            self._folder,
            least=self._ports.min_records.get(self._target.spec.provider, 1),
            max_bytes=self._max_bytes,
            measure=lambda line: len(self.requests.line(decode_record(line))),
        )
        for shard in shards:
            _store(shard, self._target, self._ports.objects)
        return [_item(self._target, self._attempt, f"{self._prefix}-{s.shard_id}", s) for s in shards]


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


def _retry_records(
    closure: Closure, context: JobContext, attempt: int, objects: Objects, *, held_too: bool
) -> Iterator[ShardRecord]:
    """Walk the open records and the manifest's shards side by side; both are in the same order."""
    decode: Any = msgspec.json.Decoder(OpenRecord).decode
    with objects.open(closure.open_key) as stream:
        waiting: dict[str, OpenRecord] = {}
        open_records = (record for record in map(decode, read_zstd_lines(stream)) if held_too or record.reason != HELD)
        upcoming: OpenRecord | None = next(open_records, None)
        for shard in context.manifest.shards:
            while upcoming is not None and upcoming.shard_id == shard.shard_id:
                waiting[upcoming.record_id] = upcoming
                upcoming = next(open_records, None)
            if waiting:
                yield from _records_of(shard.sha256, waiting, context, attempt, objects)
                waiting = {}


def _records_of(
    sha256: str, wanted: dict[str, OpenRecord], context: JobContext, attempt: int, objects: Objects
) -> Iterator[ShardRecord]:
    with objects.open(context.keys.shard(sha256)) as stream:
        for line in read_zstd_lines(stream):
            record = decode_record(line)
            why = wanted.get(record.record_id)
            if why is None:
                continue
            yield replace(
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
