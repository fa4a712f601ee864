"""What a person asks of a job that has ended without completing: go on, take note of unknown ids, publish a part. A job
whose execution was stopped goes on, too.

Each is recorded before it has an effect, and asking again changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tallybatch.contracts import ResumeReply, ResumeRequest
from tallybatch.domain.closure import Closure
from tallybatch.domain.errors import BadInput, Conflict, NotFound, Problem
from tallybatch.domain.lifecycle import JOB_FINAL, NOT_BEGUN, JobState
from tallybatch.domain.rows import Job
from tallybatch.ports import Clock, Executions, Ledger, Objects
from tallybatch.steps.acknowledgements import acknowledge
from tallybatch.steps.job_context import JobContext, load_job, spec_of_run
from tallybatch.steps.quality_gates import read_judgement
from tallybatch.steps.reconcile_job import read_closure
from tallybatch.steps.reopening import is_stopped, next_run, start, start_again
from tallybatch.steps.transitions import change_job, job_of

ABOUT_TO_START_S = 60
"""A job whose row has changed within this time may be about to start, or to be told of as started."""


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    executions: Executions
    clock: Clock


def run(request: ResumeRequest, ports: Ports) -> ResumeReply:
    """Raises `NotFound` for a job that is not there, `BadInput` for one whose input was refused, `Conflict` for a
    completed one."""
    job = job_of(ports.ledger, request.job_key)
    if job.dry_run:
        raise Conflict(
            "this was a dry run: nothing was begun", where=f"job {job.job_key}", do="drop the file in earnest"
        )
    if job.state not in JOB_FINAL:
        return _at_work(request, job, ports)
    if job.state is JobState.COMPLETED:
        raise Conflict(
            "the job has completed: all that can be published is",
            where=f"job {job.job_key}",
            do="to have a published record withdrawn or asked again, decide so with `tallybatch review resolve`",
        )
    if not job.execution_name:
        raise BadInput(
            "the job's input was refused, so there is nothing to go on with",
            [Problem(job.reason)],
            where=f"job {job.job_key}",
            do="mend the file and drop it again",
        )
    context = load_job(ports.objects, job.tenant, job.job_key)
    if request.action == "acknowledge":
        return _acknowledge(request, job, context, ports)
    if request.action == "publish_partial":
        _refuse_at_gate(job, context, ports.objects)
        return _go_on(
            job,
            context,
            ports,
            by=request.by,
            cancel_requested_at=job.cancel_requested_at,
            partial_requested_at=ports.clock.now(),
            partial_requested_by=request.by,
        )
    return _go_on(job, context, ports, by=request.by)


def _refuse_at_gate(job: Job, context: JobContext, objects: Objects) -> None:
    """A part is of a job whose sets do not close. One that its gates stop has no part to publish."""
    with suppress(NotFound):
        judged = read_judgement(context, job.attempt, objects)
        if not judged.passed:
            raise Conflict(
                "the job's gates stop it, so no part of it is published",
                where=f"job {job.job_key}",
                why=judged.reason,
                do="if a gate asks too much, change `quality` and drop the file again; nothing is paid again",
            )


def _at_work(request: ResumeRequest, job: Job, ports: Ports) -> ResumeReply:
    """Somebody was first, or this very call was made before and died: an execution that was not started yet is. One
    that was stopped is followed by the next if somebody wants the job to go on, however often it was started before."""
    if job.state in NOT_BEGUN:
        start(job, ports.objects.bucket, ports.executions)
    again: Job | None = None
    stopped = job.updated_at <= ports.clock.now() - ABOUT_TO_START_S and is_stopped(job, ports.executions)
    if stopped and request.action == "resume":
        again = start_again(job, ports.objects.bucket, ports.ledger, ports.executions, ports.clock)
        stopped = False
    ours = request.action == "resume" or (request.action == "publish_partial" and job.partial_requested_at > 0)
    return ResumeReply(
        job_key=job.job_key,
        state=job.state.value,
        attempt=job.attempt,
        started=again is not None or (ours and job.state in NOT_BEGUN and not stopped),
        at_work=not stopped,
        stopped=stopped,
        cancelling=bool(job.cancel_requested_at),
        by=job.partial_requested_by,
    )


def _go_on(
    job: Job, context: JobContext, ports: Ports, *, by: str, acknowledged: int = 0, **asked: object
) -> ResumeReply:
    """Start the next run. Of several that ask at once, one starts it."""
    deadline_s = spec_of_run(ports.objects, context, job.spec_digest).limits.deadline.total_seconds()

    def change(now: Job) -> Job | None:
        if (now.state, now.run) != (job.state, job.run):
            return None
        return next_run(now, now=ports.clock.now(), deadline_s=deadline_s, **asked)

    resumed = change_job(ports.ledger, job.job_key, change)
    if resumed.state in NOT_BEGUN:
        start(resumed, ports.objects.bucket, ports.executions)
    return ResumeReply(
        job_key=job.job_key,
        state=resumed.state.value,
        attempt=resumed.attempt,
        started=resumed.run == job.run + 1,
        acknowledged=acknowledged,
        by=resumed.partial_requested_by or by,
    )


def _acknowledge(request: ResumeRequest, job: Job, context: JobContext, ports: Ports) -> ResumeReply:
    """The next run follows at once only where nothing else is left to do: to acknowledge is not to spend."""
    made = acknowledge(
        request.by,
        ports.clock.now(),
        job.attempt,
        ports.ledger.submissions(job.job_key),
        ports.objects,
        context.keys,
        retention=context.retention("results"),
    )
    lines, by = (made.lines, made.by) if made else (0, request.by)
    left = _left(_closure(job, context, ports.objects))
    if made and not any(left.values()):
        return _go_on(job, context, ports, by=by, acknowledged=lines)
    return ResumeReply(
        job_key=job.job_key,
        state=job.state.value,
        attempt=job.attempt,
        started=False,
        acknowledged=lines,
        by=by,
        left={name: count for name, count in left.items() if count},
    )


def _closure(job: Job, context: JobContext, objects: Objects) -> Closure | None:
    try:
        return read_closure(objects, context.keys, job.attempt)
    except NotFound:
        return None


def _left(closure: Closure | None) -> dict[str, int]:
    if closure is None:
        return {"not_reconciled": 1}
    return {
        "open": closure.open,
        "in_review": closure.in_review_total,
        "missing": closure.missing,
        "duplicate": closure.duplicate,
    }
