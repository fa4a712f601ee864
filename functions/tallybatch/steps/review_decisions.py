"""Decisions of people as an attempt of their own: outcome rows without a provider job, accepted in the ledger as any.

Every object is written once and every ledger call recognises its own effect, so that all may be done again at any time.
The list of the attempt's shards is written last: without it the attempt is not there.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tallybatch.contracts import ShardItem
from tallybatch.domain.closure import SubmissionEntry
from tallybatch.domain.errors import Conflict, ObjectDamaged
from tallybatch.domain.identity import sha256_hex, submission_key
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.outcomes import Outcome, OutcomeClass, RawRef
from tallybatch.domain.records import ShardRecord, encode_record
from tallybatch.domain.review import PEOPLE, Audit, Decided, Kind, ReviewDecision, decode_decision
from tallybatch.domain.rows import NOBODY, AcceptedAnswer, RecordClaim, ReviewRun, Submission
from tallybatch.domain.shards import ShardFile, ShardLimits, ShardWriter
from tallybatch.ports import ClaimOutcome, Ledger, Objects
from tallybatch.steps.job_context import JobContext
from tallybatch.steps.outcome_files import OutcomeFile, Placed, read_placed
from tallybatch.steps.submission_input import shard_records
from tallybatch.steps.transitions import change_job

_BATCH = 1000
_UNBOUNDED = ShardLimits(1 << 62, 1 << 62)


def standing_decisions(
    submissions: Iterable[Submission | SubmissionEntry], keys: JobKeys, objects: Objects
) -> dict[str, Decided]:
    """The last decision about each record, of all runs of the job, by record_id."""
    decided: dict[str, Decided] = {}
    for attempt in sorted(row.attempt for row in submissions if row.provider == PEOPLE):
        audit = msgspec.json.decode(objects.get(keys.audit(attempt)), type=Audit)
        for line in objects.get(keys.decisions(attempt)).split(b"\n"):
            if line:
                one = decode_decision(line)
                decided[one.record_id] = Decided(
                    one.record_id, one.business_key, one.decision.value, audit.by, audit.at, attempt
                )
    return decided


@dataclass(frozen=True, slots=True)
class _Decided:
    """A decision with its place in the stored file, and the record that it is about."""

    decision: ReviewDecision
    raw: RawRef
    record: ShardRecord
    record_key: str


def are_carried_out(run: ReviewRun, keys: JobKeys, objects: Objects) -> bool:
    return objects.head(keys.items(run.attempt)) is not None


def carry_out_late(run: ReviewRun, context: JobContext, objects: Objects, ledger: Ledger) -> None:
    """The same in a later run, if that of the decisions ended before it came to them. Decisions that can no longer
    stand, since another job has a record by now, are forgotten: their records are shown to people again."""
    try:
        carry_out(run, context, objects, ledger)
    except Conflict:
        change_job(ledger, context.keys.job_key, lambda row: replace(row, review=None) if row.review == run else None)


def carry_out(run: ReviewRun, context: JobContext, objects: Objects, ledger: Ledger) -> None:
    """Make the attempt of these decisions; doing it again changes nothing."""
    keys, kept = context.keys, context.retention("results")
    if are_carried_out(run, keys, objects):
        return
    body = objects.get(run.key)
    if sha256_hex(body) != run.sha256:
        raise ObjectDamaged("the decisions are not those that were handed in", where=objects.uri(run.key))
    objects.put_once(keys.decisions(run.attempt), body, content_type="application/x-ndjson", retention=kept)
    audit = Audit(
        by=run.by,
        at=run.at,
        attempt=run.attempt,
        file_sha256=run.file_sha256,
        sha256=run.sha256,
        decisions=run.counts,
    )
    audited = msgspec.json.format(msgspec.json.encode(audit), indent=1)
    objects.put_once(keys.audit(run.attempt), audited, content_type="application/json", retention=kept)
    decided = list(_in_order(_read(body, objects.uri(keys.decisions(run.attempt))), context, objects))
    shard = _store_shard(decided, run, context, objects)
    marker = submission_key(job_key=keys.job_key, shard_sha256=shard.sha256, attempt=run.attempt, generation=1)
    outcomes_key = keys.outcomes(run.attempt, marker)
    if objects.head(outcomes_key) is None:
        objects.put_once(outcomes_key, _conclude(decided, run, ledger, keys.job_key), retention=kept)
    counts = _settle(decided, outcomes_key, run, keys.job_key, objects, ledger)
    shard_id = f"d{run.attempt}-{shard.shard_id}"
    row = Submission(
        job_key=keys.job_key,
        tenant=keys.tenant,
        attempt=run.attempt,
        shard_id=shard_id,
        shard_sha256=shard.sha256,
        state=SubmissionState.RECONCILED,
        provider=PEOPLE,
        submission_key=marker,
        updated_at=run.at,
        owner=run.by,
        input_sha256=run.sha256,
        input_records=len(decided),
        outcomes_key=outcomes_key,
        counts=counts,
    )
    ledger.put_submission(row, expected_version=None)
    item = ShardItem(
        tenant=keys.tenant,
        job_key=keys.job_key,
        attempt=run.attempt,
        shard_id=shard_id,
        shard_sha256=shard.sha256,
        record_count=len(decided),
        provider=context.manifest.provider,
    )
    items = msgspec.json.encode([item.model_dump()])
    objects.put_once(keys.items(run.attempt), items, content_type="application/json", retention=kept)


def _read(body: bytes, uri: str) -> dict[str, dict[str, tuple[ReviewDecision, RawRef]]]:
    """Decisions with their places, by shard and record."""
    found: dict[str, dict[str, tuple[ReviewDecision, RawRef]]] = {}
    offset = 0
    for line in body.split(b"\n"):
        if line:
            decision = decode_decision(line)
            raw = RawRef(uri, offset, len(line), sha256_hex(line))
            found.setdefault(decision.shard_id, {})[decision.record_id] = decision, raw
        offset += len(line) + 1
    return found


def _in_order(
    decisions: dict[str, dict[str, tuple[ReviewDecision, RawRef]]], context: JobContext, objects: Objects
) -> Iterator[_Decided]:
    """In the order of the manifest, as every attempt's rows are."""
    record_key = context.identity.record_key
    for shard in context.manifest.shards:
        if (wanted := decisions.get(shard.shard_id)) is None:
            continue
        for record in shard_records(objects, context, shard.sha256):
            if (found := wanted.get(record.record_id)) is not None:
                key = found[0].record_key or record_key(record.record_id, record.source_version)
                yield _Decided(*found, record, key)


