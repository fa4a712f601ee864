"""Refused input: a report that names every bad line, a FAILED job, an event. Nothing spent, nothing lost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.ports import Clock, Events, Ledger, ObjectInfo, Objects
from tallybatch.report.build import refusal_report
from tallybatch.report.write import write_report


@dataclass(frozen=True, slots=True)
class Refusal:
    """`bad_lines` is a local file with one JSON object per problem; `problems` are the first of them."""

    tenant: str
    spec: str
    dataset_version: str
    job_key: str
    what: str
    where: str
    do: str
    bad_count: int
    by_code: dict[str, int]
    problems: tuple[Problem, ...]
    bad_lines: Path


def write_problems(path: Path, bad: BadInput) -> None:
    """The problems of a refusal in the shape of bad_lines.jsonl."""
    rows = [
        {"line": problem.line, "code": problem.code, "reason": problem.reason, "key": problem.key}
        for problem in bad.problems
    ]
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def _reason(refusal: Refusal) -> str:
    if refusal.bad_count == 1 and refusal.problems:
        return f"{refusal.what}: {refusal.problems[0]}"
    first = f"; first: {refusal.problems[0]}" if refusal.problems else ""
    return f"{refusal.what}: {refusal.bad_count:,} problems{first}"


def refuse(
    refusal: Refusal, source: ObjectInfo, objects: Objects, ledger: Ledger, events: Events, clock: Clock
) -> dict[str, Any]:
    keys = JobKeys(refusal.tenant, refusal.job_key)
    with refusal.bad_lines.open("rb") as body:
        objects.put_once(keys.bad_lines(), body, content_type="application/x-ndjson")
    now = clock.now()
    job = Job(
        job_key=refusal.job_key,
        tenant=refusal.tenant,
        spec=refusal.spec,
        dataset_version=refusal.dataset_version,
        state=JobState.FAILED,
        created_at=now,
        updated_at=now,
        source_uri=objects.uri(source.key),
        reason=_reason(refusal),
        report=objects.uri(keys.report_html),
        counts=dict.fromkeys(("succeeded", "reused", "failed", "missing", "unknown", "duplicate", "in_review"), 0),
    )
    stored = ledger.put_job(job, expected_version=None) or ledger.job(job.job_key) or job
    write_report(
        objects,
        keys,
        refusal_report(
            stored,
            what=refusal.what,
            where=refusal.where,
            do=refusal.do,
            bad_count=refusal.bad_count,
            by_code=refusal.by_code,
            problems=refusal.problems,
            bad_lines_uri=objects.uri(keys.bad_lines()),
        ),
    )
    events.publish(
        "JobFailed",
        {
            "job_key": job.job_key,
            "tenant": job.tenant,
            "spec": job.spec,
            "reason": refusal.what,
            "bad_lines": objects.uri(keys.bad_lines()),
            "bad_count": refusal.bad_count,
        },
    )
    return {"job_key": job.job_key, "state": JobState.FAILED.value}
