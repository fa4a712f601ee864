"""One provider's jobs against the ledger: each is known, adopted, superseded, or an orphan."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from msgspec.structs import replace

from tallybatch.contracts import Orphan, SweepGap
from tallybatch.domain import submitting
from tallybatch.domain.billing import tokens_of
from tallybatch.domain.errors import TallybatchError
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.prices import bulk_pricer, usd
from tallybatch.domain.rows import ON_DEMAND, Submission
from tallybatch.ports import TERMINAL_STATES, Clock, Events, Ledger, Objects, ProviderApi, ProviderJob
from tallybatch.steps.job_prices import booked_price
from tallybatch.steps.submit_shard import submission_at
from tallybatch.steps.transitions import change_submission

ORPHAN_PIN = "ORPHAN"
"""Kind of the pins that remember for which provider jobs `OrphanFound` was published."""
_DUPLICATE = "duplicate_submission"
"""The anomaly that counts those of `Submission.ghosts` whose bills are booked; the others stand behind them."""
_COLLECTED = frozenset({SubmissionState.COLLECTED, SubmissionState.RECONCILED})
"""From here on a submission's duplicates are not harvested any more."""


@dataclass
class Findings:
    """What all providers together have; see `contracts.SweepReply`."""

    checked: int = 0
    known: int = 0
    orphans: list[Orphan] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    gaps: list[SweepGap] = field(default_factory=list)

    def note(self, provider: str, why: str) -> None:
        self.gaps.append(SweepGap(provider=provider, why=why))


class ProviderSweep:
    def __init__(
        self,
        provider: ProviderApi,
        ledger: Ledger,
        objects: Objects,
        events: Events,
        clock: Clock,
        found: Findings,
    ) -> None:
        self._provider = provider
        self._objects = objects
        self._ledger = ledger
        self._events = events
        self._clock = clock
        self._found = found

    def run(self, *, since: float, cancel: bool) -> None:
        """Oldest first, so that of two jobs for one submission the same one is bound as a submit would bind. What
        fails at this provider becomes a gap."""
        with self._gap():
            search = self._provider.find("", since=since)
            if not search.complete:
                self._note("its job list could not be read to the end")
            for job in sorted(search.jobs, key=lambda job: (job.created_at, job.id)):
                with self._gap():
                    self._judge(job, cancel=cancel)

    def _judge(self, job: ProviderJob, *, cancel: bool) -> None:
        self._found.checked += 1
        row = submission_at(job.marker, self._ledger)
        if row is None:
            self._orphan(
                self._with_bill(job), "", "unknown: no submission in the ledger has this marker", cancel=cancel
            )
        elif job.id in submitting.jobs_of(row).difference(_unbooked(row)):
            self._found.known += 1
            if job.id in row.ghosts:
                self._end(job, cancel=cancel)
        else:
            self._settle(self._with_bill(job), row, cancel=cancel)

    def _settle(self, job: ProviderJob, row: Submission, *, cancel: bool) -> None:
        now = self._clock.now()
        cost = self._cost(job, row)
        row = change_submission(
            self._ledger, row.job_key, row.attempt, row.shard_id, lambda current: _settled(current, job, cost, now)
        )
        if row.provider_job_id == job.id:
            self._found.adopted.append(job.id)
            return
        bound = f"is bound to {row.provider_job_id}" if row.provider_job_id else f"is {row.state}"
        late = "; it came too late for its results to be used" if row.state in _COLLECTED else ""
        why = f"superseded: attempt {row.attempt} of shard {row.shard_id} {bound}{late}"
        self._orphan(job, row.job_key, why, cancel=cancel, row=row)

    def _orphan(self, job: ProviderJob, job_key: str, why: str, *, cancel: bool, row: Submission | None = None) -> None:
        state = self._end(job, cancel=cancel).state
        orphan = Orphan(
            provider=self._provider.name,
            provider_job_id=job.id,
            marker=job.marker,
            state=state.value,
            created_at=job.created_at,
            why=why,
            job_key=job_key,
            tokens=_tokens(job) if job.state in TERMINAL_STATES else None,
            cost_usd=usd(self._cost(job, row)) if row is not None and job.state in TERMINAL_STATES else None,
        )
        self._found.orphans.append(orphan)
        key = f"{orphan.provider}/{orphan.provider_job_id}"
        if not self._ledger.pinned(ORPHAN_PIN, key):
            self._events.publish("OrphanFound", orphan.model_dump())
            self._ledger.pin(ORPHAN_PIN, key, uuid.uuid4().hex)

    def _cost(self, job: ProviderJob, row: Submission) -> int | None:
        """Nano-dollars of a whole job by the tokens that its provider tells; None if that cannot be told."""
        return bulk_pricer(booked_price(self._objects, row))(job.usage) if job.usage is not None else None

    def _with_bill(self, job: ProviderJob) -> ProviderJob:
        """A job that has ended, with its tokens where the provider tells them: not in its list, perhaps by itself."""
        if job.usage is not None or job.state not in TERMINAL_STATES:
            return job
        with self._gap():
            found = self._provider.get(job.id)
            return dataclasses.replace(job, usage=found.usage)
        return job

    def _end(self, job: ProviderJob, *, cancel: bool) -> ProviderJob:
        """The job, cancelled if that is wanted and not too late. One that cannot be cancelled is still reported."""
        if not cancel or job.state in TERMINAL_STATES:
            return job
        with self._gap():
            job = self._provider.cancel(job.id)
            self._found.cancelled.append(job.id)
        return job

    @contextmanager
    def _gap(self) -> Iterator[None]:
        try:
            yield
        except TallybatchError as error:
            self._note(str(error))

    def _note(self, why: str) -> None:
        self._found.note(self._provider.name, why)


def _settled(row: Submission, job: ProviderJob, cost: int | None, now: float) -> Submission | None:
    """The row that knows the job. After collection nobody harvests a duplicate any more, so that one is noted, together
    with its tokens and its `cost`, only once its bill is final."""
    if row.lane == ON_DEMAND and row.state is not SubmissionState.RECONCILED:
        return None
    if row.state not in _COLLECTED:
        return submitting.settle(row, job.id, job.marker, now)
    if row.state is SubmissionState.COLLECTED or job.state not in TERMINAL_STATES:
        return None
    unbooked = _unbooked(row)
    if job.id in submitting.jobs_of(row).difference(unbooked):
        return None
    tokens = Counter(row.duplicate_tokens)
    tokens.update(_tokens(job) or {})
    booked = (*row.ghosts[: len(row.ghosts) - len(unbooked)], job.id)
    return replace(
        row,
        updated_at=now,
        ghosts=(*booked, *(ghost for ghost in unbooked if ghost != job.id)),
        duplicate_tokens=dict(tokens),
        duplicate_cost_nano_usd=row.duplicate_cost_nano_usd + (cost or 0),
        unpriced=row.unpriced + (cost is None),
        anomalies={**row.anomalies, _DUPLICATE: len(booked)},
    )


def _unbooked(row: Submission) -> tuple[str, ...]:
    """Duplicates of a submission that nobody will harvest any more: noted after it was collected, by a worker that was
    late, or while it had no job of its own to be collected."""
    return row.ghosts[row.anomalies.get(_DUPLICATE, 0) :] if row.state is SubmissionState.RECONCILED else ()


def _tokens(job: ProviderJob) -> dict[str, int] | None:
    return tokens_of(job.usage) if job.usage is not None else None
