"""What each function is told by its environment: one frozen model per function, nothing else reads `os.environ`.

The stack derives a function's environment from the same model (`environment()`), so the two cannot drift.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict

PREFIX = "TALLYBATCH_"


class Settings(BaseModel):
    """Base: each field `x` is the variable `TALLYBATCH_X`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: ClassVar[str] = ""
    """The function's name: file name, CDK id and metric dimension (PascalCase)."""

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> Self:
        source = os.environ if environ is None else environ
        known = {name: source[PREFIX + name.upper()] for name in cls.model_fields if PREFIX + name.upper() in source}
        return cls.model_validate(known)

    def environment(self) -> dict[str, str]:
        return {PREFIX + name.upper(): str(value) for name, value in self.model_dump().items()}


class StoreSettings(Settings):
    bucket: str
    table: str


class MinimumSettings(StoreSettings):
    bedrock_min_records: int = 100
    """Service Quotas, "Minimum number of records per batch inference job", of the models in use."""

    @property
    def min_records(self) -> dict[str, int]:
        """Records that a provider job must have, by provider."""
        return {"bedrock": self.bedrock_min_records}


class BuildManifest(MinimumSettings):
    function: ClassVar[str] = "BuildManifest"
    event_bus: str
    state_machine_arn: str


class DiscoverBackfill(StoreSettings):
    function: ClassVar[str] = "DiscoverBackfill"


class AdmitJob(StoreSettings):
    function: ClassVar[str] = "AdmitJob"


class PlanAttempt(MinimumSettings):
    function: ClassVar[str] = "PlanAttempt"
    event_bus: str


class CallerSettings(StoreSettings):
    """Of functions that call providers."""

    openai_secret: str
    """Name or ARN of the secret that holds the OpenAI API key."""
    gemini_secret: str
    """The same, of the Gemini API key."""


class ProviderSettings(CallerSettings):
    """Of those that deal with their batch jobs."""

    bedrock_role_arn: str
    """The service role with which Bedrock reads request files and writes results; "" lets no Bedrock job be made."""


def gemini_base_url(environ: Mapping[str, str] | None = None) -> str:
    """GOOGLE_GEMINI_BASE_URL, which Google's SDK honours too (SDK 3.6 _base_url.py); "" is Google's own."""
    return (os.environ if environ is None else environ).get("GOOGLE_GEMINI_BASE_URL", "")


class SubmitShard(ProviderSettings, MinimumSettings):
    function: ClassVar[str] = "SubmitShard"
    settle_window_s: float = 900
    """How long an unknown create is looked for in the provider's list before its absence counts as proven, counted
    from the last moment at which the lost call could have been sent."""
    create_within_s: float = 60
    """An owner that has not sent create this long after its claim gives up the right to."""
    unknown_wait_s: float = 30
    """Pause between two looks for a lost create."""


class ReserveQuota(StoreSettings):
    function: ClassVar[str] = "ReserveQuota"


class ReleaseQuota(StoreSettings):
    function: ClassVar[str] = "ReleaseQuota"


class AnswerShard(CallerSettings):
    function: ClassVar[str] = "AnswerShard"
    work_s: float = 600
    """No call begins later than this after the function did: it ends well before its own timeout."""
    call_timeout_s: float = 180
    """How long one call may take; after it and half a minute an answer that nobody heard of counts as lost."""


class PollShard(ProviderSettings):
    function: ClassVar[str] = "PollShard"
    max_wait_s: float = 600
    """Longest pause between two polls."""


class CollectShard(ProviderSettings):
    function: ClassVar[str] = "CollectShard"


class ReconcileShard(StoreSettings):
    function: ClassVar[str] = "ReconcileShard"


class ReconcileJob(StoreSettings):
    function: ClassVar[str] = "ReconcileJob"


class JudgeCanary(StoreSettings):
    function: ClassVar[str] = "JudgeCanary"


class ApproveCanary(StoreSettings):
    function: ClassVar[str] = "ApproveCanary"
    event_bus: str


class PublishShard(StoreSettings):
    function: ClassVar[str] = "PublishShard"


class SealJob(StoreSettings):
    function: ClassVar[str] = "SealJob"
    event_bus: str


class FailJob(StoreSettings):
    function: ClassVar[str] = "FailJob"
    event_bus: str


class Sweep(ProviderSettings):
    function: ClassVar[str] = "Sweep"
    event_bus: str
    state_machine_arn: str
    provider_file_hours: int = 24
    """How long after a job's certificate its files stay at the provider; below 0: they are left there."""


class ResumeJob(StoreSettings):
    function: ClassVar[str] = "ResumeJob"
    state_machine_arn: str


class ResolveReview(StoreSettings):
    function: ClassVar[str] = "ResolveReview"
    state_machine_arn: str


FUNCTIONS: tuple[type[StoreSettings], ...] = (
    BuildManifest,
    DiscoverBackfill,
    AdmitJob,
    PlanAttempt,
    ReserveQuota,
    ReleaseQuota,
    SubmitShard,
    AnswerShard,
    PollShard,
    CollectShard,
    ReconcileShard,
    ReconcileJob,
    JudgeCanary,
    ApproveCanary,
    PublishShard,
    SealJob,
    FailJob,
    Sweep,
    ResumeJob,
    ResolveReview,
)
