"""current.json of a dataset: for each dropped file the job whose results readers get, switched at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tallybatch.domain.certificate import from_bytes
from tallybatch.domain.closure import Closure
from tallybatch.domain.errors import LedgerBusy, NotClosed
from tallybatch.domain.layout import ResultKeys
from tallybatch.domain.rows import Job
from tallybatch.ports import Objects
from tallybatch.steps.certification import Certified, newest_certificate
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.publish_shard import Part
from tallybatch.steps.reconcile_job import read_closure

_TRIES = 20


def serve_again(job: Job, objects: Objects) -> None:
    """A completed job whose file was dropped once more: what was dropped in between is older now."""
    context = load_job(objects, job.tenant, job.job_key)
    key, data = newest_certificate(objects, context.keys)
    certificate = from_bytes(data, where=key)
    closure = read_closure(objects, context.keys, certificate.attempts)
    switch(Certified(key, certificate), parts_of(closure, context, objects), job, context, objects)


def parts_of(closure: Closure, context: JobContext, objects: Objects) -> list[Part]:
    """Raises `NotClosed` unless the parts hold exactly the accepted records."""
    decode = msgspec.json.Decoder(Part).decode
    parts = [
        decode(objects.get(context.keys.published(closure.attempt, shard.shard_id)))
        for shard in context.manifest.shards
    ]
    published = sum(part.records for part in parts)
    if published != closure.succeeded:
        raise NotClosed(
            f"the parts hold {published} records, {closure.succeeded} were accepted", where=f"job {closure.job_key}"
        )
    return [part for part in parts if part.records]


def switch(certified: Certified, parts: list[Part], job: Job, context: JobContext, objects: Objects) -> None:
    """Put this job's parts into current.json, for each file of its content: readers see the old set or the new one. A
    job for a newer state of the same file replaces the older one's, and a job's later attempt the earlier one's, never
    the other way round. Newer is what was dropped later, whichever event came first."""
    results = ResultKeys(job.tenant, job.spec, job.dataset_version)
    for _ in range(_TRIES):
        info = objects.head(results.current)
        current: dict[str, Any] = msgspec.json.decode(objects.get(results.current)) if info else {"sources": {}}
        sources: dict[str, Any] = current["sources"]
        newer = {
            place: entry
            for place, dropped_at in (job.places or {context.manifest.source.key: job.dropped_at}).items()
            for entry in [entry_of(certified, parts, context, objects, dropped_at=dropped_at)]
            if place not in sources or _age(sources[place]) < _age(entry)
        }
        if not newer:
            return
        sources.update(newer)
        body = msgspec.json.encode({"current_version": 1, "sources": dict(sorted(sources.items()))})
        body = msgspec.json.format(body, indent=1) + b"\n"
        etag = info.etag if info else None
        kept = context.retention("results")
        if objects.put_if_match(results.current, body, etag=etag, content_type="application/json", retention=kept):
            return
    raise LedgerBusy("current.json changed under every try", where=results.current)


def _age(entry: dict[str, Any]) -> tuple[float, float, str, int]:
    """S3 tells whole seconds: of two drops within one, the job that was prepared later counts."""
    return entry.get("dropped_at", 0), entry["created_at"], entry["job_key"], entry.get("attempt", 0)


def entry_of(
    certified: Certified, parts: Sequence[Part], context: JobContext, objects: Objects, *, dropped_at: float
) -> dict[str, Any]:
    """What readers find for a file of the job's content: but for the moment of its drop, the certificate tells it."""
    certificate = certified.certificate
    asked = {"closed": False, "partial": True, "requested_by": certificate.requested_by}
    return {
        "job_key": certificate.job_key,
        "created_at": context.manifest.created_at,
        "dropped_at": dropped_at,
        "attempt": certificate.attempts,
        **(asked if certificate.partial else {}),
        "certificate": objects.uri(certified.key),
        "certificate_sha256": certificate.sha256,
        "counts": {
            "expected": certificate.expected,
            "succeeded": certificate.succeeded,
            "reused": certificate.reused,
            "failed": sum(certificate.failed.values()),
        },
        "parts": [
            {"uri": objects.uri(part.key), "sha256": part.sha256, "bytes": part.bytes, "records": part.records}
            for part in parts
        ],
    }
