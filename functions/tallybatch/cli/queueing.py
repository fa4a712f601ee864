"""Where jobs stand that wait for their turn, or for quota."""

from __future__ import annotations

from collections.abc import Iterable

from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.quotas import ADMISSION
from tallybatch.domain.rows import Job
from tallybatch.ports import Ledger

_NOTHING_OUT_YET = frozenset({JobState.CREATED, JobState.VALIDATED, JobState.SUBMITTING})


def positions(jobs: Iterable[Job], ledger: Ledger) -> dict[str, int]:
    """By job_key, for jobs of which nothing has been handed over yet: 1 is next to begin, or, of those at work, next to
    get quota of their provider's. One query for the former and one for each provider."""
    waiting = {job.job_key: job.provider for job in jobs if job.state in _NOTHING_OUT_YET and not job.dry_run}
    found: dict[str, int] = {}
    for pool in (ADMISSION, *sorted(set(waiting.values()) - {""})) if waiting else ():
        _, line = ledger.quota_line(pool)
        for number, job_key in enumerate(dict.fromkeys(hold.job_key for hold in line), 1):
            if job_key in waiting:
                found.setdefault(job_key, number)
    return found
