"""Discover, Prepare, Validate: a dropped file becomes shards, a manifest and a job, or a refusal that names each line.

Order matters: everything under jobs/ is written before the job's row, and the row before the execution starts, so
that an event that is delivered again after a crash finds the work done so far and goes on from there.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tallybatch.contracts import S3Event
from tallybatch.domain import identity
from tallybatch.domain.canary import canary_size
from tallybatch.domain.errors import BadInput, Conflict, NotFound, Problem
from tallybatch.domain.input_lines import MAX_LINE_BYTES
from tallybatch.domain.layout import INBOX, JobKeys, parse_inbox_key, spec_key, tenant_of
from tallybatch.domain.lifecycle import JOB_REOPENABLE, JobState
from tallybatch.domain.lines import newline_blocks
from tallybatch.domain.manifest import Manifest, SourceSnapshot, describe
from tallybatch.domain.plan import JobPlan, plan_of
from tallybatch.domain.preparation import Preparation, Quarantine, Reader, prepare
from tallybatch.domain.records import NativeReader, RecordReader
from tallybatch.domain.rows import Job
from tallybatch.domain.shards import ShardLimits
from tallybatch.domain.source_stream import SourceStream
from tallybatch.domain.spec import MIN_RECORDS, NATIVE_KEYS, Spec
from tallybatch.ports import Clock, Events, Executions, Formats, Ledger, ObjectInfo, Objects
from tallybatch.steps.current_results import serve_again
from tallybatch.steps.dropped_file import Drop, is_stale, parse_spec_of, read_spec
from tallybatch.steps.even_shards import evened
from tallybatch.steps.job_context import retention
from tallybatch.steps.job_prices import job_prices, price_book, refuse_for_money
from tallybatch.steps.refusal import Refusal, refuse, write_problems
from tallybatch.steps.rendering import Requests
from tallybatch.steps.reopening import next_run, start
from tallybatch.steps.run_terms import pin_golden, pin_spec, require_same_use
from tallybatch.steps.transitions import advance_job, change_job


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    executions: Executions
    events: Events
    clock: Clock
    formats: Formats
    min_records: Mapping[str, int] = field(default_factory=lambda: MIN_RECORDS)
    """Records that a provider job must have, by provider: a quota of the account, so the stack may set it."""


def run(event: S3Event, ports: Ports) -> dict[str, Any]:
    """Returns `{"job_key", "state"}`, or `{"ignored": why}` for an event that is nobody's file."""
    dropped = event.detail.object
    key = dropped.key
    if event.detail.bucket.name != ports.objects.bucket or not key.startswith(INBOX) or key.endswith("/"):
        return {"ignored": "not a file in the inbox"}
    info = ports.objects.head(key, version_id=dropped.version_id)
    if info is None:
        return {"ignored": "the object is gone"}
    if is_stale(dropped, info):
        return {"ignored": "the object has been replaced; its own event follows"}
    with tempfile.TemporaryDirectory(prefix="tallybatch-") as folder:
        spec_bytes = b""
        try:
            place = parse_inbox_key(key)
            spec_bytes = read_spec(ports.objects, place)
            drop = Drop(place, info, parse_spec_of(spec_bytes, place), spec_bytes)
            return _prepare_job(drop, Path(folder), ports)
        except BadInput as bad:
            return _refuse_unread(info, bad, spec_bytes, Path(folder), ports)


def _refuse_unread(info: ObjectInfo, bad: BadInput, spec_bytes: bytes, folder: Path, ports: Ports) -> dict[str, Any]:
    """Refuse for a reason outside the file's lines: its place, its spec, or its prompt's version."""
    parts = info.key.removeprefix(INBOX).split("/")
    tenant = tenant_of(info.key)
    with ports.objects.open(info.key, version_id=info.version_id, etag=info.etag) as stream:
        source = SourceStream(stream, gzipped=False)
        source.drain()
    job_key = identity.refused_job_key(
        tenant=tenant, source_key=info.key, source_sha256=source.sha256, spec_digest=identity.sha256_hex(spec_bytes)
    )
    bad_lines = folder / "refusal.jsonl"
    write_problems(bad_lines, bad)
    by_code = Counter(problem.code for problem in bad.problems)
    refusal = Refusal(
        tenant=tenant,
        spec=parts[1] if len(parts) == 4 else "",
        dataset_version=parts[2] if len(parts) == 4 else "",
        job_key=job_key,
        what=bad.what,
        where=bad.where,
        do=bad.do,
        bad_count=len(bad.problems),
        by_code=dict(by_code),
        problems=bad.problems,
        bad_lines=bad_lines,
    )
    return refuse(refusal, info, ports.objects, ports.ledger, ports.events, ports.clock)


