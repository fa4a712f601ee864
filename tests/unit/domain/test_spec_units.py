"""Durations, sizes and dollars: exact both ways."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybatch.domain.units import (
    format_duration,
    format_size,
    format_usd,
    parse_duration,
    parse_size,
    parse_usd,
)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("48h", 172_800), ("30d", 2_592_000), ("1h30m", 5400), ("0s", 0)]
)
def test_given_a_duration_when_parsed_then_it_is_exact(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["5", "5 m", "5M", "-5m", "1.5h", "", "m", "5m\n", 5, None, True, "999999999d", "1000000d" * 50]
)
def test_given_no_duration_when_parsed_then_the_error_shows_how(text: Any) -> None:
    with pytest.raises(ValueError, match="write a number and a unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("100MB", 100_000_000), ("64KiB", 65_536), ("1 GB", 10**9), ("7B", 7), (123, 123), ("1MiB", 2**20)],
)
def test_given_a_size_when_parsed_then_it_is_exact(text: Any, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["100mb", "100", "1.5MB", "-1MB", "", True, None, 1.0, "1MB\n"])
def test_given_no_size_when_parsed_then_the_error_shows_how(text: Any) -> None:
    with pytest.raises(ValueError, match="write a number and a unit"):
        parse_size(text)


@pytest.mark.parametrize(
    ("value", "amount"), [(40, "40"), (0.01, "0.01"), ("0.000000001", "0.000000001"), (0.1, "0.1"), ("40.50", "40.5")]
)
def test_given_dollars_when_parsed_then_they_are_what_was_written(value: Any, amount: str) -> None:
    assert parse_usd(value) == Decimal(amount)
    assert format_usd(parse_usd(value)) == amount


@pytest.mark.parametrize("value", ["x", True, None, "nan", "1e400", float("inf"), [], "0.0000000001"])
def test_given_no_dollars_when_parsed_then_it_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"US dollars|nano-dollar"):
        parse_usd(value)


@given(st.integers(0, 10**9 - 1))
def test_given_any_whole_seconds_when_shown_then_reading_them_gives_the_same(seconds: int) -> None:
    assert parse_duration(format_duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@given(st.integers(0, 10**11))
def test_given_any_size_when_shown_then_reading_it_gives_the_same(count: int) -> None:
    assert parse_size(format_size(count)) == count


@given(st.decimals(0, 10**6, places=9))
def test_given_any_nano_dollars_when_shown_then_reading_them_gives_the_same(amount: Decimal) -> None:
    assert parse_usd(format_usd(amount)) == amount
