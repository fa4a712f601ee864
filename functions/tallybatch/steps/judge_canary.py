"""Validate output: whether the canary's answers are good enough to go on with the rest, and who says so.

The ledger and the canary's report decide alone, so that this state may run at any time: after the canary, after an
answer to the approval, after nobody answered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from tallybatch.contracts import CanaryReply, JobInput
from tallybatch.domain.canary import CanaryCounts, CanaryReport, Judgement, StratumShare, forecast, judge, why
from tallybatch.domain.certificate import total_money, total_tokens
from tallybatch.domain.closure import HELD, Closure, OpenRecord
from tallybatch.domain.errors import ApprovalExpired, ApprovalRejected, RolloutStopped
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.prices import usd
from tallybatch.domain.rows import Approval, Job
from tallybatch.domain.shards import read_zstd_lines
from tallybatch.domain.spec import Canary
from tallybatch.ports import Clock, Ledger, Objects
from tallybatch.steps.job_context import JobContext, load_job, spec_of_run
from tallybatch.steps.reconcile_job import read_closure
from tallybatch.steps.transitions import change_job

APPROVED = "approved"
REJECTED = "rejected"
_ANSWERED = frozenset({OutcomeClass.UNQUALIFIED.value, OutcomeClass.CONFLICT.value})
"""Reasons of open records that were answered."""


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    clock: Clock


def run(request: JobInput, ports: Ports) -> CanaryReply:
    """Raises `RolloutStopped`, `ApprovalRejected` or `ApprovalExpired` where the job ends here."""
    context = load_job(ports.objects, request.tenant, request.job_key)
    go = CanaryReply(
        tenant=request.tenant,
        job_key=request.job_key,
        bucket=request.bucket,
        attempt=request.attempt,
        verdict="go",
        next_attempt=request.attempt + 1,
    )
    job = ports.ledger.job(request.job_key)
    assert job is not None  # noqa: S101 - the execution was started after its row was written
    if job.cancel_requested_at or job.released:
        return go
    gate = spec_of_run(ports.objects, context, job.spec_digest).canary
    if gate is None:  # the spec with which the job was dropped again has none any more
        change_job(ports.ledger, job.job_key, lambda row: _released(row, request.attempt))
        return go
    told = canary_report(request.attempt, gate, context, ports.objects)
    if told.judgement is Judgement.UNDECIDED:
        return go.model_copy(update={"wait_s": context.retry_policy.wait_s(request.attempt, only_waiting=False)})
    if told.judgement is Judgement.FAILED:
        raise RolloutStopped(
            f"the canary failed: {told.why}",
            where=f"job {job.job_key} attempt {told.attempt}",
            do="look at its outcomes and mend the spec under a new prompt version; nothing but the canary was sent",
        )
    if gate.approval == "auto":
        change_job(ports.ledger, job.job_key, lambda row: _released(row, request.attempt))
        return go
    now = ports.clock.now()
    limit_s = gate.approval_timeout.total_seconds()
    job = change_job(ports.ledger, job.job_key, lambda row: _asked(row, request.attempt, now, limit_s))
    if job.cancel_requested_at or job.released:
        return go
    asked = job.approval
    assert asked is not None  # noqa: S101 - just written
    _stop_if_over(asked, now, job.job_key)
    return go.model_copy(update={"verdict": "ask", "timeout_s": max(1, math.ceil(asked.expires_at - now))})


def _stop_if_over(asked: Approval, now: float, job_key: str) -> None:
    where = f"job {job_key} attempt {asked.attempt}"
    again = "drop the file again to be asked once more; what the canary has answered is not paid again"
    if asked.decision == REJECTED:
        said = f": {asked.reason}" if asked.reason else ""
        raise ApprovalRejected(f"the canary was rejected by {asked.decided_by}{said}", where=where, do=again)
    if now >= asked.expires_at:
        raise ApprovalExpired("approval expired: nobody answered in time", where=where, do=again)


def _released(job: Job, attempt: int) -> Job | None:
    return None if job.released else replace(job, released=attempt)


def _asked(job: Job, attempt: int, now: float, limit_s: float) -> Job | None:
    """The question of an attempt is asked once; its time runs from then on, through every restart."""
    if job.released or (job.approval is not None and job.approval.attempt >= attempt):
        return None
    expires_at = min(now + limit_s, job.deadline_at) if job.deadline_at else now + limit_s
    return replace(job, approval=Approval(attempt=attempt, asked_at=now, expires_at=expires_at), updated_at=now)


def canary_report(attempt: int, gate: Canary, context: JobContext, objects: Objects) -> CanaryReport:
    """The judgement on the canary as it is after an attempt. Written once: it follows from the closure and the spec."""
    key = context.keys.canary(attempt)
    if objects.head(key) is None:
        body = msgspec.json.format(msgspec.json.encode(_report(attempt, gate, context, objects)), indent=1)
        objects.put_once(key, body, content_type="application/json", retention=context.retention("results"))
    return read_canary(attempt, context, objects)


def read_canary(attempt: int, context: JobContext, objects: Objects) -> CanaryReport:
    return msgspec.json.decode(objects.get(context.keys.canary(attempt)), type=CanaryReport)


def _report(attempt: int, gate: Canary, context: JobContext, objects: Objects) -> CanaryReport:
    closure = read_closure(objects, context.keys, attempt)
    manifest = context.manifest
    counts = _counts(closure, objects)
    ran = [entry for entry in closure.submissions if entry.terminal_at and entry.submitted_at]
    tokens, cost = total_tokens(closure.submissions), total_money(closure.submissions).known_cost
    return CanaryReport(
        job_key=manifest.job_key,
        attempt=attempt,
        at=closure.at,
        judgement=judge(counts, gate.min_acceptance, overdue=closure.overdue),
        why=why(counts, gate.min_acceptance),
        records=counts.records,
        held=closure.held,
        counts=counts,
        acceptance=counts.acceptance,
        min_acceptance=gate.min_acceptance,
        approval=gate.approval,
        tokens=tokens,
        cost_usd=usd(cost),
        forecast=forecast(
            tokens,
            sum(entry.records for entry in closure.submissions if entry.provider_jobs),
            expected=manifest.expected_record_count,
            shards=len(manifest.shards),
            max_parallel=context.spec.shards.max_parallel,
            seconds=max((entry.terminal_at - entry.submitted_at for entry in ran), default=0),
            nano_usd=cost,
        ),
        strata=_strata(attempt, context, objects),
    )


def _counts(closure: Closure, objects: Objects) -> CanaryCounts:
    unqualified = 0
    if closure.open - closure.held:
        decode = msgspec.json.Decoder(OpenRecord).decode
        with objects.open(closure.open_key) as stream:
            reasons = (decode(line).reason for line in read_zstd_lines(stream))
            unqualified = sum(reason in _ANSWERED for reason in reasons if reason != HELD)
    return CanaryCounts(
        accepted=closure.succeeded,
        failed={**closure.failed, **({"in_review": closure.in_review_total} if closure.in_review else {})},
        unqualified=unqualified,
        unanswered=closure.open - closure.held - unqualified,
    )


def _strata(attempt: int, context: JobContext, objects: Objects) -> tuple[StratumShare, ...]:
    """As the attempt that began the canary has left them."""
    for number in range(1, attempt + 1):
        if objects.head(context.keys.sample(number)) is not None:
            return msgspec.json.decode(objects.get(context.keys.sample(number)), type=tuple[StratumShare, ...])
    return ()
