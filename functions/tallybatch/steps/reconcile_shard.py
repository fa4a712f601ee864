"""Reconcile, Validate output: one outcome per record of the shard, and each answer that passes is accepted at once.

The outcome object is written before the ledger accepts from it; when it is there already, it is what counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice, starmap

import msgspec
from msgspec.structs import replace

from tallybatch.contracts import ShardItem
from tallybatch.domain.billing import Biller, settle
from tallybatch.domain.errors import Conflict, NotFound, Permanent
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.outcomes import ACCEPTED, SUCCEEDED, Outcome, OutcomeClass, Usage, plain_word
from tallybatch.domain.quality import UNFIT
from tallybatch.domain.records import ShardRecord
from tallybatch.domain.retries import FINAL, RetryPolicy
from tallybatch.domain.rows import NOBODY, AcceptedAnswer, RecordClaim, Submission
from tallybatch.domain.tally import ShardTally, Tallied
from tallybatch.ports import META, Clock, Formats, Ledger, Objects
from tallybatch.steps.collect_shard import GHOST, ghost_prefix
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.outcome_files import FRAME_LINES, OutcomeFile, Placed, fetch_accepted, read_placed
from tallybatch.steps.outcome_rows import UNKNOWN_CODE, RecordOutcomes, price_of
from tallybatch.steps.raw_channels import read_channel, read_ghost
from tallybatch.steps.submission_input import Excluded, read_excluded, shard_records
from tallybatch.steps.transitions import change_submission

_ACCEPT_BATCH = 1000
_CODES_TOLD = 20
_SETTLED = frozenset({SubmissionState.COLLECTED, SubmissionState.EMPTY, SubmissionState.REFUSED})


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    clock: Clock
    formats: Formats


def run(item: ShardItem, ports: Ports) -> dict[str, int]:
    """Returns the counts by outcome class. Reconciling again changes nothing."""
    row = ports.ledger.submission(item.job_key, item.attempt, item.shard_id)
    if row is None:
        raise NotFound("this shard was never submitted", where=f"{item.job_key} {item.shard_id}")
    if row.state is SubmissionState.RECONCILED:
        return row.counts
    if row.state not in _SETTLED:
        raise Permanent(
            "the submission is still out",
            where=f"{item.job_key} {item.shard_id}",
            why=f"it is {row.state}; its records would be taken for missing and paid again",
            do="poll and collect first",
        )
    context = load_job(ports.objects, item.tenant, item.job_key).for_target(row.provider, row.model)
    records = list(shard_records(ports.objects, context, item.shard_sha256))
    key = context.keys.outcomes(item.attempt, row.submission_key)
    concluded = ports.objects.head(key) is not None
    tally = _tally(row, records, context, ports, concluded=concluded)
    told = _read(key, context, ports.objects) if concluded else _conclude(row, records, tally, context, ports)
    _accept(row, told, ports.objects.uri(key), ports.ledger)
    _give_up(row, told, ports.ledger)
    counts = {outcome.value: count for outcome, count in told.counts.items()}
    usage = tally.usage
    price = price_of(row, context)
    costs = settle(
        Biller(price),
        tally,
        told.costs,
        told.unpriced,
        told=row.provider_tokens,
        ghosts_told=row.ghost_tokens,
        lost=min(told.counts[OutcomeClass.MISSING], tally.anomalies["unparsable"]),
        unread_jobs=row.unread_jobs,
    )
    if told.drifted:
        tally.anomalies["model_drift"] = told.drifted
    if told.unknown_codes:
        tally.anomalies["unknown_code"] = told.unknown_codes.total()

    def reconciled(now: Submission) -> Submission | None:
        if now.state is SubmissionState.RECONCILED:
            return None
        return replace(
            now,
            state=SubmissionState.RECONCILED,
            outcomes_key=key,
            counts=counts,
            tokens=msgspec.to_builtins(usage),
            duplicate_tokens=_total(tally.ghost_usage),
            price=price.id if price else "",
            cost_nano_usd=costs.total,
            costs=costs.by_class,
            duplicate_cost_nano_usd=costs.duplicates,
            unpriced=costs.unpriced,
            schema_valid=told.schema_valid,
            anomalies={**now.anomalies, **tally.anomalies},
            unknown_codes=dict(told.unknown_codes.most_common(_CODES_TOLD)),
            updated_at=ports.clock.now(),
        )

    change_submission(ports.ledger, item.job_key, item.attempt, item.shard_id, reconciled)
    return counts


def _total(usages: list[Usage]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for usage in usages:
        total.update(msgspec.to_builtins(usage))
    return dict(total)


def _tally(
    row: Submission, records: list[ShardRecord], context: JobContext, ports: Ports, *, concluded: bool
) -> ShardTally:
    """Read every channel. Lines that name no record of ours are quarantined with their bytes, before anything is
    concluded."""
    tally = ShardTally(record.record_id for record in records)
    provider_format = ports.formats(context.spec)
    strays: list[bytes] = []
    for channel in sorted(name for name in row.channels if not name.startswith((GHOST, META))):
        strays += read_channel(row.channels[channel], tally, provider_format, ports.objects)
    tally.believe(row.provider_tokens)
    disagree = _counts_disagree(row, tally)
    for record_id, calls in row.lost_calls.items():
        tally.add_lost(record_id, calls)
    for ghost in row.ghosts:
        for channel in sorted(name for name in row.channels if name.startswith(ghost_prefix(ghost))):
            read_ghost(ghost, row.channels[channel], tally, provider_format, ports.objects)
    if strays and not concluded:
        body = b"".join(line + b"\n" for line in strays)
        ports.objects.put_once(context.keys.unknown_ids(row.submission_key), body, content_type="application/x-ndjson")
    if disagree:
        tally.anomalies["counts_disagree"] += 1
    return tally


def _counts_disagree(row: Submission, tally: ShardTally) -> bool:
    """Whether the provider counts another total than it was sent, or more rows than its files hold. The files win."""
    told = row.progress
    if told.get("total", 0) not in (0, row.input_records):
        return True
    ended = told.get("completed", 0) + told.get("failed", 0)
    return ended > 0 and ended > sum(back is not None for back in tally.returned())


@dataclass
class _Told:
    """What an outcome object says: records by class, the accepted answers by record_key with their places, and the
    record_keys of those that failed for good."""

    counts: Counter[OutcomeClass] = field(default_factory=Counter)
    accepted: list[tuple[str, Placed]] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    drifted: int = 0
    unknown_codes: Counter[str] = field(default_factory=Counter)
    costs: Counter[OutcomeClass] = field(default_factory=Counter)
    """Nano-dollars by class."""
    unpriced: int = 0
    schema_valid: int = 0
    """Of the unqualified answers."""

    def note_all(self, outcomes: list[Outcome], policy: RetryPolicy) -> None:
        """`note` of each. Successes of which there is nothing more to say are most, and summed together."""
        plain = [row.cost_nano_usd for row in outcomes if row.outcome is SUCCEEDED and not row.notes]
        if plain:
            self.counts[SUCCEEDED] += len(plain)
            self.costs[SUCCEEDED] += sum(filter(None, plain))
            self.unpriced += plain.count(None)
        if len(plain) < len(outcomes):
            for row in outcomes:
                if row.outcome is not SUCCEEDED or row.notes:
                    self.note(row, policy)

    def note(self, outcome: Outcome, policy: RetryPolicy) -> None:
        what, cost = outcome.outcome, outcome.cost_nano_usd
        self.counts[what] += 1
        if cost is None:
            self.unpriced += 1
        elif cost:
            self.costs[what] += cost
        if outcome.notes:
            self.drifted += "model_drift" in outcome.notes
        if what in ACCEPTED:
            return
        if what is OutcomeClass.UNQUALIFIED:
            self.schema_valid += not (outcome.code or outcome.reason.startswith(UNFIT))
        if UNKNOWN_CODE in outcome.notes:
            self.unknown_codes[plain_word(outcome.code)] += 1
        decided = policy.decision(
            outcome.outcome, outcome.tries, overdue=False, used=outcome.used, output_cap=outcome.output_cap
        )
        if decided.disposition in FINAL:
            self.given_up.append(outcome.record_key)


def _read(key: str, context: JobContext, objects: Objects) -> _Told:
    """An earlier reconciliation's conclusions stand, whatever this version of the code would make of the lines."""
    told, policy = _Told(), context.retry_policy
    for outcome, placed in read_placed(objects, key):
        told.note(outcome, policy)
        if outcome.outcome is SUCCEEDED:
            told.accepted.append((outcome.record_key, placed))
    return told


