"""The next run of a job: one that has ended begins anew, one whose execution was stopped goes on where it was."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tallybatch.contracts import JobInput
from tallybatch.domain.identity import execution_name
from tallybatch.domain.lifecycle import JOB_FINAL, JobState
from tallybatch.domain.rows import Job
from tallybatch.ports import Clock, Executions, Ledger


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


def is_stopped(job: Job, executions: Executions) -> bool:
    """Whether nobody works on a job that has not ended. An execution that is about to start looks the same."""
    return not job.dry_run and job.state not in JOB_FINAL and not executions.running(job.execution_name)


def start_again(job: Job, bucket: str, ledger: Ledger, executions: Executions, clock: Clock) -> Job | None:
    """Start the next execution of a job that is stopped; it goes on from the ledger, in the same attempt. Of several
    that try, one wins: None for the others."""
    following = replace(
        job,
        state=JobState.VALIDATED if job.state is JobState.CREATED else job.state,
        run=job.run + 1,
        execution_name=execution_name(job.job_key, job.run + 1),
        updated_at=clock.now(),
    )
    stored = ledger.put_job(following, expected_version=job.version)
    if stored is not None:
        start(stored, bucket, executions)
    return stored
