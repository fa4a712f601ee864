"""What follows from an outcome: accepted, once more, terminally failed, or people decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tallybatch.domain.outcomes import ACCEPTED, OutcomeClass

_C = OutcomeClass
FOREVER_FAILED = frozenset({_C.PERMANENT, _C.REFUSED, _C.TRUNCATED, _C.REJECTED})
MAX_BACKOFF_S = 3600
WAITING_S = 60
"""First pause before looking again for records that another job has in flight, or for a shard that was lost."""


class Disposition(StrEnum):
    ACCEPTED = "accepted"
    RETRY = "retry"
    RESUME = "resume"
    """Its submission is still out; a new one could pay for it twice."""
    FAILED = "failed"
    REVIEW = "review"
    """Nothing more is automatic, and the spec lets people decide. The job cannot close before they have."""


FINAL = frozenset({Disposition.ACCEPTED, Disposition.FAILED, Disposition.REVIEW})


class ReviewClass(StrEnum):
    """Why a record without an accepted answer is at its end: the words of the spec's `review.classes`."""

    CONFLICT = "conflict"
    """Answered more than once, with different content. Goes to people at once; a spec that does not list it tries
    again."""
    REFUSED = "refused"
    UNQUALIFIED = "unqualified"
    TRUNCATED = "truncated"
    PERMANENT = "permanent"
    EXHAUSTED = "exhausted"
    """Out of tries or of time without an answer: retryable, expired, cancelled or missing to the end."""
    OVER_CAP = "over_cap"
    """Another try might do, and the record has used up its tokens or its dollars."""


_ENDS: Mapping[OutcomeClass, ReviewClass] = {
    _C.CONFLICT: ReviewClass.CONFLICT,
    _C.REFUSED: ReviewClass.REFUSED,
    _C.UNQUALIFIED: ReviewClass.UNQUALIFIED,
    _C.TRUNCATED: ReviewClass.TRUNCATED,
    _C.PERMANENT: ReviewClass.PERMANENT,
    _C.RETRYABLE: ReviewClass.EXHAUSTED,
    _C.EXPIRED: ReviewClass.EXHAUSTED,
    _C.CANCELLED: ReviewClass.EXHAUSTED,
    _C.REQUEUED: ReviewClass.EXHAUSTED,
    _C.MISSING: ReviewClass.EXHAUSTED,
}


class Decision(NamedTuple):
    """`why` names the end of a record that goes to people, None for all others."""

    disposition: Disposition
    why: ReviewClass | None = None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`backoff_s` doubles with each attempt, up to an hour. `review` are the ends that people decide about."""

    max_attempts: int
    backoff_s: float
    retry_unqualified: bool = True
    review: frozenset[ReviewClass] = frozenset()

    def decision(self, outcome: OutcomeClass, tries: int, *, overdue: bool) -> Decision:
        """As `decide`, with the records that people decide about told apart from those that just failed."""
        if outcome is OutcomeClass.CONFLICT and ReviewClass.CONFLICT in self.review:
            return Decision(Disposition.REVIEW, ReviewClass.CONFLICT)
        disposition = self._automatic(outcome, tries, overdue=overdue)
        why = _ENDS.get(outcome) if disposition is Disposition.FAILED else None
        return Decision(Disposition.REVIEW, why) if why in self.review else Decision(disposition)

    def decide(self, outcome: OutcomeClass, tries: int, *, overdue: bool) -> Disposition:
        """`tries` counts how often the record was handed to a provider; after the deadline nothing is tried again."""
        return self.decision(outcome, tries, overdue=overdue).disposition

    def _automatic(self, outcome: OutcomeClass, tries: int, *, overdue: bool) -> Disposition:
        if outcome in ACCEPTED or outcome is OutcomeClass.CONFIRMED:
            return Disposition.ACCEPTED
        if outcome is OutcomeClass.UNSETTLED:
            return Disposition.RESUME
        if outcome in FOREVER_FAILED or overdue:
            return Disposition.FAILED
        if outcome in (OutcomeClass.WAITING, OutcomeClass.REQUEUED):
            return Disposition.RETRY
        if outcome is OutcomeClass.UNQUALIFIED and not self.retry_unqualified:
            return Disposition.FAILED
        return Disposition.RETRY if tries < self.max_attempts else Disposition.FAILED

    def wait_s(self, attempt: int, *, only_waiting: bool) -> int:
        """Pause after `attempt`, in whole seconds. It grows while a job only waits, too: each round has its events in
        the execution's history."""
        first_s = WAITING_S if only_waiting else self.backoff_s
        return int(min(first_s * 2 ** min(attempt - 1, 20), max(MAX_BACKOFF_S, first_s)))
