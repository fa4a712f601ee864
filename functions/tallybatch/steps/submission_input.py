"""What a submission sends: claims on its records first, then exactly the bytes of the request file."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, cast

import msgspec
import zstandard
from msgspec.structs import replace

from tallybatch.contracts import ShardItem
from tallybatch.domain.errors import Conflict
from tallybatch.domain.lifecycle import JOB_FINAL, SubmissionState
from tallybatch.domain.outcomes import plain_word
from tallybatch.domain.records import ShardRecord, decode_record
from tallybatch.domain.rows import NOBODY, AcceptedAnswer, RecordClaim, Submission
from tallybatch.domain.shards import ZSTD_LEVEL, read_zstd_lines
from tallybatch.ports import ClaimOutcome, ClaimResult, Formats, Ledger, Objects
from tallybatch.steps.job_context import JobContext
from tallybatch.steps.rendering import Requests

_CLAIM_BATCH = 1000
_S = SubmissionState
_OUT = frozenset({_S.SUBMITTING, _S.SUBMIT_UNKNOWN, _S.SUBMITTED, _S.RUNNING, _S.TERMINAL, _S.COLLECTED})
"""States in which money may be spent, or is spent, on records that are not reconciled."""


class Excluded(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record that is not sent: `answer` when it is answered already, else `owner` has it in flight."""

    record_id: str
    answer: AcceptedAnswer | None = None
    owner: str = ""


RecordKey = Callable[[str, str], str]
"""Gives the record_key of a record_id and a source version."""


@dataclass(frozen=True, slots=True)
class TargetSlots:
    """The slots that a record has for its one accepted answer: at the target it goes to now, and at those of the spec
    before and after. Targets of the same model share one."""

    own: RecordKey
    earlier: tuple[RecordKey, ...]
    later: tuple[RecordKey, ...]

    @staticmethod
    def of(context: JobContext, item: ShardItem) -> TargetSlots:
        targets = context.spec.targets
        here = context.for_target(item.provider, item.model).spec
        place = next(n for n, there in enumerate(targets) if there.place == here.place)
        keys = [there.identity(context.manifest.tenant).record_key for there in targets]
        others = [n for n, there in enumerate(targets) if there.model_resolved != here.model_resolved]
        return TargetSlots(
            keys[place],
            tuple(keys[n] for n in others if n < place),
            tuple(keys[n] for n in others if n > place),
        )


@dataclass(frozen=True, slots=True)
class SubmissionInput:
    """`sha256` of the request file; `sent`, `reused` and `waiting` count the shard's records."""

    request_key: str
    sha256: str
    sent: int
    reused: int
    waiting: int

    def noted_in(self, row: Submission) -> Submission:
        return replace(
            row,
            input_sha256=self.sha256,
            input_records=self.sent,
            reused_records=self.reused,
            waiting_records=self.waiting,
        )


def shard_records(objects: Objects, context: JobContext, sha256: str) -> Iterator[ShardRecord]:
    with objects.open(context.keys.shard(sha256)) as stream:
        yield from map(decode_record, read_zstd_lines(stream))


def read_excluded(objects: Objects, key: str) -> dict[str, Excluded]:
    decode = msgspec.json.Decoder(Excluded).decode
    with objects.open(key) as stream:
        return {row.record_id: row for row in map(decode, read_zstd_lines(stream))}


def prepare_input(
    item: ShardItem, submission_key: str, context: JobContext, *, objects: Objects, ledger: Ledger, formats: Formats
) -> SubmissionInput:
    """Claim the shard's records at their target and write the request file. Doing it again changes nothing: what was
    excluded the first time stays excluded. `context` is the job's own, not that of the target."""
    claims_key = context.keys.claims(item.attempt, submission_key)
    if objects.head(claims_key) is None:
        excluded = list(_claim(item, context, objects=objects, ledger=ledger))
        body = b"".join(msgspec.json.encode(row) + b"\n" for row in excluded)
        packed = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body)
        with suppress(Conflict):  # another worker of this submission may have been first; then its view counts
            objects.put_once(claims_key, packed, retention=context.retention("working"))
    not_sent = read_excluded(objects, claims_key)
    return _write_request(item, submission_key, context, not_sent, objects, formats)


