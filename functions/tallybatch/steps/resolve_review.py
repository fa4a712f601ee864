"""Take decisions of people: checked line by line, put once, and entered into the job's row; the next run carries them
out.

The write of the row is what counts: of two files for one job at rest one wins it, and of one record in two files the
first decision stands. A file that is handed in again finds itself in the row, or its decisions among those that stand.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

import msgspec

from tallybatch.contracts import ReviewReply, ReviewRequest
from tallybatch.domain.errors import BadInput, Conflict, LedgerBusy, NotFound, Problem
from tallybatch.domain.lifecycle import JOB_FINAL, NOT_BEGUN
from tallybatch.domain.quality import AnswerCheck
from tallybatch.domain.review import (
    MAX_DECISIONS_BYTES,
    Decided,
    Parsed,
    QueueEntry,
    decode_entry,
    parse_decisions,
)
from tallybatch.domain.rows import Job, ReviewRun
from tallybatch.ports import Clock, Executions, Ledger, Objects
from tallybatch.steps.job_context import JobContext, load_job, spec_of_run
from tallybatch.steps.reopening import next_run, start
from tallybatch.steps.review_decisions import are_carried_out, standing_decisions
from tallybatch.steps.review_queue import queue_lines
from tallybatch.steps.transitions import change_job, job_of

_TRIES = 3


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    executions: Executions
    clock: Clock


def run(request: ReviewRequest, ports: Ports) -> ReviewReply:
    """Raises `BadInput` with every bad line, `LedgerBusy` while a run is at work on the job, `NotFound` for a job that
    is not there."""
    for _ in range(_TRIES):
        job = job_of(ports.ledger, request.job_key)
        context = load_job(ports.objects, job.tenant, job.job_key)
        data = _handed_in(request, context, ports.objects)
        file_sha256 = hashlib.sha256(data).hexdigest()
        if job.review is not None and job.review.file_sha256 == file_sha256:
            return _again(job, job.review, context, ports)
        if job.state not in JOB_FINAL:
            raise _at_work(job)
        if job.review is not None and not are_carried_out(job.review, context.keys, ports.objects):
            raise _left_undone(job, job.review)
        parsed = _parse(data, job, context, ports)
        if not parsed.decisions:
            return _reply(job, request.by, parsed)
        if (reopened := _enter(parsed, file_sha256, request.by, job, context, ports)) is not None:
            start(reopened, ports.objects.bucket, ports.executions)
            return _reply(reopened, request.by, parsed)
    raise LedgerBusy("the job's row changed under every try", where=f"job {request.job_key}")


def _handed_in(request: ReviewRequest, context: JobContext, objects: Objects) -> bytes:
    info = objects.head(request.decisions_key)
    if info is None:
        raise NotFound("the file of decisions is not there", where=request.decisions_key)
    if info.size > MAX_DECISIONS_BYTES:
        reason = f"it has {info.size} bytes; at most {MAX_DECISIONS_BYTES} are taken at a time"
        raise BadInput("the file of decisions is too large", [Problem(reason)], where=info.key, do="split it")
    data = objects.get(info.key)
    if info.key != context.keys.review_handed_in(hashlib.sha256(data).hexdigest()):
        raise Conflict("the file of decisions does not lie under its hash below this job", where=info.key)
    return data


def _again(job: Job, review: ReviewRun, context: JobContext, ports: Ports) -> ReviewReply:
    """The file was entered before. If its run was not started, it is; if that ended before it came to the decisions,
    the next one does."""
    deadline_s = _deadline_s(job, context, ports.objects)

    def change(now: Job) -> Job | None:
        if now.state not in JOB_FINAL or now.review != review:
            return None
        return next_run(now, now=ports.clock.now(), deadline_s=deadline_s)

    goes_on = job.state in JOB_FINAL and not are_carried_out(review, context.keys, ports.objects)
    if goes_on:
        job = change_job(ports.ledger, job.job_key, change)
    if job.state in NOT_BEGUN:
        start(job, ports.objects.bucket, ports.executions)
    return ReviewReply(
        job_key=job.job_key,
        state=job.state.value,
        attempt=review.attempt,
        by=review.by,
        applied=review.counts,
        repeated=not goes_on,
    )


def _left_undone(job: Job, review: ReviewRun) -> LedgerBusy:
    return LedgerBusy(
        f"what {review.by} decided is not carried out yet, so other decisions cannot be taken now",
        where=f"job {job.job_key}",
        why=f"the run that was to do it ended {job.state.value}: {job.reason}",
        do=f"mend that, run `tallybatch resume {job.job_key[:12]}`, and hand in what is left then",
    )


def _deadline_s(job: Job, context: JobContext, objects: Objects) -> float:
    return spec_of_run(objects, context, job.spec_digest).limits.deadline.total_seconds()


def _at_work(job: Job) -> LedgerBusy:
    review = job.review
    mine = review is not None and review.attempt == job.attempt
    return LedgerBusy(
        "the job is at work, so decisions cannot be taken now",
        where=f"job {job.job_key}",
        why=f"it carries out what {review.by} decided" if mine and review is not None else f"it is {job.state.value}",
        do="follow it to its end, export the queue again, and hand in what is left",
    )


def _parse(data: bytes, job: Job, context: JobContext, ports: Ports) -> Parsed:
    spec = context.spec
    checker = AnswerCheck.of(spec)

    def check(answer: str, record_input: msgspec.Raw) -> tuple[bytes, str]:
        if spec.is_embedding and not _is_vector(answer):
            return b"", "the spec asks for embeddings, so an output is a list of numbers"
        verdict = checker.check(answer, record_input)
        return verdict.output, verdict.reason

    decided = standing_decisions(ports.ledger.submissions(job.job_key), context.keys, ports.objects)
    return parse_decisions(
        data,
        queue_entries(job, context, ports.objects, decided),
        decided,
        check,
        plain_text=spec.output.schema_ is None and not spec.is_embedding,
        where="decisions",
    )


def _is_vector(text: str) -> bool:
    """One vector, or several of a native request. Those of a provider are checked where its results are read."""
    try:
        value = msgspec.json.decode(text, type=list[float | list[float]])
    except msgspec.DecodeError:
        return False
    return value != [] and [] not in value


def queue_entries(
    job: Job, context: JobContext, objects: Objects, decided: dict[str, Decided]
) -> dict[str, QueueEntry]:
    """What waits for a decision now: the queue of the job's last attempt, and what is undecided of its sample."""
    entries: dict[str, QueueEntry] = {}
    for line in queue_lines(job, context.keys, objects):
        entry = decode_entry(line)
        if not entry.accepted_in or entry.record_id not in decided:
            entries.setdefault(entry.record_id, entry)
    return entries


