"""Cancel: freeze a job. What is out is cancelled at its provider, harvested and reconciled; then the job ends."""

from __future__ import annotations

from msgspec.structs import replace

from tallybatch.domain.lifecycle import JOB_FINAL
from tallybatch.domain.rows import Job
from tallybatch.ports import Clock, Ledger
from tallybatch.steps.transitions import change_job


def run(job_key: str, ledger: Ledger, clock: Clock) -> Job:
    """Ask for it; the steps of the job see it at their next turn. Asking twice, or after the end, changes nothing."""

    def ask(job: Job) -> Job | None:
        if job.state in JOB_FINAL or job.cancel_requested_at:
            return None
        return replace(job, cancel_requested_at=clock.now(), updated_at=clock.now())

    return change_job(ledger, job_key, ask)
