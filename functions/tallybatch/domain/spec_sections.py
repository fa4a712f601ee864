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


class Retry(Section):
    max_attempts: Annotated[int, Field(ge=1, le=10)] = Field(
        default=3, description="How often a record is handed to the provider at most. Default: 3."
    )
    backoff: Annotated[timedelta, DurationBetween("0s", "24h")] = Field(
        default=timedelta(minutes=5), description="Pause before attempt 2; doubled each time. Default: 5m."
    )
    retry_unqualified: bool = Field(
        default=True, description="Whether an answer that fails its checks is asked for again. Default: true."
    )
    feedback: bool = Field(
        default=False,
        description="Whether a record that is asked again is told, after the prompt, why its last answer failed its "
        "checks (places in the schema and rules, never the answer). Default: false.",
    )
    raise_output_cap: RaiseOutputCap | None = Field(
        default=None,
        description="Ask again, with a higher generation.max_output_tokens, where an answer was cut off. Default: "
        "none, a cut answer is final.",
    )
    window: Window | None = Field(
        default=None,
        description="Part of the day in which attempts after the first may begin, in UTC, such as 22:00-06:00; the "
        "pause is prolonged up to it. Default: none, at any time.",
    )
    codes: dict[CodeName, CodeClass] = Field(
        default={},
        description="What a record's error code or finish reason means, where the provider's table says otherwise or "
        "does not have it; retryable, expired and cancelled are tried again. Default: none. A code in neither is tried "
        "once more.",
    )
    small_set: Literal["wait", "on_demand", "review"] = Field(
        default="wait",
        description="What to do with records that are fewer than the provider takes in one job (Bedrock: 100). `wait`: "
        "kept until others of the job can join them, else given up; `on_demand`: asked one by one at the full price; "
        "`review`: left to people. OpenAI and Gemini have no minimum. Default: wait.",
    )
    deadline_rescue: Annotated[timedelta, DurationBetween("1m", "7d")] | None = Field(
        default=None,
        description="So long before the deadline the provider's jobs are cancelled, and what is open is asked one by "
        "one, at the full price. Shorter than limits.deadline. Default: never.",
    )

    @property
    def window_s(self) -> tuple[int, int] | None:
        """Opening and closing as seconds after midnight UTC."""
        if self.window is None:
            return None
        opens, closes = (int(moment[:2]) * 3600 + int(moment[3:]) * 60 for moment in self.window.split("-"))
        return opens, closes


ReviewWord = Literal["conflict", "refused", "unqualified", "truncated", "permanent", "exhausted", "over_cap", "too_few"]
"""The values of `retries.ReviewClass`."""


class Review(Section):
    classes: Annotated[tuple[ReviewWord, ...], Strict(False)] = Field(
        default=("conflict", "over_cap"),
        description="Which records without an accepted answer wait for people instead of failing, once nothing more is "
        "automatic: conflict (answered twice, differently; then at once, else it is tried again), over_cap (out of its "
        "tokens or dollars, see limits), refused, unqualified, truncated, permanent, exhausted (out of tries or time "
        "without an answer), too_few (see retry.small_set). A job with such records ends PARTIAL. Default: conflict, "
        "over_cap.",
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
