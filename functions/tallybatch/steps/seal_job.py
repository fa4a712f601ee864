"""Publish: report, certificate, then one atomic switch of current.json. Each step may be repeated at any point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from tallybatch.contracts import JobInput, SealReply
from tallybatch.domain.closure import Closure
from tallybatch.domain.layout import ResultKeys
from tallybatch.domain.lifecycle import JOB_FINAL, JobState
from tallybatch.domain.quality_gates import Judgement
from tallybatch.domain.quality_labels import merged
from tallybatch.domain.rows import Job
from tallybatch.ports import Clock, Events, Formats, Ledger, Objects
from tallybatch.report.build import Report, final_counts, job_report
from tallybatch.report.write import write_report
from tallybatch.steps import admit_job, budget
from tallybatch.steps.certification import Certified, certificate_key, certify
from tallybatch.steps.current_results import parts_of, switch
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.previous_job import note_latest, previous_report
from tallybatch.steps.publish_shard import Part
from tallybatch.steps.quality_gates import label_distribution, read_judgement
from tallybatch.steps.reconcile_job import read_closure
from tallybatch.steps.review_queue import ReviewQueue
from tallybatch.steps.transitions import advance_job


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    events: Events
    clock: Clock
    formats: Formats


def run(request: JobInput, ports: Ports) -> SealReply:
    """A job whose next run has begun is left alone: its last run has been sealed, and is only told once more."""
    known = ports.ledger.job(request.job_key)
    if known is not None and known.attempt > request.attempt:
        return SealReply(tenant=known.tenant, job_key=known.job_key, state=known.state.value)
    reply = _end(request, ports)
    job = ports.ledger.job(request.job_key)
    if job is not None and job.state in JOB_FINAL:
        budget.end(job, ports.ledger, ports.clock)
    admit_job.leave(request.job_key, ports.ledger, ports.clock)
    return reply


def _end(request: JobInput, ports: Ports) -> SealReply:
    context = load_job(ports.objects, request.tenant, request.job_key)
    closure = read_closure(ports.objects, context.keys, request.attempt)
    job = ports.ledger.job(request.job_key)
    assert job is not None  # noqa: S101 - the execution was started after its row was written
    queue = ReviewQueue(context, closure, ports.objects, ports.formats)
    queue.write(ports.ledger)
    sampled = queue.write_sample() if job.sampled else 0
    if not closure.closed:
        return _end_open(job, closure, sampled, context, ports)
    judgement = read_judgement(context, closure.attempt, ports.objects)
    if not judgement.passed:
        return _end_at_gate(job, closure, judgement, sampled, context, ports)
    parts = parts_of(closure, context, ports.objects)
    results = ResultKeys(job.tenant, job.spec, job.dataset_version)
    results_uri = ports.objects.uri(results.current)
    report = job_report(
        job,
        context.manifest,
        closure,
        state="COMPLETED",
        results_uri=results_uri,
        parts=len(parts),
        certificate_uri=ports.objects.uri(certificate_key(ports.objects, context.keys, closure)),
        judgement=judgement,
        labels=merged(part.labels for part in parts),
        previous=previous_report(context, ports.objects),
    )
    certified = _seal(report, closure, parts, context, ports.objects)
    switch(certified, parts, job, context, ports.objects)
    note_latest(context, ports.objects)
    sampled = queue.write_sample()
    finished = advance_job(
        ports.ledger,
        ports.clock,
        job.job_key,
        JobState.COMPLETED,
        attempt=closure.attempt,
        counts=final_counts(closure),
        sampled=sampled,
        published_attempt=closure.attempt,
        certificate=ports.objects.uri(certified.key),
        results_uri=results_uri,
        report=ports.objects.uri(context.keys.report_html),
    )
    _announce("JobCompleted", finished, closure, ports.events)
    return SealReply(
        tenant=job.tenant,
        job_key=job.job_key,
        state=finished.state.value,
        age_s=round(finished.updated_at - finished.created_at),
        certificate=finished.certificate,
        results_uri=results_uri,
    )


def _end_open(job: Job, closure: Closure, sampled: int, context: JobContext, ports: Ports) -> SealReply:
    """A job whose sets do not close publishes nothing by itself: it was cancelled, or something is open or unknown.
    What it has is published if somebody asked for that."""
    state = JobState.CANCELLED if job.cancel_requested_at else JobState.PARTIAL
    published: dict[str, str] = {}
    if job.partial_requested_at and closure.succeeded:
        published = _publish_part(job, state, closure, context, ports.objects)
    else:
        report = job_report(job, context.manifest, closure, state=state.value, results_uri="", parts=0)
        write_report(ports.objects, context.keys, report, retention=context.retention("results"))
    reason = msgspec.json.decode(ports.objects.get(context.keys.report_json))["verdict"]
    ended = advance_job(
        ports.ledger,
        ports.clock,
        job.job_key,
        state,
        attempt=closure.attempt,
        counts=final_counts(closure),
        sampled=sampled,
        reason=reason,
        report=ports.objects.uri(context.keys.report_html),
        published_attempt=closure.attempt if published else job.published_attempt,
        **published,
    )
    _announce("JobCancelled" if job.cancel_requested_at else "JobPartial", ended, closure, ports.events)
    age_s = round(ended.updated_at - ended.created_at)
    return SealReply(
        tenant=job.tenant,
        job_key=job.job_key,
        state=ended.state.value,
        age_s=age_s,
        certificate=published.get("certificate", ""),
        results_uri=published.get("results_uri", ""),
    )


def _publish_part(job: Job, state: JobState, closure: Closure, context: JobContext, objects: Objects) -> dict[str, str]:
    """Publish what was accepted, marked as a part. The job's next run replaces it, by whatever it closes with."""
    parts = parts_of(closure, context, objects)
    results = ResultKeys(job.tenant, job.spec, job.dataset_version)
    uri = objects.uri(results.current)
    report = job_report(
        job,
        context.manifest,
        closure,
        state=state.value,
        results_uri=uri,
        parts=len(parts),
        certificate_uri=objects.uri(certificate_key(objects, context.keys, closure)),
    )
    certified = _seal(report, closure, parts, context, objects, requested_by=job.partial_requested_by)
    switch(certified, parts, job, context, objects)
    return {"certificate": objects.uri(certified.key), "results_uri": uri}


