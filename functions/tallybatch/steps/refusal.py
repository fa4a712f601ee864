"""Refused input: a report that names every bad line, a FAILED job, an event. Nothing spent, nothing lost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tallybatch.domain.errors import BadInput, Conflict, Problem
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.ports import Clock, Events, Ledger, ObjectInfo, Objects
from tallybatch.report.build import refusal_report
from tallybatch.report.write import write_report
from tallybatch.steps.dropped_file import drop_version
from tallybatch.steps.transitions import change_job


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


def _reason(refusal: Refusal, where: str) -> str:
    if refusal.bad_count == 1 and refusal.problems:
        return f"{refusal.what}{where}: {refusal.problems[0]}"
    first = f"; first: {refusal.problems[0]}" if refusal.problems else ""
    return f"{refusal.what}{where}: {refusal.bad_count:,} problems{first}"


def refuse(
    refusal: Refusal, source: ObjectInfo, objects: Objects, ledger: Ledger, events: Events, clock: Clock
) -> dict[str, Any]:
    """The same file under the same spec may be refused again for another reason, say a golden file or a price: what is
    told is always the last one. The row comes last and names the drop, so that whoever finds it finds the report."""
    keys = JobKeys(refusal.tenant, refusal.job_key)
    with refusal.bad_lines.open("rb") as body:
        try:
            objects.put_once(keys.bad_lines(), body, content_type="application/x-ndjson")
        except Conflict:
            objects.put(keys.bad_lines(), body, content_type="application/x-ndjson")
    now = clock.now()
    where = f" in {refusal.where}" if refusal.where not in ("", source.key) else ""
    job = Job(
        job_key=refusal.job_key,
        tenant=refusal.tenant,
        spec=refusal.spec,
        dataset_version=refusal.dataset_version,
        state=JobState.FAILED,
        created_at=now,
        updated_at=now,
        source_uri=objects.uri(source.key),
        reason=_reason(refusal, where),
        report=objects.uri(keys.report_html),
        drop=drop_version(source),
        counts=dict.fromkeys(("succeeded", "reused", "failed", "missing", "unknown", "duplicate", "in_review"), 0),
    )
    write_report(
        objects,
        keys,
        refusal_report(
            job,
            what=refusal.what,
            where=refusal.where,
            do=refusal.do,
            bad_count=refusal.bad_count,
            by_code=refusal.by_code,
            problems=refusal.problems,
            bad_lines_uri=objects.uri(keys.bad_lines()),
        ),
    )
    if ledger.put_job(job, expected_version=None) is None:
        change_job(ledger, job.job_key, lambda row: _refused_again(row, job))
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


def _refused_again(row: Job, now: Job) -> Job | None:
    if (row.drop, row.reason) == (now.drop, now.reason):
        return None
    return replace(row, drop=now.drop, reason=now.reason, updated_at=now.updated_at)
