"""Where jobs stand that wait for their turn, or for quota."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.quotas import ADMISSION, never_fits
from tallybatch.domain.rows import Job
from tallybatch.ports import Ledger

_NOTHING_OUT_YET = frozenset({JobState.CREATED, JobState.VALIDATED, JobState.SUBMITTING})


class Turn(NamedTuple):
    position: int
    """1 is next to begin, or, of jobs at work, next to get quota of their provider's."""
    in_vain: str = ""
    """Why no waiting will ever let it through under the limits as they are."""


def turns(jobs: Iterable[Job], ledger: Ledger) -> dict[str, Turn]:
    """By job_key, for jobs of which nothing has been handed over yet. One query for those that wait to begin, and one
    for each provider."""
    waiting = {job.job_key: job.provider for job in jobs if job.state in _NOTHING_OUT_YET and not job.dry_run}
    found: dict[str, Turn] = {}
    for name in (ADMISSION, *sorted(set(waiting.values()) - {""})) if waiting else ():
        pool, line = ledger.quota_line(name)
        for number, job_key in enumerate(dict.fromkeys(hold.job_key for hold in line), 1):
            if job_key in waiting and job_key not in found:
                reasons = (never_fits(pool, hold) for hold in line if hold.job_key == job_key)
                found[job_key] = Turn(number, _in_vain(name, next(filter(None, reasons), "")))
    return found


def _in_vain(pool: str, why: str) -> str:
    return f"{why}; raise it with `tallybatch quota set {pool}`" if why else ""
