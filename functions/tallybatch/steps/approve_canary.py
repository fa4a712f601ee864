"""Validate output: ask a person. The execution waits for its token; whoever answers finds it in the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from tallybatch.contracts import ApprovalRequest
from tallybatch.domain.rows import Job
from tallybatch.ports import Clock, Events, Ledger, Objects, TaskTokens
from tallybatch.steps.job_context import load_job
from tallybatch.steps.judge_canary import read_canary
from tallybatch.steps.transitions import change_job


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    events: Events
    tokens: TaskTokens
    clock: Clock


def run(request: ApprovalRequest, ports: Ports) -> None:
    """Leave the token where `tallybatch approve` finds it, and tell the bus. What was decided before the token was
    there is passed on at once. Each call has a token of its own; the last one counts."""
    job = change_job(ports.ledger, request.job_key, lambda row: _waiting(row, request, ports.clock.now()))
    asked = job.approval
    if asked is None or asked.decision or asked.attempt != request.attempt or job.cancel_requested_at:
        ports.tokens.wake(request.task_token)
        return
    context = load_job(ports.objects, request.tenant, request.job_key)
    told = read_canary(request.attempt, context, ports.objects)
    detail = {"job_key": job.job_key, "tenant": job.tenant, "spec": job.spec, "expected": job.expected}
    canary = ports.objects.uri(context.keys.canary(request.attempt))
    ports.events.publish(
        "NeedsApproval", {**detail, **told.figures(), "expires_at": asked.expires_at, "canary": canary}
    )


def _waiting(job: Job, request: ApprovalRequest, now: float) -> Job | None:
    asked = job.approval
    if asked is None or asked.decision or asked.attempt != request.attempt or asked.token == request.task_token:
        return None
    return replace(job, approval=replace(asked, token=request.task_token), updated_at=now)
