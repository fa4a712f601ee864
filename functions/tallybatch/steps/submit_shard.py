"""Submit: at most one paid provider job per (shard, attempt), whatever dies and wherever.

The one rule: only the caller whose conditional write made the row SUBMITTING sends create, once, and soon after.
Everybody else who finds the row without a provider job looks for the marker in the provider's list instead.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from tallybatch.contracts import ShardItem, SubmitReply
from tallybatch.domain import lanes, submitting
from tallybatch.domain.errors import CreateUnknown, Permanent, ProviderRefused, QuotaRefused
from tallybatch.domain.identity import submission_key
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.rows import ON_DEMAND, Evidence, Submission
from tallybatch.domain.spec import MIN_RECORDS
from tallybatch.domain.submitting import Next, SubmitRules
from tallybatch.ports import Clock, Formats, Ledger, Objects, ProviderApi, ProviderJob
from tallybatch.steps import reserve_quota
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.submission_input import prepare_input
from tallybatch.steps.transitions import advance_job, change_submission

_TOKEN_LIFE_S = 6 * 3600
"""How long an idempotency token is relied on. AWS does not document its life for Bedrock's batch jobs."""
SUBMISSION_PIN = "SUBMISSION"
"""Kind of the pins that lead from a marker to its submission; written before anything is created."""


_NOTHING_OUT = frozenset({SubmissionState.EMPTY, SubmissionState.REFUSED})

TOO_LATE = "deadline"
"""Code of records whose submission was given up at the job's deadline."""


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    provider: ProviderApi
    clock: Clock
    formats: Formats
    min_records: Mapping[str, int] = field(default_factory=lambda: MIN_RECORDS)
    """Records that a provider job must have, by provider."""


def run(item: ShardItem, ports: Ports, *, rules: SubmitRules, unknown_wait_s: float) -> SubmitReply:
    row = ports.ledger.submission(item.job_key, item.attempt, item.shard_id)
    now = ports.clock.now()
    step = submitting.next_step(row, now)
    rescue = 0 < item.rescue_at <= now
    if step is Next.WAIT and rescue:
        step = Next.CLAIM
    if step is Next.RESOLVE and row is not None:
        row = _resolve(item, row, ports, rules)
        step = submitting.next_step(row, ports.clock.now())
        if step is Next.RESOLVE and submitting.absence_is_proven(row, ports.clock.now(), rules):
            step = Next.CLAIM
    deadline_at = float("inf")
    if step is Next.CLAIM or (row is not None and row.state is SubmissionState.QUOTA_REFUSED):
        job = ports.ledger.job(item.job_key)
        if job is not None and job.cancel_requested_at and step is Next.CLAIM:
            reserve_quota.release(item, ports.ledger, ports.clock)
            return SubmitReply(status="cancelled")
        deadline_at = job.deadline_at if job is not None and job.deadline_at else deadline_at
        if row is not None and ports.clock.now() >= deadline_at:
            row = _give_up(row, ports)
        elif step is Next.CLAIM:
            row = _claim_and_create(item, row, ports, rules, deadline_at=deadline_at)
    assert row is not None  # noqa: S101 - each branch above has set it
    if row.state is SubmissionState.QUOTA_REFUSED:
        reserve_quota.refused(row, ports.ledger, ports.clock)
    elif row.state in _NOTHING_OUT or row.lane == ON_DEMAND:
        reserve_quota.release(item, ports.ledger, ports.clock)
    if row.provider_job_id and row.state is SubmissionState.SUBMITTED:
        advance_job(ports.ledger, ports.clock, item.job_key, JobState.SUBMITTED, attempt=item.attempt)
    reply = _reply(row, ports.clock.now(), unknown_wait_s, deadline_at=deadline_at)
    until_rescue_s = item.rescue_at - ports.clock.now()
    if 0 < until_rescue_s < reply.wait_s:
        return reply.model_copy(update={"wait_s": math.ceil(until_rescue_s)})
    return reply


