"""Submit: before a shard may be handed over, its part of the provider's quota is set aside. Waiting costs nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tallybatch.contracts import QuotaReply, ShardItem
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.quota_rows import RANKS, Amount, Hold, place
from tallybatch.domain.quotas import Decision
from tallybatch.domain.rows import Job, Submission
from tallybatch.ports import Clock, Ledger
from tallybatch.steps import quota

_S = SubmissionState
OUT = frozenset({_S.SUBMITTING, _S.SUBMIT_UNKNOWN, _S.SUBMITTED, _S.RUNNING})
"""A provider job exists, or may exist, that has not ended."""
UNNAMED = "unnamed"
"""Model of a shard that was planned before shards named theirs."""


@dataclass(frozen=True, slots=True)
class Ports:
    ledger: Ledger
    clock: Clock


def run(item: ShardItem, ports: Ports) -> QuotaReply:
    """`go` for what is reserved, and for what needs nothing any more: SubmitShard tells how that one ends, or hands it
    to the on-demand lane when it is too late for a provider's job."""
    ledger, now = ports.ledger, ports.clock.now()
    row = ledger.submission(item.job_key, item.attempt, item.shard_id)
    if row is not None and row.state is not _S.QUOTA_REFUSED:
        if row.state in OUT:
            quota.ask(_wish(item, now), ledger, ports.clock, force=True)
        return QuotaReply(status="go")
    if 0 < item.rescue_at <= now:
        release(item, ledger, ports.clock)
        return QuotaReply(status="go")
    if row is not None and now < row.not_before:
        decision = Decision(granted=False, wait_s=math.ceil(row.not_before - now))
    else:
        decision = quota.ask(_wish(item, now), ledger, ports.clock)
    if decision.granted:
        return QuotaReply(status="go")
    job = ledger.job(item.job_key)
    if _has_ended(job, now):
        release(item, ledger, ports.clock)
        return QuotaReply(status="go")
    ends = [moment - now for moment in (job.deadline_at if job is not None else 0, item.rescue_at) if moment]
    wait_s = max(1, math.ceil(min(decision.wait_s, *ends))) if ends else decision.wait_s
    return QuotaReply(status="wait", wait_s=wait_s, position=decision.position, why=decision.never)


def release(item: ShardItem | Submission, ledger: Ledger, clock: Clock) -> bool:
    """Whatever the submission holds of its provider's pool."""
    return quota.give_back(item.provider, place_of(item), ledger, clock)


def refused(row: Submission, ledger: Ledger, clock: Clock) -> None:
    """See `quota.refused`; the row says when to try again."""
    quota.refused(row.provider, place_of(row), ledger, clock, not_before=row.not_before)


def place_of(item: ShardItem | Submission) -> str:
    return place(item.job_key, item.attempt, item.shard_id)


def amount_of(item: ShardItem) -> Amount:
    """No provider counts the output: OpenAI and Gemini limit enqueued prompt tokens, Bedrock jobs."""
    return Amount(item.tokens, 1, item.record_count)


def _wish(item: ShardItem, now: float) -> Hold:
    return Hold(
        pool=item.provider,
        model=item.model or UNNAMED,
        tenant=item.tenant,
        job_key=item.job_key,
        attempt=item.attempt,
        shard_id=item.shard_id,
        rank=RANKS[item.priority],
        amount=amount_of(item),
        asked_at=now,
        due_at=now,
    )


def _has_ended(job: Job | None, now: float) -> bool:
    """Cancelled, or past its deadline: nothing of it is handed over any more."""
    return job is not None and (bool(job.cancel_requested_at) or bool(job.deadline_at and now >= job.deadline_at))
