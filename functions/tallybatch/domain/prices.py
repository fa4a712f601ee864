"""Prices of one model, and what a record's tokens cost: integers only, exact to the nano-dollar.

A rate is in pico-dollars a token, which is micro-dollars a million tokens: the finest that any provider publishes is a
whole number of them. The rounding rule, stated once: the cost of one execution of a record is computed exactly and
rounded half-even to a nano-dollar; everything else is a sum of such costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict

from tallybatch.domain.outcomes import Usage
from tallybatch.domain.units import format_usd

PICO_PER_NANO = 1000
NANO_PER_USD = 10**9
TOKENS_PER_RATE = 10**6
"""Prices are published for a million tokens."""
MAX_RATE = 1_000_000
"""US dollars for a million tokens: sums of costs stay within the digits that the ledger can hold."""

Lane = Literal["batch", "on_demand"]
Pricer = Callable[[Usage], int | None]
"""Nano-dollars of one execution; None where it has tokens of a kind that has no price."""


class Rates(BaseModel):
    """Pico-dollars a token, for requests of more than `above` input tokens. `cached_input` and `cache_write` are
    `input` where the provider has no rate of their own for them; `output` is None if none is known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    above: int = 0
    input: int
    cached_input: int
    cache_write: int
    output: int | None = None


class Price(BaseModel):
    """What one model costs in one lane. `as_of` is the day (ISO 8601) for which `source` told it. `derived`: reckoned
    by a rule from another price of the same model, not read from a list. All tokens of a request are priced by the
    highest tier that its input reaches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: str
    model: str
    lane: Lane
    as_of: str
    source: str
    derived: bool = False
    tiers: tuple[Rates, ...]
    """By `above`, the first with 0."""

    @property
    def id(self) -> str:
        """As audit rows quote it: lane and date; provider and model stand beside it there."""
        return f"{self.lane}@{self.as_of}"


def rate(usd_per_million: Decimal) -> int:
    """Pico-dollars a token. Raises `ValueError` for what is finer than that, negative, or no price of this world."""
    if not usd_per_million.is_finite() or not 0 <= usd_per_million <= MAX_RATE:
        raise ValueError(f"a price is a number of US dollars, 0 or more and at most {MAX_RATE:,}")
    pico = usd_per_million * TOKENS_PER_RATE
    if pico != pico.to_integral_value():
        raise ValueError("a price for a million tokens has at most six decimals")
    return int(pico)


def pricer(price: Price | None) -> Pricer:
    """The function that prices one execution. Cached and written tokens are part of `Usage.input`, reasoning of
    `Usage.output`. Without a price, only what has no tokens costs anything: nothing."""
    if price is None:
        return lambda usage: None if usage.input or usage.output else 0
    functions = [(tier.above, _of_tier(tier)) for tier in price.tiers]
    base = functions[0][1]
    if len(functions) == 1:
        return base
    least = functions[1][0]

    def tiered(usage: Usage) -> int | None:
        if usage.input <= least:
            return base(usage)
        return next(cost(usage) for above, cost in reversed(functions) if usage.input > above)

    return tiered


def _of_tier(tier: Rates) -> Pricer:
    fresh, output = tier.input, tier.output or 0
    read_less, write_less = tier.cached_input - fresh, tier.cache_write - fresh
    free_output = tier.output is not None

    def cost(usage: Usage) -> int | None:
        if usage.output and not free_output:
            return None
        pico = usage.input * fresh + usage.output * output
        if usage.cached_input:
            pico += usage.cached_input * read_less
        if usage.cache_write:
            pico += usage.cache_write * write_less
        nano, rest = divmod(pico, PICO_PER_NANO)
        if rest > 500 or (rest == 500 and nano & 1):
            nano += 1
        return nano

    return cost


def bulk_pricer(price: Price | None) -> Pricer:
    """For the tokens of many requests together: at the rates of short ones, for nobody knows how long each was."""
    return pricer(price.model_copy(update={"tiers": price.tiers[:1]}) if price is not None else None)


def dearest(price: Price | None, *, up_to: int) -> Price | None:
    """With one tier: the highest rates that requests of so many input tokens, or fewer, may have."""
    if price is None or len(price.tiers) == 1:
        return price
    reached = [tier for tier in price.tiers if tier.above < max(up_to, 1)]
    output = [tier.output for tier in reached if tier.output is not None]
    tier = Rates(
        input=max(tier.input for tier in reached),
        cached_input=max(tier.cached_input for tier in reached),
        cache_write=max(tier.cache_write for tier in reached),
        output=max(output) if len(output) == len(reached) else None,
    )
    return price.model_copy(update={"tiers": (tier,)})


def find(prices: Iterable[Price], provider: str, model: str, lane: Lane) -> Price | None:
    return next(
        (price for price in prices if (price.provider, price.model, price.lane) == (provider, model, lane)), None
    )


def usd(nano: int | None) -> str | None:
    """Dollars in plain decimal notation, exact; None stays None."""
    return None if nano is None else format_usd(Decimal(nano).scaleb(-9))


def nano_usd(dollars: Decimal) -> int:
    """Whole nano-dollars of an amount that has no finer part."""
    return int(dollars.scaleb(9))
