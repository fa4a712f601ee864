"""Real jobs, manifests and closures from which reports are made in tests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from tallybatch.domain.closure import Closure, SubmissionEntry
from tallybatch.domain.errors import Problem
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.manifest import Manifest, ShardEntry, SourceSnapshot
from tallybatch.domain.rows import Job
from tallybatch.report.build import Report, failure_report, job_report, refusal_report

Maker = Callable[[], Report]
T0 = 1772620500.0
"""2026-03-04T10:35:00Z."""
BUCKET = "tallybatch-data"
SOURCE = "inbox/acme/film-genre/2026-03-04/movies.jsonl"
RESULTS = f"s3://{BUCKET}/results/acme/film-genre/2026-03-04/current.json"


def digest(of: str) -> str:
    return hashlib.sha256(of.encode()).hexdigest()


JOB_KEY = digest("job")


def job(state: JobState = JobState.RECONCILING, **changes: Any) -> Job:
    fields: dict[str, Any] = {
        "job_key": JOB_KEY,
        "tenant": "acme",
        "spec": "film-genre",
        "dataset_version": "2026-03-04",
        "state": state,
        "created_at": T0 - 42,
        "updated_at": T0 + 9000,
        "source_uri": f"s3://{BUCKET}/{SOURCE}",
        "provider": "openai",
        "model_resolved": "gpt-5-mini-2025-08-07",
        "expected": 3201,
        "shard_count": 4,
        "deadline_at": T0 + 172800,
    }
    return Job(**{**fields, **changes})


def manifest(**changes: Any) -> Manifest:
    shards = tuple(
        ShardEntry(shard_id=shard_id(number), sha256=digest(str(number)), record_count=800, bytes=9, estimated_tokens=9)
        for number in range(4)
    )
    fields: dict[str, Any] = {
        "job_key": JOB_KEY,
        "tenant": "acme",
        "spec": "film-genre",
        "dataset_version": "2026-03-04",
        "purpose": "catalogue",
        "data_class": "internal",
        "provider": "openai",
        "endpoint": "/v1/responses",
        "model_alias": "gpt-5-mini",
        "model_resolved": "gpt-5-mini-2025-08-07",
        "prompt_version": "genre-v1@1f2e3d4c",
        "prompt_digest": digest("prompt"),
        "system_digest": digest("system"),
        "tool_schema_digest": "",
        "generation_config_hash": digest("generation"),
        "model_config_version": digest("config"),
        "schema_version": "GenreV1",
        "schema_digest": digest("schema"),
        "source": SourceSnapshot(
            bucket=BUCKET, key=SOURCE, version_id="v-7", size=1483920, sha256=digest("source"), lines=3201
        ),
        "input_manifest_hash": digest("input"),
        "expected_record_count": 3201,
        "shards": shards,
        "spec_digest": digest("spec"),
        "retention": {},
        "owner": "data-team",
        "cost_center": "4711",
        "limits": {},
        "created_at": T0 - 42,
        "created_by": "build_manifest",
    }
    return Manifest(**{**fields, **changes})


def shard_id(number: int) -> str:
    return f"{number:05d}-{digest(str(number))[:8]}"


def entry(attempt: int, number: int, counts: dict[str, int], **changes: Any) -> SubmissionEntry:
    """A reconciled submission; `changes` replace fields of it."""
    records = sum(count for name, count in counts.items() if name not in ("reused", "waiting"))
    key = digest(f"{attempt}/{number}")
    fields: dict[str, Any] = {
        "attempt": attempt,
        "shard_id": shard_id(number) if attempt == 1 else f"r{attempt}-{shard_id(number)}",
        "submission_key": key,
        "state": "RECONCILED",
        "provider": "openai",
        "provider_jobs": (f"batch_{key[:24]}",),
        "records": records,
        "outcomes": f"jobs/acme/{JOB_KEY}/attempts/{attempt}/{key}/outcomes.jsonl.zst",
        "counts": counts,
        "tokens": {"input": records * 100, "cached_input": records * 40, "output": records * 20},
        "submitted_at": T0 + (attempt - 1) * 5700 + number * 20,
        "terminal_at": T0 + (attempt - 1) * 5700 + number * 20 + 3600,
    }
    return SubmissionEntry(**{**fields, **changes})


def closure(submissions: list[SubmissionEntry], **changes: Any) -> Closure:
    fields: dict[str, Any] = {
        "job_key": JOB_KEY,
        "attempt": max((one.attempt for one in submissions), default=1),
        "at": T0 + 9000,
        "expected": 3201,
        "succeeded": 0,
        "reused": 0,
        "failed": {},
        "open": 0,
        "waiting": 0,
        "unsettled": 0,
        "missing": 0,
        "unknown": 0,
        "duplicate": 0,
        "overdue": False,
        "open_key": f"jobs/acme/{JOB_KEY}/attempts/1/open-0123456789abcdef.jsonl.zst",
        "publish_key": f"jobs/acme/{JOB_KEY}/attempts/1/publish-0123456789abcdef.json",
        "submissions": tuple(submissions),
    }
    return Closure(**{**fields, **changes})


def films() -> Closure:
    """3,201 films: 120 reused, 3,072 answered, 9 failed; a quota refusal, a ghost and a second attempt on the way."""
    return closure(
        [
            entry(1, 0, {"succeeded": 776, "retryable": 24}),
            entry(1, 1, {"reused": 120, "succeeded": 662, "refused": 2, "missing": 16}, anomalies={"model_drift": 3}),
            entry(1, 2, {"succeeded": 774, "permanent": 2, "retryable": 24}, generation=2),
            entry(1, 3, {"succeeded": 799, "truncated": 2}, provider_jobs=("batch_ghost", "batch_bound")),
            entry(2, 0, {"succeeded": 61, "retryable": 3}, anomalies={"duplicate_same": 1, "model_drift": 1}),
        ],
        succeeded=3192,
        reused=120,
        failed={"permanent": 2, "refused": 2, "retryable": 3, "truncated": 2},
    )


def completed() -> Report:
    return job_report(job(), manifest(), films(), state="COMPLETED", results_uri=RESULTS, parts=4)


def partial() -> Report:
    """One shard is still out at the deadline, and three ids came back that nobody asked for."""
    submissions = [
        entry(1, 0, {"succeeded": 800}),
        entry(1, 1, {"succeeded": 795, "permanent": 5}, anomalies={"unknown": 3}),
        entry(1, 2, {}, state="RUNNING", records=1601, terminal_at=0, outcomes="", tokens={}),
    ]
    sets = closure(
        submissions, succeeded=1595, failed={"permanent": 5}, open=1601, unsettled=1601, unknown=3, overdue=True
    )
    return job_report(job(), manifest(), sets, state="PARTIAL", results_uri="", parts=0)


def failed() -> Report:
    """Every shard was refused by the provider."""
    submissions = [
        entry(
            1, number, {"permanent": 800}, provider_jobs=(), submitted_at=0, terminal_at=0, tokens={}, refusal="no key"
        )
        for number in range(4)
    ]
    ended = job(JobState.FAILED, reason="ProviderRefused: the provider refused every shard. no key")
    closed = closure(submissions, expected=3200, failed={"permanent": 3200})
    return failure_report(ended, manifest(), closed, closed.submissions)


def refused(problems: int = 3) -> Report:
    shown = [
        Problem(f"not JSON <b>{line}</b>", line=line, key=f"film-{line}", code="bad_json") for line in range(1, 151)
    ]
    return refusal_report(
        job(JobState.FAILED, counts={"succeeded": 0, "failed": 0}),
        what="1,284 lines cannot become records",
        where=f"s3://{BUCKET}/{SOURCE}",
        do="mend the lines and drop the file again",
        bad_count=1284,
        by_code={"missing_field": 284, "bad_json": 1000},
        problems=shown[:problems],
        bad_lines_uri=f"s3://{BUCKET}/quarantine/acme/{JOB_KEY}/bad_lines.jsonl",
    )