def _conclude(
    row: Submission, records: list[ShardRecord], tally: ShardTally, context: JobContext, ports: Ports
) -> _Told:
    """Write the outcome object."""
    excluded = read_excluded(ports.objects, context.keys.claims(row.attempt, row.submission_key))
    reused = _reused(excluded, ports.objects)
    builder = RecordOutcomes(row, context)
    policy = context.retry_policy

    def outcome_of(record: ShardRecord, back: Tallied | None) -> Outcome:
        if record.record_id in reused:
            return builder.reused(record, reused[record.record_id])
        if record.record_id in excluded:
            return builder.waiting(record, excluded[record.record_id].owner)
        return builder.returned(record, back)

    pairs = zip(records, tally.returned(), strict=True)
    outcomes = starmap(outcome_of if excluded else builder.returned, pairs)
    file = OutcomeFile()
    told = _Told()
    accepted: list[str] = []
    """The record_key of each line that is an accepted answer, else ""."""
    while rows := list(islice(outcomes, FRAME_LINES)):
        told.note_all(rows, policy)
        file.extend(rows)
        accepted += [row.record_key if row.outcome is SUCCEEDED else "" for row in rows]
    key = context.keys.outcomes(row.attempt, row.submission_key)
    ports.objects.put_once(key, file.close(), retention=context.retention("results"))
    told.accepted = [(key, placed) for key, placed in zip(accepted, file.placed, strict=True) if key]
    return told


