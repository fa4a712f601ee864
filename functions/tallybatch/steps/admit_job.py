"""Prepare: so many jobs are at work at once. The others wait here, by priority and age, each tenant within its share.

A job keeps its place from before its first attempt until it has been sealed or has failed: when publishing is slow,
jobs leave late, and so fewer new ones begin to submit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from tallybatch.contracts import JobInput, QuotaReply
from tallybatch.domain.errors import NotFound
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.plan import worst_case
from tallybatch.domain.prices import nano_usd
from tallybatch.domain.quota_rows import RANKS, Amount, Hold, place
from tallybatch.domain.quotas import ADMISSION
from tallybatch.domain.review import Kind
from tallybatch.domain.rows import Job
from tallybatch.ports import Clock, Ledger, Objects
from tallybatch.steps import budget, quota
from tallybatch.steps.job_context import load_job
from tallybatch.steps.reconcile_job import read_closure

WORKLOAD = "jobs"
"""As the model of the one pool that has none."""


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    clock: Clock


def run(request: JobInput, ports: Ports) -> QuotaReply:
    """`go` also for a job that was cancelled, or is late: the states that follow end it."""
    now = ports.clock.now()
    spec = load_job(ports.objects, request.tenant, request.job_key).spec
    wish = Hold(
        pool=ADMISSION,
        model=WORKLOAD,
        tenant=request.tenant,
        job_key=request.job_key,
        attempt=0,
        shard_id="",
        rank=RANKS[spec.limits.priority],
        amount=Amount(jobs=1),
        asked_at=now,
        due_at=now,
    )
    decision = quota.ask(wish, ports.ledger, ports.clock)
    if decision.granted:
        _set_aside(request, ports)
        return QuotaReply(status="go")
    job = ports.ledger.job(request.job_key)
    if job is not None and (job.cancel_requested_at or (job.deadline_at and now >= job.deadline_at)):
        leave(request.job_key, ports.ledger, ports.clock)
        return QuotaReply(status="go")
    left = job.deadline_at - now if job is not None and job.deadline_at else math.inf
    wait_s = max(1, math.ceil(min(decision.wait_s, left)))
    return QuotaReply(status="wait", wait_s=wait_s, position=decision.position, why=decision.never)


def _set_aside(request: JobInput, ports: Ports) -> None:
    """What the job may still cost, of its tenant's budget. Raises `Permanent` if that is more than is left. A run that
    is to hand nothing over needs nothing."""
    job = ports.ledger.job(request.job_key)
    if job is None or job.cancel_requested_at or job.partial_requested_at:
        return
    budget.reserve(job, _may_cost(job, ports.objects), ports.ledger, ports.clock)


def _may_cost(job: Job, objects: Objects) -> int | None:
    """Nano-dollars at worst, None if nobody can tell: the plan's, for the records that may be asked yet."""
    keys = JobKeys(job.tenant, job.job_key)
    records = _may_be_asked(job, keys, objects)
    if not records:
        return 0
    try:
        worst = worst_case(objects.get(keys.plan))
    except NotFound:
        return None
    return None if worst is None else -(-nano_usd(Decimal(worst)) * records // max(1, job.expected))


def _may_be_asked(job: Job, keys: JobKeys, objects: Objects) -> int:
    """Records: all of them until an attempt has ended, then those without an end, and those that people send back."""
    ended = next((n for n in range(job.attempt - 1, 0, -1) if objects.head(keys.closure(n)) is not None), None)
    if ended is None:
        return job.expected
    closure, review = read_closure(objects, keys, ended), job.review
    records = closure.expected - closure.succeeded
    if not closure.overdue:
        records -= closure.failed_total + closure.in_review_total
    if review is not None and review.attempt > ended:
        records += review.counts.get(Kind.REQUEUE.value, 0)
    return min(records, job.expected)


def leave(job_key: str, ledger: Ledger, clock: Clock) -> bool:
    """The job has ended; another one may begin."""
    return quota.give_back(ADMISSION, place_of(job_key), ledger, clock)


def place_of(job_key: str) -> str:
    return place(job_key, 0, "")


def queued_jobs(ledger: Ledger) -> dict[str, int]:
    """Position in the line by job_key; 1 is next."""
    _, line = ledger.quota_line(ADMISSION)
    return {job.job_key: number for number, job in enumerate(line, 1)}
