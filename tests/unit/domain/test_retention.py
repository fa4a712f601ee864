"""The retention tag: the class, or never more days than asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybatch.domain.retention import OVERRIDE_DAYS, retention_tag


def test_without_a_wish_the_class_decides() -> None:
    assert [retention_tag(kind) for kind in ("inbox", "working", "raw", "results")] == [
        "inbox",
        "working",
        "raw",
        "results",
    ]


@pytest.mark.parametrize("days", OVERRIDE_DAYS)
def test_days_with_a_rule_stay(days: int) -> None:
    assert retention_tag("raw", days) == f"{days}d"


@given(st.integers(min_value=1, max_value=10_000))
def test_nothing_is_kept_longer_than_asked_nor_much_shorter(asked: int) -> None:
    days = int(retention_tag("results", asked).removesuffix("d"))
    assert days in OVERRIDE_DAYS
    assert days <= asked
    assert days > asked / 2 or asked > 2 * max(OVERRIDE_DAYS) - 1 or days == 1


@pytest.mark.parametrize("days", [0, -1])
def test_less_than_a_day_is_refused(days: int) -> None:
    with pytest.raises(ValueError, match="the least is 1"):
        retention_tag("inbox", days)
