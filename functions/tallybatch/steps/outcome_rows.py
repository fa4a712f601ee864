"""The outcome row of each record of a submission: from what came back for it, or from why nothing did."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tallybatch.domain import lanes
from tallybatch.domain.billing import Biller
from tallybatch.domain.outcomes import NO_OUTPUT, NOTHING_USED, SUCCEEDED, Outcome, OutcomeClass, Usage, Used
from tallybatch.domain.prices import Price, find
from tallybatch.domain.quality import AnswerCheck
from tallybatch.domain.records import ShardRecord
from tallybatch.domain.rows import AcceptedAnswer, Submission
from tallybatch.domain.tally import Tallied
from tallybatch.steps.job_context import JobContext
from tallybatch.steps.submit_shard import TOO_LATE

NOT_REUSABLE = "not_reusable"
"""Code of a record whose accepted answer, made for an earlier job, breaks the rules of this one."""
_ASK_ANEW = "to ask for another one, give output.schema_version a new label"
UNKNOWN_CODE = "unknown_code"
"""Anomaly, and note on an outcome: its code is in no table of the provider's and not in the spec's `retry.codes`."""


def price_of(row: Submission, context: JobContext) -> Price | None:
    """At which a submission is booked, None if nobody knew it when the job began. `context` is that of its target."""
    return find(context.manifest.prices, row.provider, context.spec.model_resolved, row.lane)


class RecordOutcomes:
    """Makes the outcome row of a record from what came back for it."""

    def __init__(self, row: Submission, context: JobContext) -> None:
        self._row = row
        self._given_back = bool(row.cancelled_at)
        """A try that was cut short because we cancelled the job is not used up."""
        self._record_key = context.identity.record_key
        self._model = context.spec.model_resolved
        own = (context.manifest.provider, context.manifest.model_resolved)
        self._asked = "" if context.spec.place == own else self._model
        self._falls_back = bool(context.spec.fallback)
        price = price_of(row, context)
        self._price, self._cost = (price.id if price else ""), Biller(price).record
        self._codes = context.codes
        self._check = AnswerCheck.of(context.spec)

    def returned(self, record: ShardRecord, back: Tallied | None) -> Outcome:
        if back is None:
            return self._nothing_came(record)
        tries, result, notes, cost = record.tries + 1, back.result, back.notes, self._cost(back)
        outcome, reason, output = result.outcome, result.message, NO_OUTPUT
        if back.conflict:
            outcome, reason = OutcomeClass.CONFLICT, "answered more than once, with different content"
        elif outcome is SUCCEEDED:
            verdict = self._check.check(result.answer or "", record.input)
            notes, reason = notes + verdict.notes, verdict.reason
            if reason:
                outcome = OutcomeClass.UNQUALIFIED
            else:
                output = msgspec.Raw(verdict.output)
        used = NOTHING_USED
        if outcome is not SUCCEEDED:
            if result.outcome is OutcomeClass.CANCELLED:
                tries -= self._given_back
            if self._codes and result.outcome is not SUCCEEDED:
                outcome = self._codes.get(result.code, outcome)
            unknown = result.unknown_code and result.code not in self._codes
            used = _used(record.used, result.usage, cost, unknown=unknown)
            notes += (UNKNOWN_CODE,) if unknown else ()
        if result.model_version and result.model_version != self._model:
            notes += ("model_drift",)
        row = self._row
        return Outcome(  # by position: this is the record loop, and names cost half a microsecond
            record.record_id,
            self._record_key(record.record_id, record.source_version),
            record.business_key,
            record.parent_shard_id or row.shard_id,
            row.attempt,
            tries,
            outcome,
            result.code,
            reason,
            output,
            notes,
            row.provider,
            back.provider_job_id or row.provider_job_id,
            result.request_id,
            result.model_version,
            result.finish_reason,
            result.usage,
            back.raw,
            used,
            record.output_cap,
            cost,
            self._price,
            self._asked,
        )

    def _nothing_came(self, record: ShardRecord) -> Outcome:
        row, tries = self._row, record.tries + 1
        if record.record_id in row.lost_calls:
            reason = "it was called, and no answer came; that may have been paid for"
            return self._bare(record, OutcomeClass.MISSING, tries, reason, code="reply_lost")
        if row.refusal_class:
            if row.untried and self._falls_back and row.refusal and row.refusal_code != TOO_LATE:
                record = replace(record, used=replace(record.used, refusals=record.used.refusals + 1))
            failure, reason = OutcomeClass(row.refusal_class), row.refusal or lanes.KEPT_BACK[row.refusal_code]
            return self._bare(record, failure, tries - row.untried, reason, code=row.refusal_code)
        tries -= self._given_back
        return self._bare(record, OutcomeClass.MISSING, tries, "in no channel of the provider's results")

    def reused(self, record: ShardRecord, found: tuple[AcceptedAnswer, Outcome]) -> Outcome:
        answer, earlier = found
        if broken := self._check.recheck(earlier.output, record.input):
            reason = f"the answer of job {answer.job_key} cannot be reused: {broken}; {_ASK_ANEW}"
            return self._bare(record, OutcomeClass.PERMANENT, record.tries, reason, code=NOT_REUSABLE)
        return replace(
            earlier,
            shard_id=record.parent_shard_id or self._row.shard_id,
            attempt=self._row.attempt,
            tries=record.tries,
            outcome=OutcomeClass.REUSED,
            cost_nano_usd=0,
            price="",
            reused_from=answer.uri,
        )

    def waiting(self, record: ShardRecord, owner: str) -> Outcome:
        return self._bare(record, OutcomeClass.WAITING, record.tries, f"in flight for job {owner}")

    def _bare(self, record: ShardRecord, outcome: OutcomeClass, tries: int, reason: str, *, code: str = "") -> Outcome:
        row = self._row
        return Outcome(
            record_id=record.record_id,
            record_key=self._record_key(record.record_id, record.source_version),
            business_key=record.business_key,
            shard_id=record.parent_shard_id or row.shard_id,
            attempt=row.attempt,
            tries=tries,
            outcome=outcome,
            code=code,
            reason=reason,
            provider=row.provider,
            model=self._asked,
            provider_job_id=row.provider_job_id,
            cost_nano_usd=0,
            used=record.used,
            output_cap=record.output_cap,
        )


def _used(before: Used, usage: Usage, cost: int | None, *, unknown: bool) -> Used:
    tokens, codes = before.tokens + usage.input + usage.output, before.unknown_codes + unknown
    if not (tokens or codes or cost):
        return before
    return replace(before, tokens=tokens, nano_usd=before.nano_usd + (cost or 0), unknown_codes=codes)
