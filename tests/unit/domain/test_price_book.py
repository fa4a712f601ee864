"""Where prices come from: the user's file over ours, ours over genai-prices, and none where nobody knows one."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version

import pytest

from tallybatch.domain.errors import BadInput
from tallybatch.domain.price_book import BASE, PriceBook, shipped
from tallybatch.domain.price_file import parse_prices
from tallybatch.domain.prices import Lane

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
ROW = """\
prices:
  - provider: openai
    model: gpt-5-mini-2025-08-07
    class: batch
    as_of: "{as_of}"
    source: our contract
    input: {input}
    cached_input: 0.01
    output: 0.8
    above: [{{input_tokens: 1000, input: 0.3, output: 1}}]
"""


def rates(provider: str, model: str, lane: Lane = "batch", *, at: float = NOW) -> tuple[int, int, int | None] | None:
    """Input, cached input and output of the first tier, in pico-dollars a token."""
    price = PriceBook().price(provider, model, lane, at=at)
    return (price.tiers[0].input, price.tiers[0].cached_input, price.tiers[0].output) if price else None


@pytest.mark.parametrize(
    ("provider", "model", "batch", "on_demand"),
    [
        ("openai", "gpt-5-mini-2025-08-07", (125_000, 12_500, 1_000_000), (250_000, 25_000, 2_000_000)),
        ("openai", "gpt-6-luna-2026-09-01", (50_000, 5_000, 250_000), (100_000, 10_000, 500_000)),
        ("openai", "gpt-5.4", (1_250_000, 130_000, 7_500_000), (2_500_000, 250_000, 15_000_000)),
        ("openai", "gpt-4o", (1_250_000, 1_250_000, 5_000_000), (2_500_000, 1_250_000, 10_000_000)),
        ("gemini", "gemini-2.5-flash", (150_000, 30_000, 1_250_000), (300_000, 30_000, 2_500_000)),
        ("gemini", "gemini-3.8-flash", (375_000, 37_500, 1_875_000), (750_000, 75_000, 3_750_000)),
        ("bedrock", "amazon.nova-lite-v1:0", (30_000, 30_000, 120_000), (60_000, 15_000, 240_000)),
        ("bedrock", "us.amazon.nova-lite-v1:0", (30_000, 30_000, 120_000), (60_000, 15_000, 240_000)),
        ("openai", "text-embedding-3-small", (10_000, 10_000, 0), (20_000, 20_000, None)),
        ("bedrock", "amazon.titan-embed-text-v2:0", (10_000, 10_000, 0), (20_000, 20_000, None)),
        ("gemini", "gemini-embedding-001", (75_000, 75_000, None), (150_000, 150_000, None)),
        ("bedrock", "cohere.embed-v4:0", None, (120_000, 120_000, 0)),
        ("openai", "gpt-99", None, None),
    ],
)
def test_the_prices_that_users_and_tests_meet(
    provider: str, model: str, batch: tuple[int, ...] | None, on_demand: tuple[int, ...] | None
) -> None:
    assert rates(provider, model) == batch
    assert rates(provider, model, "on_demand") == on_demand


def test_given_no_published_batch_price_when_derived_by_a_rule_then_it_says_so() -> None:
    price = PriceBook().price("gemini", "gemini-embedding-001", "batch", at=NOW)
    listed = PriceBook().price("gemini", "gemini-2.5-flash", "batch", at=NOW)

    assert price is not None
    assert listed is not None
    assert (price.derived, listed.derived) == (True, False)
    assert "half" in price.source


def test_given_a_dated_version_that_no_list_names_when_priced_then_as_its_family_and_derived() -> None:
    price = PriceBook().price("openai", "gpt-5-mini-2031-01-01", "batch", at=NOW)

    assert price is not None
    assert (price.model, price.derived, price.tiers[0].input) == ("gpt-5-mini-2031-01-01", True, 125_000)


def test_given_a_model_with_tiers_when_priced_then_they_are_there() -> None:
    price = PriceBook().price("gemini", "gemini-2.5-pro", "batch", at=NOW)

    assert price is not None
    assert [(tier.above, tier.input, tier.output) for tier in price.tiers] == [
        (0, 625_000, 5_000_000),
        (200_000, 1_250_000, 7_500_000),
    ]


def test_given_the_users_row_when_priced_then_it_goes_over_all_others_from_its_day_on() -> None:
    early = parse_prices(ROW.format(as_of="2026-11-01", input="0.1").encode(), file="prices/prices.yaml")
    late = parse_prices(ROW.format(as_of="2026-12-24", input="0.2").encode(), file="prices/prices.yaml")

    price = PriceBook([early]).price("openai", "gpt-5-mini-2025-08-07", "batch", at=NOW)
    assert price is not None
    assert (price.source, price.as_of, price.tiers[0].input, price.tiers[1].above) == (
        *("our contract", "2026-11-01", 100_000),
        1000,
    )
    not_yet = PriceBook([late]).price("openai", "gpt-5-mini-2025-08-07", "batch", at=NOW)
    assert not_yet is not None
    assert not_yet.source == BASE


def test_given_two_files_of_the_user_when_both_know_a_model_then_the_nearer_one_counts() -> None:
    files = [
        parse_prices(ROW.format(as_of="2026-11-01", input=amount).encode(), file="x") for amount in ("0.1", "0.11")
    ]

    price = PriceBook(files).price("openai", "gpt-5-mini-2025-08-07", "batch", at=NOW)

    assert price is not None
    assert price.tiers[0].input == 100_000


@pytest.mark.parametrize(
    ("change", "line", "key", "reason"),
    [
        (("input: 0.1", "input: cheap"), 7, "prices[0].input", "US dollars for a million tokens"),
        (("input: 0.1", "input: -1"), 7, "prices[0].input", "0 or more"),
        (("input: 0.1", "input: 0.00000001"), 7, "prices[0].input", "six decimals"),
        (('"2026-11-01"', '"soon"'), 5, "prices[0].as_of", "must be a date"),
        (("class: batch", "class: bulk"), 4, "prices[0].class", "is none of"),
        (("provider: openai", "provider: acme"), 2, "prices[0].provider", "is none of"),
        (("output: 0.8", "outputs: 0.8"), 9, "prices[0].outputs", "unknown key"),
        (("    source: our contract\n", ""), 2, "prices[0].source", "is required"),
        (("input: 0.1", "input: 1.0e+300"), 7, "prices[0].input", "at most 1,000,000"),
        ((", output: 1}", "}"), 10, "prices[0].above[0].output", "is required, for shorter requests have one"),
        (
            ("{input_tokens", "{input_tokens: 1000, input: 1, output: 2}, {input_tokens"),
            10,
            "prices[0].above[1]",
            "already",
        ),
        (("input_tokens: 1000", "input_tokens: 0"), 10, "prices[0].above[0].input_tokens", "not right here"),
    ],
)
def test_given_a_wrong_file_when_read_then_each_mistake_has_its_line_and_key(
    change: tuple[str, str], line: int, key: str, reason: str
) -> None:
    text = ROW.format(as_of="2026-11-01", input="0.1").replace(*change)

    with pytest.raises(BadInput) as refused:
        parse_prices(text.encode(), file="prices/prices.yaml")

    assert "tallybatch prices --help" in str(refused.value)
    (problem,) = refused.value.problems
    assert (problem.line, problem.key) == (line, key)
    assert reason in problem.reason
    assert "prices/prices.yaml" in str(refused.value)


HALF = """\
half_of_standard:
  - {provider: bedrock, as_of: "2026-11-01", source: our contract}
