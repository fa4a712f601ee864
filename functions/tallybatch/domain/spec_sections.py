"""Sections of the spec that stand on their own, and the base of all; `spec` puts them together."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints

from tallybatch.domain.units import DurationBetween

WINDOW_PATTERN = r"^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$"
CODE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$"

Window = Annotated[str, StringConstraints(pattern=WINDOW_PATTERN)]
CodeName = Annotated[str, StringConstraints(pattern=CODE_PATTERN)]
CodeClass = Literal["retryable", "expired", "cancelled", "permanent", "refused", "truncated", "unqualified"]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RaiseOutputCap(Section):
    factor: Annotated[float, Field(ge=1.1, le=16)] = Field(
        default=2, description="How many times as many tokens the next answer may have. Default: 2."
    )
    max: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        description="Tokens of an answer at most, however often it was cut off."
    )


ReviewWord = Literal["conflict", "refused", "unqualified", "truncated", "permanent", "exhausted", "over_cap"]
"""The values of `retries.ReviewClass`."""


class Review(Section):
    classes: Annotated[tuple[ReviewWord, ...], Strict(False)] = Field(
        default=("conflict", "over_cap"),
        description="Which records without an accepted answer wait for people instead of failing, once nothing more is "
        "automatic: conflict (answered twice, differently; then at once, else it is tried again), over_cap (out of its "
        "tokens or dollars, see limits), refused, unqualified, truncated, permanent, exhausted (out of tries or time "
        "without an answer). A job with such records ends PARTIAL. Default: conflict, over_cap.",
    )


class Retention(Section):
    inbox: Annotated[timedelta, DurationBetween("1d", "3650d", whole="1d")] = Field(
        default=timedelta(days=30), description="Life of dropped files, whole days. Default: 30d."
    )
    working: Annotated[timedelta, DurationBetween("1d", "3650d", whole="1d")] = Field(
        default=timedelta(days=30), description="Life of shards and request files, whole days. Default: 30d."
    )
    raw: Annotated[timedelta, DurationBetween("1d", "3650d", whole="1d")] = Field(
        default=timedelta(days=90), description="Life of the provider's bytes as received, whole days. Default: 90d."
    )
    results: Annotated[timedelta, DurationBetween("1d", "3650d", whole="1d")] = Field(
        default=timedelta(days=365), description="Life of accepted results, whole days. Default: 365d."
    )


class Owner(Section):
    submitted_by: Annotated[str, StringConstraints(max_length=256)] = Field(
        default="", description="Who answers for the job. Default: empty."
    )
    cost_center: Annotated[str, StringConstraints(max_length=256)] = Field(
        default="", description="Where the cost goes; quote it if it is a number. Default: empty."
    )
