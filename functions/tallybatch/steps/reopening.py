"""The next run of a job that has ended: its row, and the execution that goes on from it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tallybatch.contracts import JobInput
from tallybatch.domain.identity import execution_name
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.ports import Executions


def next_run(job: Job, *, now: float, deadline_s: float, **changes: Any) -> Job:
    """The row with which the next run begins, with the next attempt: only what is open goes on. What was asked of the
    last run is forgotten unless `changes` asks for it again."""
    asked: dict[str, Any] = {"cancel_requested_at": 0, "partial_requested_at": 0, "partial_requested_by": ""}
    return replace(
        job,
        state=JobState.VALIDATED,
        run=job.run + 1,
        attempt=job.attempt + 1,
        execution_name=execution_name(job.job_key, job.run + 1),
        deadline_at=now + deadline_s,
        reason="",
        updated_at=now,
        **{**asked, **changes},
    )


def start(job: Job, bucket: str, executions: Executions) -> None:
    """Start the execution that the row names. Doing it again changes nothing."""
    payload = JobInput(tenant=job.tenant, job_key=job.job_key, bucket=bucket, attempt=job.attempt)
    executions.start(job.execution_name, payload.model_dump())
