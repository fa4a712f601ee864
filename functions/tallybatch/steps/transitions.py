"""Compare-and-set loops over ledger rows: read, change by a pure function, write if nobody else did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tallybatch.domain.errors import LedgerBusy, NotFound, Permanent
from tallybatch.domain.lifecycle import JobState, job_may_move, submission_may_move
from tallybatch.domain.rows import Job, Submission
from tallybatch.ports import Clock, Ledger

_TRIES = 20


def job_of(ledger: Ledger, job_key: str) -> Job:
    """Raises `NotFound`."""
    job = ledger.job(job_key)
    if job is None:
        raise NotFound("no such job in the ledger", where=job_key)
    return job


def advance_job(ledger: Ledger, clock: Clock, job_key: str, to: JobState, *, attempt: int, **changes: Any) -> Job:
    """Move a job along its lifecycle. A late or repeated move changes nothing; the stored row is returned."""

    def change(job: Job) -> Job | None:
        if not job_may_move(job.state, to, attempt_now=job.attempt, attempt_to=attempt):
            return None
        return replace(job, state=to, attempt=attempt, updated_at=clock.now(), **changes)

    return change_job(ledger, job_key, change)


def change_job(ledger: Ledger, job_key: str, change: Callable[[Job], Job | None]) -> Job:
    """Apply `change` until it sticks; a `change` that returns None leaves the row as it is."""
    for _ in range(_TRIES):
        job = job_of(ledger, job_key)
        changed = change(job)
        if changed is None:
            return job
        if stored := ledger.put_job(changed, expected_version=job.version):
            return stored
    raise LedgerBusy("the job's row changed under every try", where=job_key)


def change_submission(
    ledger: Ledger, job_key: str, attempt: int, shard_id: str, change: Callable[[Submission], Submission | None]
) -> Submission:
    """As `change_job`, for a submission."""
    where = f"{job_key} attempt {attempt} shard {shard_id}"
    for _ in range(_TRIES):
        row = ledger.submission(job_key, attempt, shard_id)
        if row is None:
            raise NotFound("no such submission in the ledger", where=where)
        changed = change(row)
        if changed is None:
            return row
        if changed.state is not row.state and not submission_may_move(row.state, changed.state):
            raise Permanent(f"a submission may not move from {row.state} to {changed.state}", where=where)
        if stored := ledger.put_submission(changed, expected_version=row.version):
            return stored
    raise LedgerBusy("the submission's row changed under every try", where=where)