def _store_shard(decided: Sequence[_Decided], run: ReviewRun, context: JobContext, objects: Objects) -> ShardFile:
    with tempfile.TemporaryDirectory(prefix="tallybatch-") as folder:
        writer = ShardWriter(Path(folder), _UNBOUNDED)
        for one in decided:
            member = replace(
                one.record,
                tries=one.decision.tries,
                attempt=run.attempt,
                parent_job_key=context.manifest.job_key,
                parent_shard_id=one.decision.shard_id,
                retry_reason=PEOPLE,
            )
            writer.add(encode_record(member), 0)
        (shard,) = writer.close()
        with shard.path.open("rb") as body:
            objects.put_once(context.keys.shard(shard.sha256), body, retention=context.retention("working"))
    return shard


def _conclude(decided: Sequence[_Decided], run: ReviewRun, ledger: Ledger, job_key: str) -> bytes:
    """The outcome object. A record that another job has taken meanwhile waits for that job's answer instead."""
    lost = _not_ours([one.record_key for one in decided if _answers(one.decision)], run.attempt, ledger, job_key)
    file = OutcomeFile()
    file.extend(_outcome(one, run, elsewhere=one.record_key in lost) for one in decided)
    return file.close()


def _not_ours(record_keys: Sequence[str], attempt: int, ledger: Ledger, job_key: str) -> set[str]:
    lost: set[str] = set()
    for start in range(0, len(record_keys), _BATCH):
        claims = [RecordClaim(key, job_key, attempt) for key in record_keys[start : start + _BATCH]]
        given_up = []
        for result in ledger.claim_records(claims):
            if result.outcome is ClaimOutcome.FOREIGN and result.row is not None and result.row.owner == NOBODY:
                given_up.append(result.claim)
            elif result.outcome is not ClaimOutcome.MINE:
                lost.add(result.claim.record_key)
        if given_up:
            taken = ledger.take_over_records(given_up, from_job=NOBODY)
            lost |= {result.claim.record_key for result in taken if result.outcome is not ClaimOutcome.MINE}
    return lost


