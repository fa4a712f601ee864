"""What one deployment may choose: read from CDK context (`--context KEY=VALUE`), checked before anything is built."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Final, Self

from aws_cdk import App
from aws_cdk.aws_logs import RetentionDays
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tallybatch.contracts import BackfillRequest

DEFAULT_STACK: Final = "Tallybatch"

_LOG_RETENTION: Final = {
    1: RetentionDays.ONE_DAY,
    3: RetentionDays.THREE_DAYS,
    5: RetentionDays.FIVE_DAYS,
    7: RetentionDays.ONE_WEEK,
    14: RetentionDays.TWO_WEEKS,
    30: RetentionDays.ONE_MONTH,
    60: RetentionDays.TWO_MONTHS,
    90: RetentionDays.THREE_MONTHS,
    180: RetentionDays.SIX_MONTHS,
    365: RetentionDays.ONE_YEAR,
    731: RetentionDays.TWO_YEARS,
    1827: RetentionDays.FIVE_YEARS,
    3653: RetentionDays.TEN_YEARS,
}
"""Days that CloudWatch Logs takes (API reference, PutRetentionPolicy; it knows some more in between)."""
_STACK_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,39}")
_SCHEDULE: Final = re.compile(r"(rate|cron|at)\(.+\)")


def _json(value: object) -> object:
    """A value of the command line: JSON, or the path of a JSON file. Values of a CDK context file come as they are."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text.startswith(("{", "[")):
        path = Path(text)
        if not path.is_file():
            raise ValueError(f"neither JSON nor the path of a JSON file: {text!r}")
        text = path.read_text(encoding="utf-8")
    return json.loads(text)


def _prefix(value: str) -> str:
    if value.startswith("/") or "*" in value:
        raise ValueError("a key prefix has no leading slash and no wildcard")
    return value


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Retention(Options):
    """How many days objects are kept, by class. A deleted version is really gone `noncurrent` days later."""

    inbox: int = Field(default=30, ge=1)
    working: int = Field(default=30, ge=1)
    raw: int = Field(default=90, ge=1)
    results: int = Field(default=365, ge=1)
    noncurrent: int = Field(default=7, ge=1)


class Backfill(BackfillRequest):
    """A scheduled backfill: `schedule` is `rate(...)`, `cron(...)` or `at(...)`, read in `timezone`; the run may start
    up to `flexible_minutes` later."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,48}$")
    schedule: str = Field(pattern=_SCHEDULE.pattern)
    timezone: str = "UTC"
    flexible_minutes: int = Field(default=0, ge=0, le=1440)
    enabled: bool = True
    prefix: Annotated[str, AfterValidator(_prefix)]

    def payload(self) -> dict[str, Any]:
        """What DiscoverBackfill is called with; an empty `time` is the moment of the call."""
        return {name: getattr(self, name) for name in BackfillRequest.model_fields}


class Source(Options):
    """A place that DiscoverBackfill may read: objects below `prefix` of `bucket` ("": the pipeline's own)."""

    bucket: str = ""
    prefix: Annotated[str, AfterValidator(_prefix)] = ""

    @model_validator(mode="after")
    def _own_bucket_needs_prefix(self) -> Self:
        if not self.bucket and not self.prefix:
            raise ValueError("a source in the pipeline's own bucket needs a prefix")
        return self


class StackOptions(Options):
    """Everything that distinguishes one deployment from another."""

    stack: str = Field(default=DEFAULT_STACK, pattern=f"^{_STACK_NAME.pattern}$")
    """The stack's name, and the first part of its functions' names."""
    local: bool = False
    """For the embedded default: functions hold the source only, and nothing resists being deleted."""
    retention: Annotated[Retention, BeforeValidator(_json)] = Retention()
    log_days: int = 30
    provider_file_hours: int = Field(default=24, ge=-1)
    """How long after a job's certificate its files stay at the provider; -1: they are left there."""
    alarm_email: str = Field(default="", pattern=r"^$|^[^@\s]+@[^@\s]+\.[^@\s]+$")
    """Who is written to when an alarm goes off or ends, after confirming SNS's first message; "": nobody."""
    backfills: Annotated[tuple[Backfill, ...], BeforeValidator(_json)] = ()
    backfill_sources: Annotated[tuple[Source, ...], BeforeValidator(_json)] = ()
    """More places for `tallybatch backfill run`; those of the declared backfills are added by themselves."""

    @classmethod
    def from_context(cls, app: App, *, stack: str = "") -> Self:
        """Read the keys that are fields here from the app's context; `stack` is the name if the context has none."""
        context = {name: app.node.try_get_context(name) for name in cls.model_fields}
        given = {name: value for name, value in context.items() if value is not None}
        if stack:
            given.setdefault("stack", stack)
        return cls.model_validate(given)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.log_days not in _LOG_RETENTION:
            raise ValueError(f"log_days: must be one of {', '.join(map(str, _LOG_RETENTION))}")
        names = [backfill.name for backfill in self.backfills]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"backfills: declared twice: {', '.join(twice)}")
        open_ended = [one.name for one in self.backfills if not one.source_bucket and one.prefix.startswith("{")]
        if open_ended:
            raise ValueError(
                f"backfills: in the pipeline's own bucket a prefix begins with text: {', '.join(open_ended)}"
            )
        return self

    @property
    def log_retention(self) -> RetentionDays:
        return _LOG_RETENTION[self.log_days]

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every place DiscoverBackfill reads, each once: the part of a prefix before its first placeholder."""
        declared = (
            Source(bucket=backfill.source_bucket, prefix=backfill.prefix.partition("{")[0])
            for backfill in self.backfills
        )
        return tuple(dict.fromkeys((*declared, *self.backfill_sources)))
