"""The whole story of one record, from the stored objects: its input, every attempt, what people decided, publication.

Streams: of each object only the lines that can be the record's are decoded, and a search ends with the shard that
has it. Memory does not grow with the job.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tallybatch.contracts import ShardItem
from tallybatch.domain.errors import NotFound
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.layout import ResultKeys
from tallybatch.domain.lines import CHUNK_BYTES, newline_split
from tallybatch.domain.manifest import ShardEntry
from tallybatch.domain.outcomes import NO_OUTPUT, OVERRULING, Outcome, OutcomeClass
from tallybatch.domain.prices import usd
from tallybatch.domain.records import ShardRecord, decode_record
from tallybatch.domain.retries import Disposition
from tallybatch.domain.review import PEOPLE, Audit, decode_decision
from tallybatch.domain.rows import Job, RecordRow, Submission
from tallybatch.domain.shards import read_zstd_lines
from tallybatch.ports import Ledger, Objects
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.job_sets import attempt_items
from tallybatch.steps.outcome_files import decode_outcome
from tallybatch.steps.publish_shard import Part
from tallybatch.steps.reconcile_job import read_closure

Story = dict[str, Any]

_SETTLED = frozenset({Disposition.ACCEPTED.value, Disposition.FAILED.value})


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger


def run(job: Job, ref: str, ports: Ports) -> Story:
    """`ref` is a business key or a record_id. Raises `NotFound` if the job has no such record. Times are Unix seconds.
    Holds the record's answers: for whoever may read the results, and for no log."""
    if not job.expected:
        raise NotFound(
            "the job's input was refused, so it has no records",
            where=f"job {job.job_key}",
            why=job.reason,
            do=f"look at its report: tallybatch report {job.job_key[:12]}",
        )
    context = load_job(ports.objects, job.tenant, job.job_key)
    shard, record = _find(ref, context, ports.objects)
    record_key = context.identity.record_key(record.record_id, record.source_version)
    attempts = list(_attempts(job, shard, record, context, ports))
    row = _slot(record, context, ports.ledger)
    return {
        "job_key": job.job_key,
        "state": job.state.value,
        "business_key": record.business_key,
        "record_id": record.record_id,
        "record_key": row.record_key if row else record_key,
        "source_version": record.source_version,
        "input_sha256": sha256_hex(bytes(record.input)),
        "shard": {"shard_id": shard.shard_id, "uri": ports.objects.uri(context.keys.shard(shard.sha256))},
        "attempts": attempts,
        "stands": _stands(attempts, job, context, ports.objects),
        "ledger": {
            "owner": row.owner if row else None,
            "attempt": row.attempt if row else None,
            "accepted_in": row.answer.uri if row and row.answer else None,
        },
        "published": _published(job, shard, record, context, ports.objects),
    }


def _slot(record: ShardRecord, context: JobContext, ledger: Ledger) -> RecordRow | None:
    """Of the spec's targets, the one whose slot holds the answer, else the last that the record came to."""
    keys = [
        there.identity(context.manifest.tenant).record_key(record.record_id, record.source_version)
        for there in context.spec.targets
    ]
    found = ledger.records(keys)
    rows = [found[key] for key in keys if key in found]
    return next((row for row in rows if row.answer), rows[-1] if rows else None)


def _find(ref: str, context: JobContext, objects: Objects) -> tuple[ShardEntry, ShardRecord]:
    """The manifest's shards one after the other, until one has it. Most lines are passed over by their bytes."""
    ids = (_quoted("record_id", ref), _quoted("business_key", ref))
    for shard in context.manifest.shards:
        with objects.open(context.keys.shard(shard.sha256)) as stream:
            for line in read_zstd_lines(stream):
                if ids[0] in line or ids[1] in line:
                    record = decode_record(line)
                    if ref in (record.record_id, record.business_key):
                        return shard, record
    raise NotFound(
        "the job has no such record",
        where=f"job {context.keys.job_key}",
        why=f"none of its {context.manifest.expected_record_count} records has this business key or record_id",
        do="give one or the other as it stands in the dropped file, or in a result line",
    )


def _quoted(field: str, value: str) -> bytes:
    return b'"%b":%b' % (field.encode(), msgspec.json.encode(value))


def _attempts(job: Job, shard: ShardEntry, record: ShardRecord, context: JobContext, ports: Ports) -> Iterator[Story]:
    """What happened to the record, attempt by attempt; an attempt that did not have it is left out."""
    keys, objects = context.keys, ports.objects
    rows = {(row.attempt, row.shard_id): row for row in ports.ledger.submissions(job.job_key)}
    needle = _quoted("record_id", record.record_id)
    for attempt in range(1, job.attempt + 1):
        for item in attempt_items(objects, keys, attempt):
            if _is_of_the_manifest(item, context) and item.shard_id != shard.shard_id:
                continue
            row = rows.get((attempt, item.shard_id))
            if row is not None and row.outcomes_key:
                outcome = _outcome(objects, row.outcomes_key, needle, record.record_id)
                if outcome is None:
                    continue
                told = _told(outcome, row, context)
                if row.provider == PEOPLE:
                    told["decision"] = _decision(attempt, record.record_id, context, objects)
                yield told
            elif _holds(item, needle, record.record_id, context, objects):
                yield {"attempt": attempt, "shard_id": item.shard_id, **_handed_over(row), "outcome": None}