def _reply(row: Submission, now: float, unknown_wait_s: float, *, deadline_at: float) -> SubmitReply:
    if row.state is SubmissionState.EMPTY:
        return SubmitReply(status="empty")
    if row.state is SubmissionState.REFUSED:
        return SubmitReply(status="refused")
    if row.state is SubmissionState.QUOTA_REFUSED:
        return SubmitReply(status="quota", wait_s=max(1, math.ceil(min(row.not_before, deadline_at) - now)))
    if row.lane == ON_DEMAND:
        return SubmitReply(status="on_demand")
    if row.provider_job_id:
        return SubmitReply(status="submitted", provider_job_id=row.provider_job_id)
    return SubmitReply(status="unknown", wait_s=max(1, round(unknown_wait_s)))


def _resolve(item: ShardItem, row: Submission, ports: Ports, rules: SubmitRules) -> Submission:
    """Look for the marker; bind what is found, else record the absence. Where create is idempotent it is sent again
    with the same token instead, which can make no second job. It may make the first: not for a job that has ended."""
    began = ports.clock.now()
    found = ports.provider.find(row.submission_key, since=row.claimed_at - submitting.SEARCH_MARGIN_S)
    if found.jobs:
        oldest = min(found.jobs, key=lambda job: (job.created_at, job.id))
        return _bind(row, (oldest.id, *(job.id for job in found.jobs if job.id != oldest.id)), ports)
    by_token = ports.provider.create_is_idempotent and not row.refusal and began < row.claimed_at + _TOKEN_LIFE_S
    if by_token and _is_wanted(item, ports):
        return _create_again(row, load_job(ports.objects, item.tenant, item.job_key), ports, rules)
    evidence = Evidence(began, found.jobs_seen, found.pages, found.complete)
    return _change_mine(row, ports, lambda current: submitting.note_absence(current, evidence))


def _is_wanted(item: ShardItem, ports: Ports) -> bool:
    """Whether a provider job may still come into being: nobody has cancelled, and it is not too late."""
    job, now = ports.ledger.job(item.job_key), ports.clock.now()
    ends = (job.deadline_at if job is not None else 0, item.rescue_at)
    return not (job is not None and job.cancel_requested_at) and all(now < moment for moment in ends if moment)


def _claim_and_create(
    item: ShardItem, row: Submission | None, ports: Ports, rules: SubmitRules, *, deadline_at: float
) -> Submission:
    context = load_job(ports.objects, item.tenant, item.job_key)
    now = ports.clock.now()
    home = ports.objects.bucket
    fresh = submitting.next_generation(row, now) if row else first_generation(item, context, now, home=home)
    prepared = prepare_input(
        item, fresh.submission_key, context, objects=ports.objects, ledger=ports.ledger, formats=ports.formats
    )
    fresh = prepared.noted_in(fresh)
    expected_version = row.version if row else None
    if not prepared.sent:
        empty = replace(fresh, state=SubmissionState.EMPTY, updated_at=ports.clock.now())
        return ports.ledger.put_submission(empty, expected_version=expected_version) or _reread(item, ports)
    if now >= deadline_at:
        late = _too_late(fresh, now)
        return ports.ledger.put_submission(late, expected_version=expected_version) or _reread(item, ports)
    if other := _not_as_a_job(item, fresh, context, ports):
        return ports.ledger.put_submission(other, expected_version=expected_version) or _reread(item, ports)
    uri = ports.objects.uri(prepared.request_key)
    with ports.objects.open(prepared.request_key) as body:
        try:
            file_id = ports.provider.upload(f"{fresh.submission_key}.jsonl", body, uri=uri)
        except Permanent as refused:
            told = _refused(fresh, refused, ports.clock.now())
            return ports.ledger.put_submission(told, expected_version=expected_version) or _reread(item, ports)
    ports.ledger.pin(SUBMISSION_PIN, fresh.submission_key, place_of(fresh))
    owner = uuid.uuid4().hex
    claimed = submitting.claim(replace(fresh, file_id=file_id), owner=owner, now=ports.clock.now(), rules=rules)
    mine = ports.ledger.put_submission(claimed, expected_version=expected_version)
    if mine is None or mine.owner != owner:
        return _reread(item, ports)
    return _create(mine, context, ports)