prices:
  - {provider: bedrock, model: acme.own-v1, class: on_demand, as_of: "2026-11-01", source: ours, input: 4, output: 8}
"""


def test_given_a_rule_of_the_users_when_no_list_has_a_batch_price_then_it_is_half_of_the_standard_one() -> None:
    price = PriceBook([parse_prices(HALF.encode(), file="x")]).price("bedrock", "acme.own-v1", "batch", at=NOW)

    assert price is not None
    assert (price.tiers[0].input, price.tiers[0].output, price.derived) == (2_000_000, 4_000_000, True)
    assert price.source == "our contract; standard price: ours"
    row = HALF.splitlines(keepends=True)[1]
    with pytest.raises(BadInput, match=r"same provider as half_of_standard\[0\]"):
        parse_prices(HALF.replace(row, row + row).encode(), file="x")


def test_given_the_same_row_twice_when_read_then_refused() -> None:
    row = ROW.format(as_of="2026-11-01", input="0.1")

    with pytest.raises(BadInput, match=r"same model, class and date as prices\[0\]"):
        parse_prices((row + row.removeprefix("prices:\n")).encode(), file="x")


def test_the_base_is_the_release_that_is_installed() -> None:
    assert f"genai-prices {version('genai-prices')}" == BASE


def test_every_row_of_ours_has_a_date_and_a_source() -> None:
    assert len(shipped().prices) > 10
    assert all(price.as_of >= "2026-01-01" and len(price.source) > 10 for price in shipped().prices)
