"""The table: every outcome class, and where its records and its job must end. From sections 6 and 7 of the design."""

from __future__ import annotations

from tests.outcomes.expected_jobs import (
    ALL_FAILED,
    CANARY_APPROVED,
    CANARY_FAILS,
    CANARY_REJECTED,
    CANCELLED_HERE,
    CANCELLED_THERE,
    EXPIRES,
    GATE,
    WAITING,
)
from tests.outcomes.expected_records import CAP, FALLBACKS, PEOPLE, PLAIN, SWAPPED_QUOTE, SWAPPED_RULE, UNKNOWN

IN_ORDER = (WAITING, CANCELLED_HERE, CANCELLED_THERE, EXPIRES)
"""Faults of whole jobs are dealt out in the order of creation, so these are dropped one after the other, and first."""
AT_ONCE = (
    PEOPLE,
    PLAIN,
    CANARY_APPROVED,
    UNKNOWN,
    CAP,
    SWAPPED_RULE,
    SWAPPED_QUOTE,
    GATE,
    ALL_FAILED,
    CANARY_FAILS,
    CANARY_REJECTED,
    *FALLBACKS,
)