def _enter(parsed: Parsed, file_sha256: str, by: str, job: Job, context: JobContext, ports: Ports) -> Job | None:
    """The job's row with these decisions, None if somebody else was first."""
    body = b"".join(msgspec.json.encode(decision) + b"\n" for decision in parsed.decisions)
    sha256 = hashlib.sha256(body).hexdigest()
    key = context.keys.review_decisions(sha256)
    ports.objects.put_once(key, body, content_type="application/x-ndjson", retention=context.retention("results"))
    now = ports.clock.now()
    review = ReviewRun(
        attempt=job.attempt + 1,
        key=key,
        sha256=sha256,
        file_sha256=file_sha256,
        by=by,
        at=now,
        counts=_counts(parsed),
    )
    deadline_s = _deadline_s(job, context, ports.objects)
    return ports.ledger.put_job(
        next_run(job, now=now, deadline_s=deadline_s, review=review), expected_version=job.version
    )


def _counts(parsed: Parsed) -> dict[str, int]:
    return dict(sorted(Counter(decision.decision.value for decision in parsed.decisions).items()))


def _reply(job: Job, by: str, parsed: Parsed) -> ReviewReply:
    return ReviewReply(
        job_key=job.job_key,
        state=job.state.value,
        attempt=job.attempt,
        by=by,
        applied=_counts(parsed),
        already=[msgspec.to_builtins(one) for one in parsed.already],
        undecided=parsed.undecided,
    )