def _prepare_job(drop: Drop, folder: Path, ports: Ports) -> dict[str, Any]:
    spec, place = drop.spec, drop.place
    for target in spec.targets[1:]:
        Requests(target, ports.formats)  # raises for settings that its requests cannot carry
    if "inbox" in spec.retention.model_fields_set:
        ports.objects.retain(drop.info.key, retention(spec, "inbox"), version_id=drop.info.version_id)
    prepared, source = _read_source(drop, folder, None, ports)
    if prepared.bad_count and spec.input.on_bad_line == "quarantine" and not prepared.unusable:
        second = folder / "good"
        second.mkdir()
        with closing(Quarantine(prepared, second)) as quarantine:
            good, source = _read_source(drop, second, quarantine, ports)
        if good.records:
            return _accept(drop, good, source, quarantine.bad_lines, ports)
    if prepared.bad_count:
        job_key = identity.refused_job_key(
            tenant=place.tenant, source_key=place.key, source_sha256=source.sha256, spec_digest=drop.spec_digest
        )
        refusal = Refusal(
            tenant=place.tenant,
            spec=place.spec,
            dataset_version=place.dataset_version,
            job_key=job_key,
            what="the file has bad lines",
            where=place.key,
            do="mend the lines and drop the file again; nothing was spent",
            bad_count=prepared.bad_count,
            by_code=prepared.bad_by_code,
            problems=prepared.problems,
            bad_lines=prepared.bad_lines,
        )
        return refuse(refusal, drop.info, ports.objects, ports.ledger, ports.events, ports.clock)
    return _accept(drop, prepared, source, None, ports)


def _read_source(
    drop: Drop, folder: Path, quarantine: Quarantine | None, ports: Ports
) -> tuple[Preparation, SourceStream]:
    info, spec = drop.info, drop.spec
    reader = record_reader(spec, drop.place.tenant, ports.formats)
    limits = ShardLimits(spec.shards.max_records, spec.shards.max_bytes)
    with ports.objects.open(info.key, version_id=info.version_id, etag=info.etag) as stream:
        source = SourceStream(stream, gzipped=drop.place.gzipped)
        prepared = prepare(
            newline_blocks(source.chunks(), cut_at=MAX_LINE_BYTES),
            reader=reader,
            limits=limits,
            folder=folder,
            quarantine=quarantine,
            keep_raw=spec.input.on_bad_line == "quarantine",
        )
        source.drain()
    shards = evened(prepared.shards, spec, folder, ports.formats)
    return dataclasses.replace(prepared, shards=shards), source


def record_reader(spec: Spec, tenant: str, formats: Formats) -> Reader:
    """What makes a record of each line of a file that is meant for this spec."""
    requests = Requests(spec, formats)
    if spec.is_native:
        return NativeReader(
            id_field=NATIVE_KEYS[spec.input.format],
            identity=spec.identity(tenant),
            problem=requests.format.native_problem,
            measure=requests.measure,
        )
    return RecordReader(
        key=spec.input.key,
        fields=spec.input.fields,
        source_version=spec.input.source_version or "",
        identity=spec.identity(tenant),
        measure=requests.measure,
        around=requests.around(spec.input.fields),
    )


