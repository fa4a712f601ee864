"""The end of a job that could not go on: state, reason and report. What was paid for stays where it is."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass

from tallybatch.contracts import FailInput, SealReply
from tallybatch.domain.closure import Closure
from tallybatch.domain.errors import ApprovalExpired, ApprovalRejected, NotFound
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JOB_FINAL, JobState
from tallybatch.domain.manifest import Manifest
from tallybatch.ports import Clock, Events, Ledger, Objects
from tallybatch.report.build import failure_report
from tallybatch.report.write import write_report
from tallybatch.steps import admit_job, budget
from tallybatch.steps.certification import attempts_certified
from tallybatch.steps.reconcile_job import read_closure, submissions_now
from tallybatch.steps.transitions import advance_job

_EVENTS = {
    JobState.FAILED: "JobFailed",
    JobState.CANCELLED: "JobCancelled",
    JobState.EXPIRED: "JobExpired",
}
_ENDINGS = {ApprovalExpired.__name__: JobState.EXPIRED, ApprovalRejected.__name__: JobState.CANCELLED}
"""By the error's name; every other ends FAILED."""


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    events: Events
    clock: Clock


def run(request: FailInput, ports: Ports) -> SealReply:
    """A job whose next run has begun is left alone: this is the end of the last one, told once more."""
    keys = JobKeys(request.tenant, request.job_key)
    known = ports.ledger.job(request.job_key)
    if known is not None and known.attempt > request.attempt:
        return SealReply(tenant=known.tenant, job_key=known.job_key, state=known.state.value)
    attempt = known.attempt if known else request.attempt
    ending = _ENDINGS.get(str(request.error.get("Error", "")), JobState.FAILED)
    job = advance_job(
        ports.ledger,
        ports.clock,
        request.job_key,
        ending,
        attempt=attempt,
        reason=_reason(request),
        report=ports.objects.uri(keys.report_html),
    )
    if job.state is ending:
        closure = _last_closure(keys, attempt, ports.objects)
        submissions = submissions_now(job.job_key, ports.ledger)
        report = failure_report(job, _manifest(keys, ports.objects), closure, submissions)
        write_report(ports.objects, keys, report)
        if certified := attempts_certified(ports.objects, keys):
            # the certificate holds the hash of the report before: whoever proves it must see that the job went on
            ports.objects.put_once(keys.no_items(max(attempt, certified + 1)), b"[]", content_type="application/json")
        ports.events.publish(
            _EVENTS[ending],
            {"job_key": job.job_key, "tenant": job.tenant, "spec": job.spec, "reason": job.reason},
        )
    if job.state in JOB_FINAL:
        budget.end(job, ports.ledger, ports.clock)
    admit_job.leave(request.job_key, ports.ledger, ports.clock)
    return SealReply(tenant=job.tenant, job_key=job.job_key, state=job.state.value)


def _reason(request: FailInput) -> str:
    """The error's message, with its name where that says something; Step Functions wraps a function's error in JSON."""
    name = str(request.error.get("Error", "Unknown"))
    cause = str(request.error.get("Cause", ""))
    with contextlib.suppress(ValueError, AttributeError):
        cause = str(json.loads(cause).get("errorMessage", cause))
    return (cause if name == "Permanent" else f"{name}: {cause}")[:1000]


def _manifest(keys: JobKeys, objects: Objects) -> Manifest | None:
    try:
        return Manifest.model_validate_json(objects.get(keys.manifest))
    except NotFound:
        return None


def _last_closure(keys: JobKeys, attempt: int, objects: Objects) -> Closure | None:
    """Of this attempt, or of the last one before it that was reconciled."""
    for number in range(attempt, 0, -1):
        with contextlib.suppress(NotFound):
            return read_closure(objects, keys, number)
    return None
