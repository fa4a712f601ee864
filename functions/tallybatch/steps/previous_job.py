"""The job that was published before this one under the same spec, for comparison: nothing is decided by it."""

from __future__ import annotations

import json
from typing import Any

from tallybatch.domain.errors import NotFound
from tallybatch.domain.layout import JobKeys, ResultKeys, latest_key
from tallybatch.ports import Objects
from tallybatch.steps.job_context import JobContext

_TRIES = 5


def previous_report(context: JobContext, objects: Objects) -> dict[str, Any] | None:
    """Report of the job whose answers for the same file are current, else of the newest published under the spec;
    None if there is none."""
    manifest = context.manifest
    current = ResultKeys(manifest.tenant, manifest.spec, manifest.dataset_version).current
    sources = (_read(current, objects) or {}).get("sources") or {}
    for found in (sources.get(manifest.source.key), _read(latest_key(manifest.tenant, manifest.spec), objects)):
        if found and found["job_key"] != manifest.job_key and found["created_at"] <= manifest.created_at:
            return _read(JobKeys(manifest.tenant, found["job_key"]).report_json, objects)
    return None


def note_latest(context: JobContext, objects: Objects) -> None:
    """Remember a job as the newest that was published under its spec; an older one never takes its place. One that is
    lost only means that the next job is compared with an older one."""
    manifest = context.manifest
    key = latest_key(manifest.tenant, manifest.spec)
    entry = {"job_key": manifest.job_key, "created_at": manifest.created_at}
    for _ in range(_TRIES):
        info = objects.head(key)
        there = _read(key, objects) if info else None
        if there and (there["created_at"], there["job_key"]) >= (entry["created_at"], entry["job_key"]):
            return
        body = json.dumps(entry, indent=1).encode() + b"\n"
        etag = info.etag if info else None
        kept = context.retention("results")
        if objects.put_if_match(key, body, etag=etag, content_type="application/json", retention=kept):
            return


def _read(key: str, objects: Objects) -> dict[str, Any] | None:
    try:
        document = json.loads(objects.get(key))
    except (NotFound, ValueError):
        return None
    return document if isinstance(document, dict) else None
