"""Publish: report, certificate, then one atomic switch of current.json. Each step may be repeated at any point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from tallybatch.contracts import JobInput, SealReply
from tallybatch.domain.closure import Closure
from tallybatch.domain.errors import LedgerBusy, NotClosed
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
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.previous_job import note_latest, previous_report
from tallybatch.steps.publish_shard import Part
from tallybatch.steps.quality_gates import label_distribution, read_judgement
from tallybatch.steps.reconcile_job import read_closure
from tallybatch.steps.review_queue import ReviewQueue
from tallybatch.steps.transitions import advance_job

_SWITCH_TRIES = 20


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
    parts = _parts(closure, context, ports.objects)
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
    _switch(results, certified, parts, job, context, ports.objects)
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
    parts = _parts(closure, context, objects)
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
    _switch(results, certified, parts, job, context, objects)
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


def _parts(closure: Closure, context: JobContext, objects: Objects) -> list[Part]:
    """Raises `NotClosed` unless the parts hold exactly the accepted records."""
    decode = msgspec.json.Decoder(Part).decode
    parts = [
        decode(objects.get(context.keys.published(closure.attempt, shard.shard_id)))
        for shard in context.manifest.shards
    ]
    published = sum(part.records for part in parts)
    if published != closure.succeeded:
        raise NotClosed(
            f"the parts hold {published} records, {closure.succeeded} were accepted", where=f"job {closure.job_key}"
        )
    return [part for part in parts if part.records]


def _switch(
    results: ResultKeys, certified: Certified, parts: list[Part], job: Job, context: JobContext, objects: Objects
) -> None:
    """Put this job's parts into current.json: readers see the old set or the new one. A job for a newer state of the
    same file replaces the older one's, and a job's later attempt the earlier one's, never the other way round. Newer is
    what was dropped later, whichever event came first."""
    for _ in range(_SWITCH_TRIES):
        info = objects.head(results.current)
        current: dict[str, Any] = msgspec.json.decode(objects.get(results.current)) if info else {"sources": {}}
        sources: dict[str, Any] = current["sources"]
        entry = _entry(certified, parts, job, context, objects)
        there = sources.get(context.manifest.source.key)
        if there is not None and _age(there) >= _age(entry):
            return
        sources[context.manifest.source.key] = entry
        body = msgspec.json.encode({"current_version": 1, "sources": dict(sorted(sources.items()))})
        body = msgspec.json.format(body, indent=1) + b"\n"
        etag = info.etag if info else None
        kept = context.retention("results")
        if objects.put_if_match(results.current, body, etag=etag, content_type="application/json", retention=kept):
            return
    raise LedgerBusy("current.json changed under every try", where=results.current)


def _age(entry: dict[str, Any]) -> tuple[float, float, str, int]:
    """S3 tells whole seconds: of two drops within one, the job that was prepared later counts."""
    return entry.get("dropped_at", 0), entry["created_at"], entry["job_key"], entry.get("attempt", 0)


def _entry(certified: Certified, parts: list[Part], job: Job, context: JobContext, objects: Objects) -> dict[str, Any]:
    certificate = certified.certificate
    asked = {"closed": False, "partial": True, "requested_by": certificate.requested_by}
    return {
        "job_key": certificate.job_key,
        "created_at": context.manifest.created_at,
        "dropped_at": job.dropped_at,
        "attempt": certificate.attempts,
        **(asked if certificate.partial else {}),
        "certificate": objects.uri(certified.key),
        "certificate_sha256": certificate.sha256,
        "counts": {
            "expected": certificate.expected,
            "succeeded": certificate.succeeded,
            "reused": certificate.reused,
            "failed": sum(certificate.failed.values()),
        },
        "parts": [
            {"uri": objects.uri(part.key), "sha256": part.sha256, "bytes": part.bytes, "records": part.records}
            for part in parts
        ],
    }
