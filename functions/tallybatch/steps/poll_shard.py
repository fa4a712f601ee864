"""Monitor: ask the provider how its job is. A terminal state of any kind only means: collect and reconcile now."""

from __future__ import annotations

import math
from dataclasses import dataclass

from msgspec.structs import replace

from tallybatch.contracts import PollReply, ShardItem
from tallybatch.domain.errors import NotFound
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.rows import Submission
from tallybatch.domain.submitting import quota_wait_s
from tallybatch.ports import TERMINAL_STATES, Clock, JobError, Ledger, ProviderApi, ProviderJob, ProviderState
from tallybatch.steps import reserve_quota
from tallybatch.steps.submit_shard import quota_refused
from tallybatch.steps.transitions import advance_job, change_submission

FIRST_WAIT_S = 15
GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class Ports:
    ledger: Ledger
    provider: ProviderApi
    clock: Clock


def run(item: ShardItem, ports: Ports, *, waited_s: float, max_wait_s: float) -> PollReply:
    """`waited_s` is the pause before this poll; the next one is half as long again, up to `max_wait_s`."""
    row = ports.ledger.submission(item.job_key, item.attempt, item.shard_id)
    if row is None or not row.provider_job_id:
        raise NotFound("no provider job is bound to this submission", where=f"{item.job_key} {item.shard_id}")
    job = ports.provider.get(row.provider_job_id)
    if job.quota_refused:
        return _resubmit(item, job, ports)
    terminal = job.state in TERMINAL_STATES
    change_submission(
        ports.ledger, item.job_key, item.attempt, item.shard_id, lambda now: _observed(now, job, ports.clock.now())
    )
    if terminal:
        reserve_quota.release(item, ports.ledger, ports.clock)
        return PollReply(status="terminal", state=job.state.value)
    ours = advance_job(ports.ledger, ports.clock, item.job_key, JobState.RUNNING, attempt=item.attempt)
    until_rescue_s = item.rescue_at - ports.clock.now() if item.rescue_at else max_wait_s
    if (ours.cancel_requested_at or until_rescue_s <= 0) and job.state is not ProviderState.CANCELLING:
        _cancel(item, job, ports)
    wait_s = min(max(FIRST_WAIT_S, waited_s * GROWTH), max_wait_s)
    if 0 < until_rescue_s < wait_s:
        wait_s = max(1, until_rescue_s)
    return PollReply(status="running", wait_s=round(wait_s), state=job.state.value)


def _cancel(item: ShardItem, job: ProviderJob, ports: Ports) -> None:
    """On record first: what the provider then leaves undone was our wish, not a failure."""
    now = ports.clock.now()
    change_submission(
        ports.ledger,
        item.job_key,
        item.attempt,
        item.shard_id,
        lambda row: None if row.cancelled_at else replace(row, cancelled_at=now, updated_at=now),
    )
    ports.provider.cancel(job.id)


def _observed(row: Submission, job: ProviderJob, now: float) -> Submission | None:
    """The row with what the provider said; never back from a terminal state, and no write when nothing is new."""
    if row.provider_job_id != job.id or row.state not in (SubmissionState.SUBMITTED, SubmissionState.RUNNING):
        return None
    state = SubmissionState.TERMINAL if job.state in TERMINAL_STATES else SubmissionState.RUNNING
    progress = dict(job.counts)
    if (state, job.raw_state, progress) == (row.state, row.provider_state, row.progress):
        return None
    changed = replace(
        row,
        state=state,
        provider_state=job.raw_state,
        progress=progress,
        terminal_at=now if state is SubmissionState.TERMINAL else 0,
        updated_at=now,
    )
    return _failed(changed, job, job.failure) if job.failure else changed


def _failed(row: Submission, job: ProviderJob, failure: OutcomeClass) -> Submission:
    """The job failed as a whole. Of the reason only codes and lines are kept here: the words may quote a request."""
    first = next((error for error in job.errors if error.code), JobError("failed", ""))
    place = f" at line {first.line}" if first.line else ""
    more = f" and {len(job.errors) - 1} more" if len(job.errors) > 1 else ""
    return replace(
        row,
        refusal=f"provider job {job.id} failed with {first.code}{place}{more}",
        refusal_code=first.code,
        refusal_class=failure.value,
        untried=job.untried,
    )


def _resubmit(item: ShardItem, job: ProviderJob, ports: Ports) -> PollReply:
    """The provider let the job fail for lack of quota before any record ran; nothing was charged."""

    def refused(row: Submission) -> Submission | None:
        if row.provider_job_id != job.id or row.state not in (SubmissionState.SUBMITTED, SubmissionState.RUNNING):
            return None
        return quota_refused(row, ports.clock.now(), quota_wait_s(row))

    row = change_submission(ports.ledger, item.job_key, item.attempt, item.shard_id, refused)
    reserve_quota.refused(row, ports.ledger, ports.clock)
    ours = ports.ledger.job(item.job_key)
    until = min(row.not_before, ours.deadline_at) if ours is not None and ours.deadline_at else row.not_before
    return PollReply(status="resubmit", wait_s=max(1, math.ceil(until - ports.clock.now())), state=job.state.value)