def _accept(
    drop: Drop, prepared: Preparation, source: SourceStream, bad_lines: Path | None, ports: Ports
) -> dict[str, Any]:
    least = ports.min_records.get(drop.spec.provider, 1)
    if "on_demand" in (drop.spec.lane, drop.spec.retry.small_set):
        least = 1
    if prepared.records < least:
        raise _too_few(drop, prepared.records, least)
    canary = drop.spec.canary
    snapshot = SourceSnapshot(
        bucket=ports.objects.bucket,
        key=drop.info.key,
        version_id=drop.info.version_id,
        size=source.size,
        sha256=source.sha256,
        lines=prepared.lines,
        quarantined_lines=prepared.lines - prepared.records,
    )
    prices = job_prices(drop.spec, price_book(ports.objects, drop.place.tenant), at=ports.clock.now())
    manifest = describe(
        drop.spec,
        drop.place,
        snapshot,
        prepared.shards,
        prices=prices,
        spec_digest=drop.spec_digest,
        created_at=ports.clock.now(),
        created_by="build_manifest",
        canary_records=canary_size(canary.records, prepared.records, least) if canary else 0,
    )
    keys = JobKeys(manifest.tenant, manifest.job_key)
    job = ports.ledger.job(manifest.job_key)
    if job is not None and not job.dry_run:
        with suppress(NotFound):  # retention has removed it
            require_same_use(manifest, keys, ports.objects)
    if job is None or (job.dry_run and not drop.is_dry):
        refuse_for_money(drop.spec, prices, _plan(manifest, drop, ports), where=drop.place.key)
        golden_sha256 = pin_golden(drop.spec, prepared.shards, keys, ports.objects)
        manifest = manifest.model_copy(update={"golden_sha256": golden_sha256})
        _pin_prompt(drop, ports.ledger)
        for shard in prepared.shards:
            with shard.path.open("rb") as body:
                ports.objects.put_once(keys.shard(shard.sha256), body, retention=retention(drop.spec, "working"))
        if bad_lines:
            with bad_lines.open("rb") as body:
                ports.objects.put(keys.bad_lines(), body, content_type="application/x-ndjson")
        job = _create(manifest, drop, keys, ports)
        if drop.info.key not in job.places:  # another file of the same content was at work at the same time
            job = change_job(ports.ledger, job.job_key, lambda row: _dropped_again(row, drop))
    elif drop.is_dry:
        if job.dry_run:
            _put_plan(manifest, drop, keys, ports)
    elif _reopens(drop, job):
        golden_sha256 = pin_golden(drop.spec, prepared.shards, keys, ports.objects)
        pin_spec(drop.spec, drop.spec_bytes, keys, ports.objects)
        job = change_job(
            ports.ledger, job.job_key, lambda ended: _reopened(ended, drop, golden_sha256, ports.clock.now())
        )
    else:
        job = change_job(ports.ledger, job.job_key, lambda row: _dropped_again(row, drop))
        if job.state is JobState.COMPLETED and job.places.get(drop.info.key) == drop.info.last_modified:
            serve_again(job, ports.objects)
    if job.state in (JobState.CREATED, JobState.VALIDATED):
        job = advance_job(ports.ledger, ports.clock, job.job_key, JobState.VALIDATED, attempt=job.attempt)
        if job.dry_run:
            return {"job_key": job.job_key, "state": job.state.value, "dry_run": True}
        start(job, ports.objects.bucket, ports.executions)
    return {"job_key": job.job_key, "state": job.state.value}


def _too_few(drop: Drop, records: int, least: int) -> BadInput:
    provider = drop.spec.provider
    reason = f"{provider} takes jobs of at least {least} records; this file has {records}"
    return BadInput(
        "the file has too few records",
        [Problem(reason, code="below_minimum")],
        where=drop.place.key,
        do="drop a larger file, or set retry.small_set: on_demand in the spec; nothing was spent",
    )


def _reopened(job: Job, drop: Drop, golden_sha256: str, now: float) -> Job | None:
    """The next run of a job that ended without completing: only what is open goes on, and nothing is paid again."""
    if not _reopens(drop, job):
        return None
    return next_run(
        job,
        now=now,
        deadline_s=drop.spec.limits.deadline.total_seconds(),
        spec_digest=drop.spec_digest,
        golden_sha256=golden_sha256,
        drop=drop.version,
        dropped_at=drop.info.last_modified,
        places=_places(drop, job),
    )


def _dropped_again(job: Job, drop: Drop) -> Job | None:
    """A file that becomes again what it was, of all states of it this one is the newest now; or another file of the
    same content."""
    if job.cancel_requested_at:
        return None
    again = replace(job, places=_places(drop, job))
    if _is_later(drop, job):
        again = replace(again, drop=drop.version, dropped_at=drop.info.last_modified)
    return again if again != job else None


def _places(drop: Drop, job: Job) -> dict[str, float]:
    key, at = drop.info.key, drop.info.last_modified
    return {**job.places, key: max(at, job.places.get(key, at))}