def _seal(
    report: Report,
    closure: Closure,
    parts: list[Part],
    context: JobContext,
    objects: Objects,
    *,
    requested_by: str = "",
) -> Certified:
    """The report, and then the certificate that holds its hash."""
    if objects.head(certificate_key(objects, context.keys, closure)) is None:
        write_report(objects, context.keys, report, retention=context.retention("results"))
    return certify(closure, parts, context, objects, requested_by=requested_by)


def _end_at_gate(
    job: Job, closure: Closure, judgement: Judgement, sampled: int, context: JobContext, ports: Ports
) -> SealReply:
    """A job that its gates stop: everything is accounted for, nothing is published, and what was accepted stays
    accepted."""
    report = job_report(
        job,
        context.manifest,
        closure,
        state=JobState.FAILED.value,
        results_uri="",
        parts=0,
        judgement=judgement,
        labels=label_distribution(context, closure, ports.objects),
        previous=previous_report(context, ports.objects),
    )
    write_report(ports.objects, context.keys, report, retention=context.retention("results"))
    ended = advance_job(
        ports.ledger,
        ports.clock,
        job.job_key,
        JobState.FAILED,
        attempt=closure.attempt,
        counts=final_counts(closure),
        sampled=sampled,
        reason=report["verdict"],
        report=ports.objects.uri(context.keys.report_html),
    )
    ports.events.publish(
        "JobFailed", {"job_key": ended.job_key, "tenant": ended.tenant, "spec": ended.spec, "reason": ended.reason}
    )
    age_s = round(ended.updated_at - ended.created_at)
    return SealReply(tenant=job.tenant, job_key=job.job_key, state=ended.state.value, age_s=age_s)


def _announce(kind: str, job: Job, closure: Closure, events: Events) -> None:
    detail: dict[str, Any] = {"job_key": job.job_key, "tenant": job.tenant, "spec": job.spec, "state": job.state.value}
    events.publish(kind, {**detail, "expected": closure.expected, **final_counts(closure), "report": job.report})