def _not_as_a_job(item: ShardItem, row: Submission, context: JobContext, ports: Ports) -> Submission | None:
    """The row of what no provider job is made for: the deadline is near, or there are fewer records than a job must
    have, now that those answered or in flight elsewhere are known. None for all others."""
    now = ports.clock.now()
    if 0 < item.rescue_at <= now:
        return lanes.kept_back(row, now, code=lanes.RESCUE, outcome=OutcomeClass.WAITING)
    if row.input_records >= ports.min_records.get(ports.provider.name, 1):
        return None
    small_set = context.spec.retry.small_set
    if small_set == ON_DEMAND:
        return lanes.opened(row, now)
    waits = small_set == "wait" and item.can_grow
    outcome = OutcomeClass.WAITING if waits else OutcomeClass.TOO_FEW
    return lanes.kept_back(row, now, code=lanes.TOO_FEW, outcome=outcome)


def place_of(row: Submission) -> str:
    """Where a marker leads: what the sweeper looks up when it meets one at a provider."""
    return f"{row.job_key}/{row.attempt}/{row.shard_id}"


def submission_at(marker: str, ledger: Ledger) -> Submission | None:
    """The submission, in whatever generation it is now, for which this marker was made."""
    place = ledger.pinned(SUBMISSION_PIN, marker)
    if not place:
        return None
    job_key, attempt, shard_id = place.split("/")
    return ledger.submission(job_key, int(attempt), shard_id)


def first_generation(item: ShardItem, context: JobContext, now: float, *, home: str) -> Submission:
    """The row of a submission that nobody has begun. `home` is our bucket."""
    return Submission(
        job_key=item.job_key,
        tenant=item.tenant,
        attempt=item.attempt,
        shard_id=item.shard_id,
        shard_sha256=item.shard_sha256,
        state=SubmissionState.SUBMITTING,
        provider=item.provider,
        model=item.model or context.manifest.model_resolved,
        submission_key=submission_key(
            job_key=item.job_key, shard_sha256=item.shard_sha256, attempt=item.attempt, generation=1, home=home
        ),
        home=home,
        updated_at=now,
    )


def _create(mine: Submission, context: JobContext, ports: Ports) -> Submission:
    """Send create, once. Nothing between the claim and this line may be repeated. A refusal counts only while nobody
    has sent the same token again: it says nothing about that call."""
    if ports.clock.now() > mine.create_by:
        return mine

    def refused_with(change: submitting.Change) -> Submission:
        return _change_mine(mine, ports, lambda current: change(current) if current.owner == mine.owner else None)

    try:
        job = _send(mine, context, ports)
    except CreateUnknown:
        return mine
    except QuotaRefused as refused:
        wait_s = refused.retry_after_s or submitting.quota_wait_s(mine)
        return refused_with(lambda current: quota_refused(current, ports.clock.now(), wait_s))
    except Permanent as refused:  # what the provider refused, and what could not be sent: a key that is not there
        told = refused
        return refused_with(lambda current: _refused(current, told, ports.clock.now()))
    return _bind(mine, (job.id,), ports)


def _create_again(row: Submission, context: JobContext, ports: Ports, rules: SubmitRules) -> Submission:
    """Send create with the token that was sent before. Being refused now says nothing about the call that was lost:
    the row stays unknown. The last moment of a create moves on, so that absence is proven only after it."""
    until, owner = ports.clock.now() + rules.create_within_s, uuid.uuid4().hex
    mine = _change_mine(row, ports, lambda current: replace(current, owner=owner, create_by=until, evidence=()))
    if mine.generation != row.generation or mine.provider_job_id:
        return mine
    try:
        job = _send(mine, context, ports)
    except (CreateUnknown, QuotaRefused):
        return mine
    except Permanent as refused:
        reason = str(refused)[:500]
        return _change_mine(mine, ports, lambda current: replace(current, refusal=reason))
    return _bind(mine, (job.id,), ports)


