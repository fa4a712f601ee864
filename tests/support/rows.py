"""Rows for tests: valid ones, of which a test states only what it is about."""

from __future__ import annotations

import hashlib
from typing import Any

from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.rows import AcceptedAnswer, Job, RecordClaim, Submission


def hexdigest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def job(name: str = "job", **fields: Any) -> Job:
    base: dict[str, Any] = {
        "job_key": hexdigest(name),
        "tenant": "acme",
        "spec": "film-genre",
        "dataset_version": "2026-01",
        "state": JobState.CREATED,
        "created_at": 1_700_000_000.25,
        "updated_at": 1_700_000_000.25,
    }
    return Job(**{**base, **fields})


def submission(job_name: str = "job", attempt: int = 1, shard: str = "shard", **fields: Any) -> Submission:
    base: dict[str, Any] = {
        "job_key": hexdigest(job_name),
        "tenant": "acme",
        "attempt": attempt,
        "shard_id": shard,
        "shard_sha256": hexdigest(shard),
        "state": SubmissionState.SUBMITTING,
        "provider": "openai",
        "submission_key": hexdigest(f"{job_name}/{attempt}/{shard}"),
        "updated_at": 1_700_000_001.0,
    }
    return Submission(**{**base, **fields})


def claim(record: str, job_name: str = "job", attempt: int = 1) -> RecordClaim:
    return RecordClaim(record_key=hexdigest(record), job_key=hexdigest(job_name), attempt=attempt)


def answer(record: str, job_name: str = "job", attempt: int = 1, text: str = "Drama") -> AcceptedAnswer:
    return AcceptedAnswer(
        record_key=hexdigest(record),
        job_key=hexdigest(job_name),
        attempt=attempt,
        uri=f"s3://bucket/jobs/acme/{hexdigest(job_name)}/outcomes.jsonl.zst",
        offset=1024,
        length=311,
        sha256=hexdigest(text),
    )
