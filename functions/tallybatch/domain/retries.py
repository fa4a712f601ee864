"""What follows from an outcome: accepted, once more, terminally failed, or people decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tallybatch.domain.outcomes import ACCEPTED, NOTHING_USED, OutcomeClass, Used

_C = OutcomeClass
FOREVER_FAILED = frozenset({_C.PERMANENT, _C.REFUSED, _C.TRUNCATED, _C.TOO_FEW, _C.REJECTED})
FALLING_BACK = frozenset(
    {_C.RETRYABLE, _C.EXPIRED, _C.CANCELLED, _C.MISSING, _C.UNQUALIFIED, _C.REFUSED, _C.CONFLICT, _C.TOO_FEW}
)
"""What another model may do better. A request that is wrong, or a cap that is too small, is so everywhere."""
MAX_UNKNOWN_CODES = 2
"""A code that nobody knows is tried once more; a second one of the kind ends the record."""
MAX_BACKOFF_S = 3600
DAY_S = 86_400
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
    TOO_FEW = "too_few"
    """Fewer than the provider takes in one job; goes to people too where `retry.small_set` is `review`."""
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
    _C.TOO_FEW: ReviewClass.TOO_FEW,
}


class Decision(NamedTuple):
    """`why` names the end of a record that goes to people, None for all others."""

    disposition: Disposition
    why: ReviewClass | None = None


ACCEPT = Decision(Disposition.ACCEPTED)


@dataclass(frozen=True, slots=True)
class RaisedCap:
    """Each cut answer's next try may have `factor` times as many tokens as the last, up to `most`. `base` is the
    spec's own cap."""

    base: int
    factor: float
    most: int

    def after(self, cap: int) -> int:
        """The cap after one of `cap` (0: the base) was too small; 0 if there is none left."""
        now = cap or self.base
        raised = min(int(now * self.factor), self.most)
        return raised if raised > now else 0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`backoff_s` doubles with each attempt, up to an hour. `review` are the ends that people decide about. The caps
    are of one record over all its attempts, in tokens and nano-dollars; `window` is the part of each day in which
    attempts may begin, as seconds after midnight UTC (it may span midnight)."""

    max_attempts: int
    backoff_s: float
    retry_unqualified: bool = True
    review: frozenset[ReviewClass] = frozenset()
    max_tokens: int | None = None
    max_nano_usd: int | None = None
    raised_cap: RaisedCap | None = None
    feedback: bool = False
    window: tuple[int, int] | None = None
    fallbacks: int = 0
    """Targets after the first; a record has `max_attempts` tries at each."""

    def decision(
        self,
        outcome: OutcomeClass,
        tries: int,
        *,
        overdue: bool,
        used: Used = NOTHING_USED,
        output_cap: int = 0,
    ) -> Decision:
        """`tries` counts how often the record was handed to a provider; after the deadline nothing is tried again.
        `used` and `output_cap` are those of the outcome's row."""
        if outcome in ACCEPTED or outcome is OutcomeClass.CONFIRMED:
            return ACCEPT
        if outcome is OutcomeClass.CONFLICT and ReviewClass.CONFLICT in self.review:
            return Decision(Disposition.REVIEW, ReviewClass.CONFLICT)
        disposition = self._automatic(outcome, tries, overdue=overdue, used=used, output_cap=output_cap)
        if disposition is Disposition.FAILED and not overdue and self._has_another(outcome, used):
            disposition = Disposition.RETRY
        why = _ENDS.get(outcome) if disposition is Disposition.FAILED else None
        asked_for = outcome in (OutcomeClass.WAITING, OutcomeClass.REQUEUED)
        if disposition is Disposition.RETRY and not asked_for and self._over_cap(used, tries):
            disposition, why = Disposition.FAILED, ReviewClass.OVER_CAP
        return Decision(Disposition.REVIEW, why) if why in self.review else Decision(disposition)

    def decide(self, outcome: OutcomeClass, tries: int, *, overdue: bool, used: Used = NOTHING_USED) -> Disposition:
        """As `decision`, without why."""
        return self.decision(outcome, tries, overdue=overdue, used=used).disposition

    def _automatic(
        self, outcome: OutcomeClass, tries: int, *, overdue: bool, used: Used, output_cap: int
    ) -> Disposition:
        if outcome is OutcomeClass.UNSETTLED:
            return Disposition.RESUME
        if overdue or (outcome in FOREVER_FAILED and not self._with_more_tokens(outcome, output_cap)):
            return Disposition.FAILED
        if outcome in (OutcomeClass.WAITING, OutcomeClass.REQUEUED):
            return Disposition.RETRY
        if outcome is OutcomeClass.UNQUALIFIED and not self.retry_unqualified:
            return Disposition.FAILED
        if used.unknown_codes >= MAX_UNKNOWN_CODES:
            return Disposition.FAILED
        if used.refusals and used.targets < self.fallbacks:
            return Disposition.FAILED
        return Disposition.RETRY if tries - used.earlier_tries < self.max_attempts else Disposition.FAILED

    def _has_another(self, outcome: OutcomeClass, used: Used) -> bool:
        """Whether a record that is done at its target goes to the next one. Where the spec gives a set that is too
        small to people, they get it at once."""
        to_people = outcome is OutcomeClass.TOO_FEW and ReviewClass.TOO_FEW in self.review
        return used.targets < self.fallbacks and outcome in FALLING_BACK and not to_people

    def onward(self, outcome: OutcomeClass, tries: int, used: Used, output_cap: int) -> Used:
        """What the line of the next try says is used up, for a record that has one: at the next target the counts begin
        again, but those of tokens and money."""
        here = self._automatic(outcome, tries, overdue=False, used=used, output_cap=output_cap)
        if here is not Disposition.FAILED or not self._has_another(outcome, used):
            return used
        return Used(used.tokens, used.nano_usd, targets=used.targets + 1, earlier_tries=tries)

    def _with_more_tokens(self, outcome: OutcomeClass, output_cap: int) -> bool:
        return outcome is OutcomeClass.TRUNCATED and bool(self.next_cap(outcome, output_cap))

    def next_cap(self, outcome: OutcomeClass, output_cap: int) -> int:
        """The next attempt's raised cap, 0 for the spec's own; for a cut answer 0 means that no more may be had."""
        if outcome is not OutcomeClass.TRUNCATED:
            return output_cap
        return self.raised_cap.after(output_cap) if self.raised_cap is not None else 0

    def _over_cap(self, used: Used, tries: int) -> bool:
        """Whether one more try, at the mean of those so far, would go beyond a cap."""
        return _beyond(used.tokens, tries, self.max_tokens) or _beyond(used.nano_usd, tries, self.max_nano_usd)

    def wait_s(self, attempt: int, *, only_waiting: bool, now: float = 0, decided: bool = False) -> int:
        """Pause after `attempt`, in whole seconds from `now` (Unix seconds). It grows while a job only waits, too: each
        round has its events in the execution's history. A job that only waits takes no heed of the window. After an
        attempt in which people `decided`, there is nothing to recover from: what they ask for waits for the window
        only."""
        first_s = 0 if decided else WAITING_S if only_waiting else self.backoff_s
        wait = int(min(first_s * 2 ** min(attempt - 1, 20), max(MAX_BACKOFF_S, first_s)))
        return wait if self.window is None or only_waiting else wait + _until(self.window, now + wait)


def _beyond(used: int, tries: int, cap: int | None) -> bool:
    if cap is None or not used:
        return False
    return used * (tries + 1) > cap * tries if tries else used >= cap


def _until(window: tuple[int, int], moment: float) -> int:
    """Whole seconds until the window is open, 0 if it is."""
    opens, closes = window
    since_opening = (moment - opens) % DAY_S
    return 0 if since_opening < (closes - opens) % DAY_S else math.ceil(DAY_S - since_opening)