def _bind(mine: Submission, job_ids: tuple[str, ...], ports: Ports) -> Submission:
    """Bind the first; whatever cannot be bound is a ghost, and is cancelled."""
    bound = _change(
        mine,
        ports,
        lambda row: submitting.bind(row, job_ids[0], ports.clock.now(), ghosts=job_ids[1:], generation=mine.generation),
    )
    for ghost in set(job_ids) & set(bound.ghosts):
        ports.provider.cancel(ghost)
    return bound


def _change_mine(mine: Submission, ports: Ports, change: submitting.Change) -> Submission:
    """A change that counts only while the row is at our generation and has no provider job but the one that `mine` has:
    that ended for lack of quota."""

    def unless_moved_on(row: Submission) -> Submission | None:
        here = (row.generation, row.provider_job_id) == (mine.generation, mine.provider_job_id)
        return change(row) if here else None

    return _change(mine, ports, unless_moved_on)


def _send(row: Submission, context: JobContext, ports: Ports) -> ProviderJob:
    target = context.for_target(row.provider, row.model).spec
    return ports.provider.create(
        submission_key=row.submission_key,
        file_id=row.file_id,
        endpoint=target.endpoint,
        model=target.model_resolved,
        output_uri=ports.objects.uri(context.keys.provider_output(row.submission_key)),
        deadline_s=context.spec.limits.deadline.total_seconds(),
    )


def quota_refused(row: Submission, now: float, wait_s: float) -> Submission:
    """Nothing was created, or it ended before it ran: wait, then the next generation; no attempt is used up."""
    return replace(
        row,
        state=SubmissionState.QUOTA_REFUSED,
        quota_refusals=row.quota_refusals + 1,
        not_before=now + wait_s,
        updated_at=now,
    )


def _refused(row: Submission, refused: Permanent, now: float) -> Submission:
    """A refusal of the account, and a call that we could not even make, say nothing about the records."""
    return replace(
        row,
        state=SubmissionState.REFUSED,
        refusal=str(refused)[:500],
        refusal_code="provider_refused",
        refusal_class=OutcomeClass.RETRYABLE.value,
        untried=not isinstance(refused, ProviderRefused) or refused.account,
        updated_at=now,
    )


def _give_up(found: Submission, ports: Ports) -> Submission:
    """A provider job that is bound to it has ended for lack of quota before it ran: that is no reason to go on."""

    def unless_moved_on(row: Submission) -> Submission | None:
        moved_on = (row.generation, row.state) != (found.generation, found.state)
        return None if moved_on else _too_late(row, ports.clock.now())

    return _change(found, ports, unless_moved_on)


def _too_late(row: Submission, now: float) -> Submission:
    """Nothing is handed over after the job's deadline: its answers would come too late, and be paid for."""
    earlier = (*row.earlier_jobs, row.provider_job_id) if row.provider_job_id else row.earlier_jobs
    return replace(
        row,
        provider_job_id="",
        earlier_jobs=earlier,
        terminal_at=now if earlier else 0,
        state=SubmissionState.REFUSED,
        refusal="the job's deadline passed before the provider took the submission",
        refusal_code=TOO_LATE,
        refusal_class=OutcomeClass.RETRYABLE.value,
        untried=True,
        updated_at=now,
    )


def _change(row: Submission, ports: Ports, change: submitting.Change) -> Submission:
    return change_submission(ports.ledger, row.job_key, row.attempt, row.shard_id, change)


def _reread(item: ShardItem, ports: Ports) -> Submission:
    row = ports.ledger.submission(item.job_key, item.attempt, item.shard_id)
    assert row is not None  # noqa: S101 - a lost race means that somebody's row is there
    return row