def _answers(decision: ReviewDecision) -> bool:
    """Whether the decision brings an answer; to accept a sampled record confirms the one that it has."""
    return decision.decision is Kind.ACCEPT and not decision.accepted_in


def _outcome(one: _Decided, run: ReviewRun, *, elsewhere: bool) -> Outcome:
    decision = one.decision
    bare = Outcome(
        cost_nano_usd=0,
        record_id=decision.record_id,
        record_key=one.record_key,
        business_key=decision.business_key,
        shard_id=decision.shard_id,
        attempt=run.attempt,
        tries=decision.tries,
        outcome=OutcomeClass.WAITING,
        reason=decision.reason,
        provider=PEOPLE,
        raw=one.raw,
        used=decision.used,
        output_cap=decision.output_cap,
    )
    if decision.decision is Kind.REJECT:
        return replace(bare, outcome=OutcomeClass.REJECTED)
    if decision.decision is Kind.REQUEUE:
        return replace(bare, outcome=OutcomeClass.REQUEUED)
    if decision.accepted_in:
        return replace(bare, outcome=OutcomeClass.CONFIRMED)
    if elsewhere:
        return replace(bare, reason="another job has the record by now; its answer counts")
    return replace(bare, outcome=OutcomeClass.SUCCEEDED, output=decision.output)


def _settle(
    decided: Sequence[_Decided], outcomes_key: str, run: ReviewRun, job_key: str, objects: Objects, ledger: Ledger
) -> dict[str, int]:
    """Carry the outcome object's conclusions into the ledger; returns its counts by class."""
    by_id = {one.decision.record_id: one.decision for one in decided}
    counts: Counter[str] = Counter()
    accepted: list[tuple[str, Placed]] = []
    rejected: list[str] = []
    withdrawn: dict[str, str] = {}
    for outcome, placed in read_placed(objects, outcomes_key):
        counts[outcome.outcome.value] += 1
        standing = by_id[outcome.record_id].accepted_in
        if outcome.outcome is OutcomeClass.SUCCEEDED:
            accepted.append((outcome.record_key, placed))
        elif outcome.outcome is OutcomeClass.REJECTED and not standing:
            rejected.append(outcome.record_key)
        elif outcome.outcome in (OutcomeClass.REJECTED, OutcomeClass.REQUEUED) and standing:
            withdrawn[outcome.record_key] = standing
    uri = objects.uri(outcomes_key)
    for start in range(0, len(accepted), _BATCH):
        batch = accepted[start : start + _BATCH]
        answers = [AcceptedAnswer(key, job_key, run.attempt, uri, *placed) for key, placed in batch]
        if not all(ledger.accept_records(answers)):
            raise Conflict("a decided record was taken by another job", where=f"job {job_key} attempt {run.attempt}")
    if rejected:
        claims = [RecordClaim(key, NOBODY, run.attempt) for key in rejected]
        ledger.take_over_records(claims, from_job=job_key)
    if withdrawn:
        ledger.withdraw_records(withdrawn)
    return dict(counts)
