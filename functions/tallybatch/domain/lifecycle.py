"""Lifecycles as tables of allowed moves. Late or repeated events never move a state back."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    CREATED = "CREATED"
    VALIDATED = "VALIDATED"
    SUBMITTING = "SUBMITTING"
    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    RECONCILING = "RECONCILING"
    PARTIAL = "PARTIAL"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


class RecordState(StrEnum):
    PREPARED = "prepared"
    SUBMITTED = "submitted"
    SUCCEEDED = "succeeded"
    FAILED_RETRYABLE = "failed_retryable"
    FAILED_TERMINAL = "failed_terminal"
    VALIDATED = "validated"
    PUBLISHED = "published"
    IN_REVIEW = "in_review"


class SubmissionState(StrEnum):
    """A submission: SUBMITTING is the intent, written before create; a claim on it never expires by clock."""

    SUBMITTING = "SUBMITTING"
    SUBMIT_UNKNOWN = "SUBMIT_UNKNOWN"
    QUOTA_REFUSED = "QUOTA_REFUSED"
    REFUSED = "REFUSED"
    EMPTY = "EMPTY"
    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    TERMINAL = "TERMINAL"
    COLLECTED = "COLLECTED"
    RECONCILED = "RECONCILED"


_J = JobState
_ENDINGS = frozenset({_J.PARTIAL, _J.COMPLETED, _J.FAILED, _J.CANCELLED, _J.EXPIRED})
_STOPS = frozenset({_J.FAILED, _J.CANCELLED, _J.EXPIRED})
NOT_BEGUN = frozenset({_J.CREATED, _J.VALIDATED})
"""No run has done anything for the job yet."""

JOB_MOVES: dict[JobState, frozenset[JobState]] = {
    _J.CREATED: frozenset({_J.VALIDATED}) | _STOPS,
    _J.VALIDATED: frozenset({_J.SUBMITTING}) | _STOPS,
    _J.SUBMITTING: frozenset({_J.SUBMITTED, _J.RUNNING, _J.RECONCILING}) | _STOPS,
    _J.SUBMITTED: frozenset({_J.RUNNING, _J.RECONCILING}) | _STOPS,
    _J.RUNNING: frozenset({_J.RECONCILING}) | _STOPS,
    _J.RECONCILING: _ENDINGS,
    _J.PARTIAL: frozenset({_J.RECONCILING, _J.COMPLETED}) | _STOPS,
    _J.COMPLETED: frozenset(),
    _J.FAILED: frozenset(),
    _J.CANCELLED: frozenset(),
    _J.EXPIRED: frozenset(),
}
"""Moves within one attempt."""

JOB_FINAL = _ENDINGS
"""States in which no execution works on the job."""

JOB_REOPENABLE = frozenset({_J.PARTIAL, _J.FAILED, _J.CANCELLED, _J.EXPIRED})
"""Endings from which a new drop of the same content starts the next run, with the next attempt."""

_R = RecordState
RECORD_MOVES: dict[RecordState, frozenset[RecordState]] = {
    _R.PREPARED: frozenset({_R.SUBMITTED, _R.VALIDATED}),
    _R.SUBMITTED: frozenset({_R.SUCCEEDED, _R.FAILED_RETRYABLE, _R.FAILED_TERMINAL, _R.IN_REVIEW}),
    _R.SUCCEEDED: frozenset({_R.VALIDATED, _R.FAILED_RETRYABLE, _R.FAILED_TERMINAL, _R.IN_REVIEW}),
    _R.FAILED_RETRYABLE: frozenset({_R.SUBMITTED, _R.FAILED_TERMINAL, _R.IN_REVIEW}),
    _R.FAILED_TERMINAL: frozenset({_R.IN_REVIEW, _R.SUBMITTED}),
    _R.VALIDATED: frozenset({_R.PUBLISHED}),
    _R.PUBLISHED: frozenset(),
    _R.IN_REVIEW: frozenset({_R.VALIDATED, _R.SUBMITTED, _R.FAILED_TERMINAL}),
}

_S = SubmissionState
SUBMISSION_MOVES: dict[SubmissionState, frozenset[SubmissionState]] = {
    _S.SUBMITTING: frozenset({_S.SUBMITTED, _S.SUBMIT_UNKNOWN, _S.QUOTA_REFUSED, _S.REFUSED}),
    _S.SUBMIT_UNKNOWN: frozenset(
        {_S.SUBMIT_UNKNOWN, _S.SUBMITTED, _S.SUBMITTING, _S.QUOTA_REFUSED, _S.REFUSED, _S.EMPTY}
    ),
    _S.QUOTA_REFUSED: frozenset({_S.SUBMITTING, _S.SUBMITTED, _S.REFUSED, _S.EMPTY}),
    _S.REFUSED: frozenset({_S.RECONCILED}),
    _S.EMPTY: frozenset({_S.RECONCILED}),
    _S.SUBMITTED: frozenset({_S.RUNNING, _S.TERMINAL, _S.QUOTA_REFUSED}),
    _S.RUNNING: frozenset({_S.TERMINAL, _S.QUOTA_REFUSED}),
    _S.TERMINAL: frozenset({_S.COLLECTED}),
    _S.COLLECTED: frozenset({_S.RECONCILED}),
    _S.RECONCILED: frozenset(),
}
"""SUBMITTING again from SUBMIT_UNKNOWN or QUOTA_REFUSED is the next generation, after absence was proven or told; it
may find nothing left to send (EMPTY), or be refused. An idempotent create that is sent again may be refused as well."""


def job_may_move(now: JobState, to: JobState, *, attempt_now: int, attempt_to: int) -> bool:
    """Whether a job may move: along the table within an attempt, to SUBMITTING for a later attempt, never back."""
    if attempt_to == attempt_now:
        return to in JOB_MOVES[now]
    return attempt_to > attempt_now and to is JobState.SUBMITTING and now is JobState.RECONCILING


def record_may_move(now: RecordState, to: RecordState) -> bool:
    return to in RECORD_MOVES[now]


def submission_may_move(now: SubmissionState, to: SubmissionState) -> bool:
    return to in SUBMISSION_MOVES[now]
