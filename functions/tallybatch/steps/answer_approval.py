"""Approve or reject a job's canary: the decision first, with who and when, then the execution is woken."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from tallybatch.domain.errors import ApprovalExpired, Conflict
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JOB_FINAL
from tallybatch.domain.rows import Approval, Job
from tallybatch.ports import Clock, Ledger, Objects, TaskTokens
from tallybatch.steps.judge_canary import APPROVED, REJECTED
from tallybatch.steps.transitions import change_job

_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    tokens: TaskTokens
    clock: Clock


def run(job_key: str, *, approve: bool, who: str, reason: str, ports: Ports) -> Job:
    """Deciding the same again changes nothing but finishes what a lost call may have left undone. Raises `Conflict`
    where nothing is asked or the other was decided, `ApprovalExpired` where it is too late."""
    wanted = APPROVED if approve else REJECTED
    now = ports.clock.now()

    def decide(job: Job) -> Job | None:
        asked = job.approval
        if asked is None:
            raise Conflict(
                "this job waits for no approval",
                where=f"job {job.job_key}, {job.state.value}",
                do="only a canary with `approval: manual` that has passed its gate does",
            )
        if asked.decision != APPROVED and job.state not in JOB_FINAL and job.attempt > asked.attempt:
            raise Conflict(
                "the canary of this run has not been judged yet",
                where=f"job {job.job_key}, {job.state.value}",
                do="answer once it asks (event NeedsApproval); `tallybatch show` says when it does",
            )
        if asked.decision == wanted:
            return None
        if asked.decision:
            raise Conflict(
                f"the canary was {asked.decision} already, by {asked.decided_by}", where=f"job {job.job_key}"
            )
        if now >= asked.expires_at or job.state in JOB_FINAL:
            raise ApprovalExpired(
                "it is too late: approval expired, or the job has ended",
                where=f"job {job.job_key}, {job.state.value}",
                do="drop the file again to be asked once more; what the canary has answered is not paid again",
            )
        decided = replace(asked, decision=wanted, decided_at=now, decided_by=who, reason=reason[:_LONGEST_REASON])
        return replace(job, approval=decided, released=asked.attempt if approve else 0, updated_at=now)

    job = change_job(ports.ledger, job_key, decide)
    asked = job.approval
    assert asked is not None  # noqa: S101 - `decide` has seen it
    if job.state not in JOB_FINAL:
        _record(job, asked, ports.objects)
        wake(job, ports.tokens)
    return job


def wake(job: Job, tokens: TaskTokens) -> bool:
    """Let the execution look at the ledger again, if it waits for a person. False if it does not, or no more."""
    asked = job.approval
    return bool(asked is not None and asked.token and tokens.wake(asked.token))


def _record(job: Job, asked: Approval, objects: Objects) -> None:
    """The audit row, among the objects that the certificate covers."""
    told = {
        "job_key": job.job_key,
        "attempt": asked.attempt,
        "decision": asked.decision,
        "decided_by": asked.decided_by,
        "decided_at": asked.decided_at,
        "asked_at": asked.asked_at,
        "reason": asked.reason,
    }
    body = msgspec.json.format(msgspec.json.encode(told), indent=1)
    objects.put_once(JobKeys(job.tenant, job.job_key).approval(asked.attempt), body, content_type="application/json")