def _write_request(
    item: ShardItem,
    submission_key: str,
    context: JobContext,
    not_sent: dict[str, Excluded],
    objects: Objects,
    formats: Formats,
) -> SubmissionInput:
    requests = Requests(context.for_target(item.provider, item.model).spec, formats)
    digest = hashlib.sha256()
    sent = 0
    with tempfile.TemporaryFile() as file:
        for record in shard_records(objects, context, item.shard_sha256):
            if record.record_id not in not_sent:
                line = requests.line(record)
                digest.update(line)
                file.write(line)
                sent += 1
        key = context.keys.request(item.attempt, submission_key)
        objects.put_once(
            key, cast("BinaryIO", file), content_type="application/x-ndjson", retention=context.retention("working")
        )
    reused = sum(row.answer is not None for row in not_sent.values())
    return SubmissionInput(key, digest.hexdigest(), sent, reused, len(not_sent) - reused)


def _claim(item: ShardItem, context: JobContext, *, objects: Objects, ledger: Ledger) -> Iterator[Excluded]:
    slots = TargetSlots.of(context, item)
    batch: list[ShardRecord] = []
    for record in shard_records(objects, context, item.shard_sha256):
        batch.append(record)
        if len(batch) >= _CLAIM_BATCH:
            yield from _claim_records(item, batch, slots, ledger)
            batch = []
    if batch:
        yield from _claim_records(item, batch, slots, ledger)


def _claim_records(
    item: ShardItem, records: list[ShardRecord], slots: TargetSlots, ledger: Ledger
) -> Iterator[Excluded]:
    """Claim each record under the key of the target it goes to now, and then let go of those before. One that another
    job had answered at a later target, or has there, is not asked here: it would be paid for twice."""
    elsewhere = _elsewhere(item, records, slots, ledger)
    yield from elsewhere.values()
    batch: list[RecordClaim] = []
    ids: dict[str, str] = {}
    for record in records:
        if record.record_id not in elsewhere:
            key = slots.own(record.record_id, record.source_version)
            ids[key] = record.record_id
            batch.append(RecordClaim(key, item.job_key, item.attempt, plain_word(record.retry_reason)))
    if batch:
        yield from _claim_batch(item, batch, ids, ledger)
    for earlier in slots.earlier:
        left = [RecordClaim(earlier(r.record_id, r.source_version), NOBODY, item.attempt) for r in records]
        ledger.take_over_records(left, from_job=item.job_key)


def _elsewhere(item: ShardItem, records: list[ShardRecord], slots: TargetSlots, ledger: Ledger) -> dict[str, Excluded]:
    """By record_id. Nobody waits here for a target that comes before, so that no two jobs wait for each other."""
    found: dict[str, Excluded] = {}
    at_work: dict[str, bool] = {item.job_key: False, NOBODY: False}
    for later in slots.later:
        keys = {later(r.record_id, r.source_version): r.record_id for r in records if r.record_id not in found}
        for key, row in ledger.records(list(keys)).items():
            if row.answer is not None:
                found[keys[key]] = Excluded(keys[key], answer=row.answer)
                continue
            if row.owner not in at_work:
                at_work[row.owner] = _may_still_answer(row.owner, ledger)
            if at_work[row.owner]:
                found[keys[key]] = Excluded(keys[key], owner=row.owner)
    return found


def _claim_batch(item: ShardItem, batch: list[RecordClaim], ids: dict[str, str], ledger: Ledger) -> Iterator[Excluded]:
    """A later attempt takes its records over from its own job: one write each, as for a first claim, that leaves the
    attempt and its reason in the row."""
    foreign: dict[str, list[RecordClaim]] = {}
    retried = item.attempt > 1
    for result in ledger.take_over_records(batch, from_job=item.job_key) if retried else ledger.claim_records(batch):
        if result.outcome is ClaimOutcome.FOREIGN:
            owner = result.row.owner if result.row else ""
            foreign.setdefault(owner, []).append(result.claim)
        elif result.outcome is ClaimOutcome.ACCEPTED:
            yield _excluded(result, ids)
    for owner, claims in foreign.items():
        if _may_still_answer(owner, ledger):
            yield from (Excluded(ids[claim.record_key], owner=owner) for claim in claims)
            continue
        for result in ledger.take_over_records(claims, from_job=owner):
            if result.outcome is not ClaimOutcome.MINE:
                yield _excluded(result, ids)


def _may_still_answer(owner: str, ledger: Ledger) -> bool:
    """Whether a job is at work, or has ended while people decide about records of it, or while a submission of it may
    still be out at a provider."""
    job = ledger.job(owner)
    if job is None:
        return False
    if job.state not in JOB_FINAL or job.counts.get("in_review"):
        return True
    return any(row.state in _OUT for row in ledger.submissions(owner))


def _excluded(result: ClaimResult, ids: dict[str, str]) -> Excluded:
    record_id = ids[result.claim.record_key]
    row = result.row
    if row is not None and row.answer is not None:
        return Excluded(record_id, answer=row.answer)
    return Excluded(record_id, owner=row.owner if row else "")