def _accept(row: Submission, told: _Told, uri: str, ledger: Ledger) -> None:
    answers = [
        AcceptedAnswer(record_key, row.job_key, row.attempt, uri, *placed) for record_key, placed in told.accepted
    ]
    for start in range(0, len(answers), _ACCEPT_BATCH):
        batch = answers[start : start + _ACCEPT_BATCH]
        refused = [answer for answer, ok in zip(batch, ledger.accept_records(batch), strict=True) if not ok]
        if refused:
            raise Conflict(
                f"{len(refused)} answers were not accepted: another job owns or has answered these records",
                where=f"job {row.job_key} shard {row.shard_id} record_key {refused[0].record_key}",
                do="run the job again; it will reuse the accepted answers",
            )


def _give_up(row: Submission, told: _Told, ledger: Ledger) -> None:
    """Let go of records that failed for good, or two jobs that each failed a record of the other's would wait for each
    other until their deadline."""
    if told.given_up:
        claims = [RecordClaim(record_key, NOBODY, row.attempt) for record_key in told.given_up]
        ledger.take_over_records(claims, from_job=row.job_key)


def _reused(excluded: dict[str, Excluded], objects: Objects) -> dict[str, tuple[AcceptedAnswer, Outcome]]:
    answers = [entry.answer for entry in excluded.values() if entry.answer is not None]
    by_key = {outcome.record_key: (answer, outcome) for answer, outcome in fetch_accepted(objects, answers)}
    return {
        record_id: by_key[entry.answer.record_key] for record_id, entry in excluded.items() if entry.answer is not None
    }
