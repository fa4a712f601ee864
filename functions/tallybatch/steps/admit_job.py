"""Prepare: so many jobs are at work at once. The others wait here, by priority and age, each tenant within its share.

A job keeps its place from before its first attempt until it has been sealed or has failed: when publishing is slow,
jobs leave late, and so fewer new ones begin to submit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tallybatch.contracts import JobInput, QuotaReply
from tallybatch.domain.errors import NotFound
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.plan import worst_case
from tallybatch.domain.quota_rows import RANKS, Amount, Hold, place
from tallybatch.domain.quotas import ADMISSION
from tallybatch.ports import Clock, Ledger, Objects
from tallybatch.steps import budget, quota
from tallybatch.steps.job_context import load_job

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
    """The job's worst case, of its tenant's budget. Raises `Permanent` if that is more than is left."""
    job = ports.ledger.job(request.job_key)
    if job is None or job.cancel_requested_at:
        return
    try:
        plan = ports.objects.get(JobKeys(request.tenant, request.job_key).plan)
    except NotFound:
        budget.reserve(job, None, ports.ledger, ports.clock)
    else:
        budget.reserve(job, worst_case(plan), ports.ledger, ports.clock)


def leave(job_key: str, ledger: Ledger, clock: Clock) -> bool:
    """The job has ended; another one may begin."""
    return quota.give_back(ADMISSION, place_of(job_key), ledger, clock)


def place_of(job_key: str) -> str:
    return place(job_key, 0, "")


def queued_jobs(ledger: Ledger) -> dict[str, int]:
    """Position in the line by job_key; 1 is next."""
    _, line = ledger.quota_line(ADMISSION)
    return {job.job_key: number for number, job in enumerate(line, 1)}