def _reopens(drop: Drop, job: Job) -> bool:
    return job.state in JOB_REOPENABLE and _is_later(drop, job)


def _is_later(drop: Drop, job: Job) -> bool:
    """Not the drop that the job has seen, nor an earlier one whose event is late."""
    return job.drop != drop.version and drop.info.last_modified >= job.dropped_at


def _create(manifest: Manifest, drop: Drop, keys: JobKeys, ports: Ports) -> Job:
    """Write spec, manifest and row. Of several that race with the same content, the first one's manifest stays; only
    those of a dry run make room, for nothing was done by them."""
    tag = retention(drop.spec, "results")
    dry = ports.ledger.job(manifest.job_key)
    if dry is not None and dry.dry_run:
        ports.objects.put(keys.spec, drop.spec_bytes, content_type="application/yaml", retention=tag)
        ports.objects.put(keys.manifest, manifest.to_bytes(), content_type="application/json", retention=tag)
    else:
        _put_first(ports.objects, keys.spec, drop.spec_bytes, "application/yaml", tag)
        _put_first(ports.objects, keys.manifest, manifest.to_bytes(), "application/json", tag)
    _put_plan(manifest, drop, keys, ports)
    pin_spec(drop.spec, drop.spec_bytes, keys, ports.objects)
    stored = require_same_use(manifest, keys, ports.objects)
    deadline_s = drop.spec.limits.deadline.total_seconds()
    job = Job(
        job_key=stored.job_key,
        tenant=stored.tenant,
        spec=stored.spec,
        dataset_version=stored.dataset_version,
        state=JobState.CREATED,
        created_at=stored.created_at,
        updated_at=ports.clock.now(),
        source_uri=ports.objects.uri(stored.source.key),
        provider=stored.provider,
        model_resolved=stored.model_resolved,
        expected=stored.expected_record_count,
        shard_count=len(stored.shards),
        deadline_at=stored.created_at + deadline_s,
        execution_name=identity.execution_name(stored.job_key, 1),
        spec_digest=drop.spec_digest,
        golden_sha256=manifest.golden_sha256,
        drop=drop.version,
        dropped_at=drop.info.last_modified,
        places={drop.info.key: drop.info.last_modified},
        dry_run=drop.is_dry,
    )
    created = ports.ledger.put_job(job, expected_version=None) or ports.ledger.job(job.job_key)
    assert created is not None  # noqa: S101 - rows are never deleted
    if created.dry_run and not drop.is_dry:
        earnest = replace(job, version=created.version)
        return change_job(
            ports.ledger, job.job_key, lambda row: replace(earnest, version=row.version) if row.dry_run else None
        )
    return created


def _put_plan(manifest: Manifest, drop: Drop, keys: JobKeys, ports: Ports) -> None:
    """What the job would take; the newest drop's, as long as none was in earnest."""
    body, kept = _plan(manifest, drop, ports).to_bytes(), retention(drop.spec, "results")
    ports.objects.put(keys.plan, body, content_type="application/json", retention=kept)


def _plan(manifest: Manifest, drop: Drop, ports: Ports) -> JobPlan:
    return plan_of(manifest, drop.spec, syntax_bytes=Requests(drop.spec, ports.formats).syntax_bytes)


def _put_first(objects: Objects, key: str, body: bytes, content_type: str, retention: str) -> None:
    try:
        objects.put_once(key, body, content_type=content_type, retention=retention)
    except Conflict:
        return


def _pin_prompt(drop: Drop, ledger: Ledger) -> None:
    """A label is bound to the content it first had; a dry run only looks."""
    spec = drop.spec
    if spec.prompt is None:
        return
    ours = spec.prompt_content_digest
    label = f"{drop.place.tenant}#{drop.place.spec}#{spec.prompt.version}"
    stored = ledger.pinned("PROMPT", label) if drop.is_dry else ledger.pin("PROMPT", label, ours)
    if stored not in ("", ours):
        reason = f"version {spec.prompt.version!r} has digest {stored[:16]} already; this prompt has {ours[:16]}"
        raise BadInput(
            "a prompt version was changed",
            [Problem(reason, key="prompt.version", code="prompt_conflict")],
            where=spec_key(drop.place.tenant, drop.place.spec),
            do="give the changed prompt a new version",
        )
