"""What an HTTP status means for a record, whichever provider told it."""

from __future__ import annotations

from tallybatch.domain.outcomes import OutcomeClass

RETRYABLE_STATUSES = frozenset({0, 408, 409, 425, 429, 499})
"""Below 500. 0: seen in OpenAI error files whose job counts no failure (tidyverse/ellmer#830)."""


def status_class(status: int | None) -> OutcomeClass | None:
    """PERMANENT or RETRYABLE for the status of a failure; None for no status, or one that tells no failure."""
    if status is None:
        return None
    if status >= 500 or status in RETRYABLE_STATUSES:
        return OutcomeClass.RETRYABLE
    return OutcomeClass.PERMANENT if status >= 400 else None
