"""Quota that nobody needs any more: holds of jobs that have ended, with nothing of theirs out at a provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tallybatch.domain.errors import TallybatchError
from tallybatch.domain.lifecycle import JOB_FINAL, SubmissionState
from tallybatch.domain.quota_rows import Hold
from tallybatch.domain.quotas import ADMISSION
from tallybatch.domain.rows import Submission
from tallybatch.domain.submitting import SEARCH_MARGIN_S
from tallybatch.ports import TERMINAL_STATES, Clock, Ledger, ProviderApi
from tallybatch.steps import quota
from tallybatch.steps.provider_sweep import Findings
from tallybatch.steps.reserve_quota import OUT


def run(ledger: Ledger, providers: Mapping[str, ProviderApi], clock: Clock, found: Findings) -> list[str]:
    """`pool place` of each hold that was given back. A hold stays whenever it cannot be told what is out."""
    return [
        f"{pool} {hold.place}"
        for pool in (ADMISSION, *sorted(providers))
        for hold in _leaks(pool, ledger, providers, found)
        if quota.give_back(pool, hold.place, ledger, clock)
    ]


def _leaks(pool: str, ledger: Ledger, providers: Mapping[str, ProviderApi], found: Findings) -> Iterator[Hold]:
    for hold in ledger.quota_holds(pool):
        job = ledger.job(hold.job_key)
        row = ledger.submission(hold.job_key, hold.attempt, hold.shard_id) if pool != ADMISSION else None
        if row is not None and row.state in OUT:
            try:
                if (job is None or job.state in JOB_FINAL) and not _is_out(row, providers[pool]):
                    yield hold
            except TallybatchError as error:
                found.note(pool, str(error))
        elif job is None or job.state in JOB_FINAL or (row is not None and row.state in _DONE and hold.reserved_at):
            yield hold


_S = SubmissionState
_DONE = frozenset({_S.EMPTY, _S.REFUSED, _S.TERMINAL, _S.COLLECTED, _S.RECONCILED})


def _is_out(row: Submission, provider: ProviderApi) -> bool:
    """Nobody asks the provider about this submission any more; so ask."""
    if row.provider_job_id:
        return provider.get(row.provider_job_id).state not in TERMINAL_STATES
    search = provider.find(row.submission_key, since=row.claimed_at - SEARCH_MARGIN_S)
    return not search.complete or any(job.state not in TERMINAL_STATES for job in search.jobs)
