"""What follows from an outcome: accepted, once more, or terminally failed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tallybatch.domain.outcomes import ACCEPTED, OutcomeClass

_C = OutcomeClass
FOREVER_FAILED = frozenset({_C.PERMANENT, _C.REFUSED, _C.TRUNCATED, _C.TOO_FEW})
MAX_BACKOFF_S = 3600
WAITING_S = 60
"""First pause before looking again for records that another job has in flight, or for a shard that was lost."""


class Disposition(StrEnum):
    ACCEPTED = "accepted"
    RETRY = "retry"
    RESUME = "resume"
    """Its submission is still out; a new one could pay for it twice."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`backoff_s` doubles with each attempt, up to an hour."""

    max_attempts: int
    backoff_s: float
    retry_unqualified: bool = True

    def decide(self, outcome: OutcomeClass, tries: int, *, overdue: bool) -> Disposition:
        """`tries` counts how often the record was handed to a provider; after the deadline nothing is tried again."""
        if outcome in ACCEPTED:
            return Disposition.ACCEPTED
        if outcome is OutcomeClass.UNSETTLED:
            return Disposition.RESUME
        if outcome in FOREVER_FAILED or overdue:
            return Disposition.FAILED
        if outcome is OutcomeClass.WAITING:
            return Disposition.RETRY
        if outcome is OutcomeClass.UNQUALIFIED and not self.retry_unqualified:
            return Disposition.FAILED
        return Disposition.RETRY if tries < self.max_attempts else Disposition.FAILED

    def wait_s(self, attempt: int, *, only_waiting: bool) -> int:
        """Pause after `attempt`, in whole seconds. It grows while a job only waits, too: each round has its events in
        the execution's history."""
        first_s = WAITING_S if only_waiting else self.backoff_s
        return int(min(first_s * 2 ** min(attempt - 1, 20), max(MAX_BACKOFF_S, first_s)))
