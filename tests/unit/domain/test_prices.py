"""Rates, tiers and rounding: integers only, and the rounding rule in one place."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybatch.domain.outcomes import Usage
from tallybatch.domain.prices import Price, Rates, dearest, find, nano_usd, pricer, rate, usd


def price(*tiers: Rates) -> Price:
    return Price(provider="openai", model="m", lane="batch", as_of="2026-11-29", source="test", tiers=tiers)


def rates(fresh: str, output: str | None, *, cached: str = "", written: str = "", above: int = 0) -> Rates:
    return Rates(
        above=above,
        input=rate(Decimal(fresh)),
        cached_input=rate(Decimal(cached or fresh)),
        cache_write=rate(Decimal(written or fresh)),
        output=None if output is None else rate(Decimal(output)),
    )


def test_given_cached_and_written_tokens_when_priced_then_each_kind_has_its_own_rate_and_none_counts_twice() -> None:
    cost = pricer(price(rates("2", "10", cached="0.2", written="2.5")))

    assert cost(Usage(input=1000)) == 1000 * 2000
    assert cost(Usage(input=1000, cached_input=400)) == 600 * 2000 + 400 * 200
    assert cost(Usage(input=1000, cached_input=400, cache_write=100)) == 500 * 2000 + 400 * 200 + 100 * 2500
    assert cost(Usage(input=0, output=50, reasoning=40)) == 50 * 10_000


@pytest.mark.parametrize(("tokens", "nano"), [(1, 0), (3, 2), (5, 2), (7, 4), (6, 3), (0, 0)])
def test_given_half_a_nano_dollar_when_rounded_then_to_the_even_one(tokens: int, nano: int) -> None:
    assert pricer(price(rates("0.0005", "0")))(Usage(input=tokens)) == nano


def test_given_a_long_prompt_when_priced_then_all_its_tokens_have_the_rates_of_the_tier() -> None:
    cost = pricer(price(rates("1", "5"), rates("2", "7.5", above=200_000), rates("3", "9", above=500_000)))

    assert cost(Usage(input=200_000, output=10)) == 200_000 * 1000 + 10 * 5000
    assert cost(Usage(input=200_001, output=10)) == 200_001 * 2000 + 10 * 7500
    assert cost(Usage(input=500_001, output=10)) == 500_001 * 3000 + 10 * 9000


def test_given_no_price_when_priced_then_tokens_cost_nobody_knows_what_and_none_cost_nothing() -> None:
    assert pricer(None)(Usage(input=1)) is None
    assert pricer(None)(Usage(output=1)) is None
    assert pricer(None)(Usage()) == 0
    assert pricer(price(rates("1", None)))(Usage(input=1, output=1)) is None
    assert pricer(price(rates("1", None)))(Usage(input=1)) == 1000


@given(
    st.tuples(*[st.integers(0, 10**7)] * 4),
    st.tuples(*[st.integers(0, 10**9)] * 4),
)
def test_given_any_usage_when_priced_then_it_is_the_exact_cost_rounded_half_even(
    tokens: tuple[int, int, int, int], pico: tuple[int, int, int, int]
) -> None:
    fresh, read, written, output = tokens
    usage = Usage(fresh + read + written, read, output, 0, written)
    tier = Rates(input=pico[0], cached_input=pico[1], cache_write=pico[2], output=pico[3])

    exact = sum(Fraction(count * each, 1000) for count, each in zip((fresh, read, written, output), pico, strict=True))

    assert pricer(price(tier))(usage) == round(exact)


@pytest.mark.parametrize("amount", ["-1", "NaN", "Infinity", "0.0000001"])
def test_given_a_rate_that_no_integer_holds_when_read_then_refused(amount: str) -> None:
    with pytest.raises(ValueError, match="price"):
        rate(Decimal(amount))


def test_dollars_are_exact_in_both_directions() -> None:
    assert usd(1) == "0.000000001"
    assert usd(1_500_000_000) == "1.5"
    assert (usd(0), usd(None)) == ("0", None)
    assert nano_usd(Decimal("0.000000001")) == 1


def test_a_price_is_found_by_provider_model_and_lane() -> None:
    one = price(rates("1", "1"))
    assert find([one], "openai", "m", "batch") is one
    assert find([one], "openai", "m", "on_demand") is find([one], "gemini", "m", "batch") is None
    assert one.id == "batch@2026-11-29"


def test_given_tiers_when_the_dearest_is_asked_for_then_it_has_the_highest_rates_that_are_reached() -> None:
    tiers = (rates("2", "10"), rates("1", "20", above=100), rates("9", None, above=1000))

    assert [dearest(price(*tiers), up_to=tokens) for tokens in (0, 100, 101, 1001)] == [
        *[price(rates("2", "10"))] * 2,
        price(rates("2", "20")),
        price(rates("9", None)),
    ]
    assert dearest(None, up_to=5) is None
