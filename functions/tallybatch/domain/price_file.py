"""A file of prices: ours, that ships with the package, and the user's, that goes over it. Dollars a million tokens."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.prices import Lane, Price, Rates, rate
from tallybatch.domain.spec import ModelName, Provider
from tallybatch.domain.units import shown
from tallybatch.domain.yaml_file import Path, YamlFile, dotted, read_yaml

REFUSED = "the prices are refused"
_DO = "correct the file; `tallybatch prices --help` tells its form, and --prices checks it"


def _dollars(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be US dollars for a million tokens, not {shown(value)}")
    return rate(Decimal(repr(value)))


def _day(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f'must be a date in quotes, such as "2026-11-29", not {shown(value)}')
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise ValueError(f'must be a date such as "2026-11-29", not {shown(value)}') from None


Dollars = Annotated[int, BeforeValidator(_dollars)]
Day = Annotated[str, BeforeValidator(_day)]
Source = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Rates(_Row):
    input: Dollars
    cached_input: Dollars | None = None
    cache_write: Dollars | None = None
    output: Dollars | None = None

    def rates(self, above: int = 0) -> Rates:
        return Rates(
            above=above,
            input=self.input,
            cached_input=self.input if self.cached_input is None else self.cached_input,
            cache_write=self.input if self.cache_write is None else self.cache_write,
            output=self.output,
        )


class _Above(_Rates):
    input_tokens: Annotated[int, Field(ge=1)]


class PriceRow(_Rates):
    """One row as it is written. It holds from `as_of` on, until a later row of the same model and lane."""

    provider: Provider
    model: ModelName
    lane: Lane = Field(alias="class")
    as_of: Day
    source: Source
    derived: bool = False
    above: list[_Above] = []

    def price(self) -> Price:
        tiers = sorted(self.above, key=lambda tier: tier.input_tokens)
        return Price(
            provider=self.provider,
            model=self.model,
            lane=self.lane,
            as_of=self.as_of,
            source=self.source,
            derived=self.derived,
            tiers=(self.rates(), *(tier.rates(tier.input_tokens) for tier in tiers)),
        )


class HalfRow(_Row):
    """A provider whose batch price is half of the standard one wherever no list tells it; cached input stays."""

    provider: Provider
    as_of: Day
    source: Source


class _File(_Row):
    prices: list[PriceRow] = []
    half_of_standard: list[HalfRow] = []


class PriceFile:
    """The rows of a file, and the rules for what they do not name."""

    def __init__(self, prices: list[Price], half: Mapping[str, HalfRow]) -> None:
        self.prices = prices
        self.half = half

    def price(self, provider: str, model: str, lane: Lane, day: str) -> Price | None:
        """The latest that holds on `day`."""
        held = [
            price
            for price in self.prices
            if (price.provider, price.model, price.lane) == (provider, model, lane) and price.as_of <= day
        ]
        return max(held, key=lambda price: price.as_of, default=None)


def parse_prices(data: bytes, *, file: str) -> PriceFile:
    """Read a file of prices. Raises `BadInput` that names each wrong key and its line."""
    source = read_yaml(data, file=file, what=REFUSED)
    found: _File | None = None
    try:
        found = _File.model_validate(source.data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = tuple(detail["loc"])
            source.blame(path, _reason(detail), "missing" if detail["type"] == "missing" else "value")
    if found is not None:
        _blame_twins(found, source)
        _blame_tiers(found, source)
    if source.problems or found is None:
        problems = [problem for blamed in source.problems.values() for problem in blamed]
        raise BadInput(REFUSED, sorted(problems, key=lambda p: (p.line, p.key)), where=file, do=_DO)
    return PriceFile([row.price() for row in found.prices], {row.provider: row for row in found.half_of_standard})


def _reason(detail: Mapping[str, Any]) -> str:
    kind = detail["type"]
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return f"unknown key {shown(detail['loc'][-1])}"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "literal_error":
        return f"{shown(detail['input'])} is none of {detail['ctx']['expected']}"
    return f"{shown(detail['input'])} is not right here: {detail['msg']}"


def _blame_twins(found: _File, source: YamlFile) -> None:
    seen: dict[tuple[str, str, str, str], Path] = {}
    for number, row in enumerate(found.prices):
        key, path = (row.provider, row.model, row.lane, row.as_of), ("prices", number)
        if key in seen:
            source.blame(path, f"is the same model, class and date as {dotted(seen[key])}", "twice")
        seen.setdefault(key, path)

    providers: dict[str, int] = {}
    for number, half in enumerate(found.half_of_standard):
        if providers.setdefault(half.provider, number) != number:
            first = dotted(("half_of_standard", providers[half.provider]))
            source.blame(("half_of_standard", number), f"is the same provider as {first}", "twice")


def _blame_tiers(found: _File, source: YamlFile) -> None:
    """Long requests would have no price, or one of two, and nobody would know before they are paid for."""
    for number, row in enumerate(found.prices):
        starts: set[int] = set()
        for place, tier in enumerate(row.above):
            path: Path = ("prices", number, "above", place)
            if tier.input_tokens in starts:
                source.blame(path, f"{tier.input_tokens} input_tokens have a row already", "twice")
            starts.add(tier.input_tokens)
            if row.output is not None and tier.output is None:
                source.blame((*path, "output"), "is required, for shorter requests have one", "missing")


def problem_of_no_price(provider: str, model: str, lane: Lane, *, capped: bool) -> Problem:
    """Why a job is refused before anything is spent. `capped`: its records have a limit in dollars."""
    what, way = "nobody could say what the job costs", "set limits.allow_unpriced: true"
    if capped:
        what, way = "limits.max_cost_per_record_usd could not be kept", "leave that limit out"
    return Problem(
        f"no price is known for {provider} {model} in class {lane}, so {what}; put a row into prices/prices.yaml, or "
        f"{way}",
        key="model",
        code="no_price",
    )