def _is_of_the_manifest(item: ShardItem, context: JobContext) -> bool:
    return any(item.shard_id == shard.shard_id for shard in context.manifest.shards)


def _outcome(objects: Objects, key: str, needle: bytes, record_id: str) -> Outcome | None:
    with objects.open(key) as stream:
        for line in read_zstd_lines(stream):
            if needle in line:
                outcome = decode_outcome(line)
                if outcome.record_id == record_id:
                    return outcome
    return None


def _holds(item: ShardItem, needle: bytes, record_id: str, context: JobContext, objects: Objects) -> bool:
    with objects.open(context.keys.shard(item.shard_sha256)) as stream:
        return any(needle in line and decode_record(line).record_id == record_id for line in read_zstd_lines(stream))


def _handed_over(row: Submission | None) -> Story:
    """How far the record's submission came, None for one that was never made."""
    if row is None:
        return {"submission": None}
    return {
        "submission": {
            "submission_key": row.submission_key,
            "state": row.state.value,
            "generation": row.generation,
            "provider": row.provider,
            "model": row.model or None,
            "provider_job_id": row.provider_job_id or None,
            "submitted_at": row.submitted_at or None,
            "terminal_at": row.terminal_at or None,
        }
    }


def _told(outcome: Outcome, row: Submission, context: JobContext) -> Story:
    policy = context.retry_policy
    follows = policy.decision(
        outcome.outcome, outcome.tries, overdue=False, used=outcome.used, output_cap=outcome.output_cap
    ).disposition
    return {
        "attempt": outcome.attempt,
        "shard_id": row.shard_id,
        **_handed_over(row),
        "outcome": outcome.outcome.value,
        "follows": follows.value,
        "tries": outcome.tries,
        "code": outcome.code,
        "reason": outcome.reason,
        "notes": list(outcome.notes),
        "provider": outcome.provider,
        "provider_job_id": outcome.provider_job_id or None,
        "provider_request_id": outcome.provider_request_id or None,
        "model_version": outcome.model_version or None,
        "finish_reason": outcome.finish_reason or None,
        "tokens": msgspec.to_builtins(outcome.usage),
        "cost_usd": usd(outcome.cost_nano_usd),
        "price": outcome.price or None,
        "raw": msgspec.to_builtins(outcome.raw) if outcome.raw is not None else None,
        "reused_from": outcome.reused_from or None,
        "output": msgspec.json.decode(outcome.output) if bytes(outcome.output) != bytes(NO_OUTPUT) else None,
        "outcomes": row.outcomes_key,
    }


def _decision(attempt: int, record_id: str, context: JobContext, objects: Objects) -> Story | None:
    audit = msgspec.json.decode(objects.get(context.keys.audit(attempt)), type=Audit)
    for line in objects.get(context.keys.decisions(attempt)).split(b"\n"):
        if line:
            one = decode_decision(line)
            if one.record_id == record_id:
                return {"decision": one.decision.value, "by": audit.by, "at": audit.at, "reason": one.reason}
    return None


def _stands(attempts: list[Story], job: Job, context: JobContext, objects: Objects) -> str:
    """Where the record is now, in a word: accepted, failed, review, retry, resume, or not begun."""
    last: Story | None = None
    settled = False
    overruling = {outcome.value for outcome in OVERRULING}
    for told in attempts:
        if not settled or told["outcome"] in overruling:
            last, settled = told, told.get("follows") in _SETTLED
    if last is None:
        return "not begun"
    if last["outcome"] is None and last["submission"] is not None:
        return Disposition.RESUME.value
    if last["outcome"] is None:
        return (Disposition.FAILED if _is_overdue(job, context, objects) else Disposition.RETRY).value
    if not settled and _is_overdue(job, context, objects):
        policy = context.retry_policy
        return policy.decide(OutcomeClass(last["outcome"]), last["tries"], overdue=True).value
    return str(last["follows"])


def _is_overdue(job: Job, context: JobContext, objects: Objects) -> bool:
    """Whether the last closure was made after the deadline, so that what was open has failed."""
    if objects.head(context.keys.closure(job.attempt)) is None:
        return False
    return read_closure(objects, context.keys, job.attempt).overdue


def _published(job: Job, shard: ShardEntry, record: ShardRecord, context: JobContext, objects: Objects) -> Story | None:
    """Where readers find the record; None if they do not."""
    results = ResultKeys(job.tenant, job.spec, job.dataset_version)
    if objects.head(results.current) is None:
        return None
    current = msgspec.json.decode(objects.get(results.current))
    entry = next((entry for entry in current["sources"].values() if entry["job_key"] == job.job_key), None)
    if entry is None:
        return None
    key = context.keys.published(entry.get("attempt", job.attempt), shard.shard_id)
    if objects.head(key) is None:
        return None
    part = msgspec.json.decode(objects.get(key), type=Part)
    if not part.records or not _is_in(part, record, objects):
        return None
    return {
        "part": objects.uri(part.key),
        "sha256": part.sha256,
        "current": objects.uri(results.current),
        "certificate": entry["certificate"],
        "partial": bool(entry.get("partial")),
    }


def _is_in(part: Part, record: ShardRecord, objects: Objects) -> bool:
    needle = _quoted("record_id", record.record_id)
    with objects.open(part.key) as stream:
        plain = gzip.GzipFile(fileobj=stream) if part.key.endswith(".gz") else stream
        return any(needle in line for line in newline_split(iter(lambda: plain.read(CHUNK_BYTES), b"")))
