"""Where prices come from, the nearest first: the user's files, our own file, the genai-prices data, the halving rule.

genai-prices (1.6 MB of data, half a second to import) is loaded on the first look-up and only where a job is prepared
or planned: its price goes into the manifest, from which every later step reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from tallybatch.domain.price_file import PriceFile, parse_prices
from tallybatch.domain.prices import Lane, Price, Rates, rate

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

BASE = "genai-prices 0.2.3"
BASE_AS_OF = "2026-11-29"
"""The day on which that release was the newest: the date of the prices in it that have none of their own."""
_BASE_IDS: Mapping[str, str] = {"openai": "openai", "gemini": "google", "bedrock": "aws"}
_GEOGRAPHY = re.compile(r"(us|eu|apac|jp|au|ca|sa|us-gov)\.(?=[a-z0-9-]+\.)")
"""Of Bedrock's inference profiles that stay in a part of the world; `global.` has prices of its own."""
_SNAPSHOT = re.compile(r"-20\d\d-\d\d-\d\d$")
_KINDS = ("input_mtok", "cache_read_mtok", "cache_write_mtok", "output_mtok")


@dataclass(frozen=True, slots=True)
class PriceBook:
    """`user` are the user's files, the nearest first."""

    user: Sequence[PriceFile] = ()

    def price(self, provider: str, model: str, lane: Lane, *, at: float) -> Price | None:
        """The price of an exact model at a moment (Unix seconds), None if nobody knows it. A dated version of OpenAI's
        that no list names has the price of its family, and is then `derived`."""
        found = self._listed(provider, model, lane, at)
        family = _SNAPSHOT.sub("", model)
        if found is None and family != model:
            found = self._listed(provider, family, lane, at)
            found = found.model_copy(update={"derived": True}) if found else None
        return found.model_copy(update={"model": model}) if found else None

    def _listed(self, provider: str, model: str, lane: Lane, at: float) -> Price | None:
        moment = datetime.fromtimestamp(at, UTC)
        day = moment.date().isoformat()
        names = list(dict.fromkeys([model, _GEOGRAPHY.sub("", model, count=1)]))
        for file in (*self.user, shipped()):
            for name in names:
                if found := file.price(provider, name, lane, day):
                    return found
        base = _base_price(provider, model, lane, moment)
        rules = (file.half[provider] for file in (*self.user, shipped()) if provider in file.half)
        if base is None and lane == "batch" and (half := next(rules, None)):
            standard = self._listed(provider, model, "on_demand", at)
            if standard is not None:
                tiers = tuple(_halved(tier) for tier in standard.tiers)
                changed = {"lane": lane, "tiers": tiers, "derived": True}
                changed |= {"source": f"{half.source}; standard price: {standard.source}", "as_of": half.as_of}
                return standard.model_copy(update=changed)
        return base


@cache
def shipped() -> PriceFile:
    """Our own file: batch and embedding prices that genai-prices does not have."""
    data = resources.files("tallybatch.domain").joinpath("prices.yaml").read_bytes()
    return parse_prices(data, file="tallybatch/domain/prices.yaml")


def _halved(tier: Rates) -> Rates:
    """Rounded up to a whole pico-dollar. Cache reads stay as they are where they are cheaper than input."""
    fresh, write = -(-tier.input // 2), -(-tier.cache_write // 2)
    read = tier.cached_input if tier.cached_input < tier.input else fresh
    output = None if tier.output is None else -(-tier.output // 2)
    return Rates(above=tier.above, input=fresh, cached_input=read, cache_write=write, output=output)


def _base_price(provider: str, model: str, lane: Lane, moment: datetime) -> Price | None:
    from genai_prices.data import providers

    known = next(each for each in providers if each.id == _BASE_IDS[provider])
    found = known.find_model(model, all_providers=providers)
    if found is None:
        return None
    as_of = BASE_AS_OF
    if lane == "batch":
        variants = [each for each in found.price_variants or () if each.when == {"processing": "batch"}]
        active = [each for each in variants if each.constraint is None or each.constraint.active(moment)]
        if not active:
            return None
        start = getattr(active[-1].constraint, "start_date", None)
        as_of = start.isoformat() if start else as_of
        prices = found.get_prices(moment, {"processing": "batch"})
    else:
        prices = found.get_prices(moment)
    tiers = _tiers(prices)
    if not tiers:
        return None
    return Price(provider=provider, model=model, lane=lane, as_of=as_of, source=BASE, tiers=tiers)


def _tiers(prices: ModelPrice) -> tuple[Rates, ...]:
    """Empty for a model that is not priced by tokens."""
    by_kind: list[Any] = [getattr(prices, kind, None) for kind in _KINDS]
    if by_kind[0] is None:
        return ()
    starts = {0, *(tier.start for value in by_kind for tier in getattr(value, "tiers", ()))}
    found = []
    for start in sorted(starts):
        fresh, read, write, output = (_at(value, start) for value in by_kind)
        assert fresh is not None  # noqa: S101 - input has a price
        found.append(
            Rates(
                above=start,
                input=fresh,
                cached_input=fresh if read is None else read,
                cache_write=fresh if write is None else write,
                output=output,
            )
        )
    return tuple(found)


def _at(value: Any, start: int) -> int | None:
    """The rate of a plain or tiered price for requests just above `start` input tokens."""
    if value is None:
        return None
    tiers = getattr(value, "tiers", None)
    if tiers is None:
        return rate(value)
    return rate(next((tier.price for tier in reversed(tiers) if tier.start <= start and start), value.base))
