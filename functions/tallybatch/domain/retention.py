"""How long a stored object is to live: the value of its tag `retention`, for which the bucket has a lifecycle rule."""

from __future__ import annotations

from typing import Final, Literal

RetentionClass = Literal["inbox", "working", "raw", "results"]

OVERRIDE_DAYS: Final = (
    *(1, 2, 3, 5, 7, 10, 14, 21, 30, 45, 60, 90, 120, 180, 270),
    *(365, 545, 730, 1095, 1825, 2555, 3650),
)
"""The retentions, in days, that have a rule of their own; a bucket takes 1,000 rules at most (S3 User Guide)."""


def retention_tag(kind: RetentionClass, asked_days: int | None = None) -> str:
    """The tag's value: the class, for the stack's default, or days such as `90d` for what a spec asks.

    Days without a rule become the next fewer that have one: nothing is kept longer than asked. Raises `ValueError` for
    less than one day.
    """
    if asked_days is None:
        return kind
    if asked_days < 1:
        raise ValueError(f"retention of {kind}: {asked_days} days; the least is 1")
    return f"{max(days for days in OVERRIDE_DAYS if days <= asked_days)}d"
