"""The composition root: the only place that makes clients and ties adapters to ports.

Clients are made once per process and only when a function needs them; a provider's SDK is loaded by its first call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import boto3
from botocore.config import Config

from tallybatch import settings as s
from tallybatch.adapters.clock import SystemClock
from tallybatch.adapters.dynamodb_ledger import DynamoDBLedger
from tallybatch.adapters.events import EventBridgeEvents
from tallybatch.adapters.executions import StepFunctionsExecutions, StepFunctionsTaskTokens
from tallybatch.adapters.providers.bedrock import BedrockApi, BedrockFormat, BedrockOnDemand
from tallybatch.adapters.providers.gemini import GeminiApi, GeminiFormat, GeminiOnDemand
from tallybatch.adapters.providers.openai import OpenAIApi, OpenAIFormat, OpenAIOnDemand
from tallybatch.adapters.s3_objects import S3Objects
from tallybatch.adapters.secrets import SecretsManagerSecrets
from tallybatch.domain.spec import Spec
from tallybatch.ports import Ledger, Objects, OnDemand, ProviderApi, ProviderFormat
from tallybatch.steps import (
    admit_job,
    answer_shard,
    approve_canary,
    build_manifest,
    collect_shard,
    discover_backfill,
    fail_job,
    judge_canary,
    plan_attempt,
    poll_shard,
    reconcile_job,
    reconcile_shard,
    release_quota,
    reserve_quota,
    resolve_review,
    resume_job,
    seal_job,
    submit_shard,
    sweep,
)

_CONFIG = Config(
    retries={"mode": "standard", "max_attempts": 5}, connect_timeout=5, read_timeout=60, max_pool_connections=32
)
_DYNAMODB_CONFIG = _CONFIG.merge(Config(parameter_validation=False))
"""The bulk writes are ours and well formed; checking them again costs a third of their CPU."""
_CREATE_CONFIG = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=50)
"""Bedrock's create: one request per call. It must have given up before `submitting.CREATE_TIMEOUT_S`."""
_CLOCK = SystemClock()


@cache
def _client(service: str) -> Any:
    config = _DYNAMODB_CONFIG if service == "dynamodb" else _CONFIG
    return boto3.client(service, config=config)  # type: ignore[call-overload]


@cache
def objects(bucket: str) -> Objects:
    return S3Objects(_client("s3"), bucket)


@cache
def ledger(table: str) -> Ledger:
    return DynamoDBLedger(_client("dynamodb"), table)


@cache
def _events(bus: str) -> EventBridgeEvents:
    return EventBridgeEvents(_client("events"), bus)


@cache
def _executions(state_machine_arn: str) -> StepFunctionsExecutions:
    return StepFunctionsExecutions(_client("stepfunctions"), state_machine_arn)


@cache
def _task_tokens() -> StepFunctionsTaskTokens:
    return StepFunctionsTaskTokens(_client("stepfunctions"))


@cache
def _openai(secret: str) -> ProviderApi:
    secrets = SecretsManagerSecrets(_client("secretsmanager"))
    return OpenAIApi(lambda: secrets.get(secret))


@cache
def _bedrock(bucket: str, role_arn: str) -> ProviderApi:
    create_client: Any = boto3.client("bedrock", config=_CREATE_CONFIG)
    return BedrockApi(_client("bedrock"), create_client, objects(bucket), role_arn)


@cache
def _gemini(secret: str) -> ProviderApi:
    secrets = SecretsManagerSecrets(_client("secretsmanager"))
    return GeminiApi(lambda: secrets.get(secret), base_url=s.gemini_base_url())


def provider_api(settings: s.ProviderSettings, name: str) -> ProviderApi:
    """The calls of a provider by its name; loads its SDK with the first call."""
    return _provider_makers(settings)[name]()


def _provider_makers(settings: s.ProviderSettings) -> dict[str, Callable[[], ProviderApi]]:
    return {
        "openai": lambda: _openai(settings.openai_secret),
        "bedrock": lambda: _bedrock(settings.bucket, settings.bedrock_role_arn),
        "gemini": lambda: _gemini(settings.gemini_secret),
    }


@cache
def _on_demand(name: str, secret: str, timeout_s: float) -> OnDemand:
    """`secret` is the one of this provider, "" if it has none."""
    if name == "bedrock":
        config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=timeout_s)
        return BedrockOnDemand(lambda: boto3.client("bedrock-runtime", config=config))
    secrets = SecretsManagerSecrets(_client("secretsmanager"))
    if name == "gemini":
        return GeminiOnDemand(lambda: secrets.get(secret), base_url=s.gemini_base_url(), timeout_s=timeout_s)
    return OpenAIOnDemand(lambda: secrets.get(secret), timeout_s=timeout_s)


def formats(spec: Spec) -> ProviderFormat:
    """The request and result lines of a spec's provider."""
    if spec.provider == "bedrock":
        return BedrockFormat(spec.model_resolved, spec.endpoint, spec.generation, spec.output.schema_)
    if spec.provider == "gemini":
        return GeminiFormat(spec.model_resolved, spec.endpoint, spec.generation, spec.output.schema_)
    return OpenAIFormat(
        spec.model_resolved, spec.endpoint, spec.generation, spec.output.schema_, spec.output.schema_version
    )


def build_manifest_ports(settings: s.BuildManifest) -> build_manifest.Ports:
    return build_manifest.Ports(
        objects=objects(settings.bucket),
        ledger=ledger(settings.table),
        executions=_executions(settings.state_machine_arn),
        events=_events(settings.event_bus),
        clock=_CLOCK,
        formats=formats,
        min_records=settings.min_records,
    )


def discover_backfill_ports(settings: s.DiscoverBackfill) -> discover_backfill.Ports:
    return discover_backfill.Ports(objects(settings.bucket), objects, ledger(settings.table), _CLOCK)


def admit_job_ports(settings: s.AdmitJob) -> admit_job.Ports:
    return admit_job.Ports(objects(settings.bucket), ledger(settings.table), _CLOCK)


def release_quota_ports(settings: s.ReleaseQuota) -> release_quota.Ports:
    return release_quota.Ports(ledger(settings.table), _CLOCK)


def reserve_quota_ports(settings: s.ReserveQuota) -> reserve_quota.Ports:
    return reserve_quota.Ports(ledger(settings.table), _CLOCK)


def plan_attempt_ports(settings: s.PlanAttempt) -> plan_attempt.Ports:
    return plan_attempt.Ports(
        objects(settings.bucket),
        ledger(settings.table),
        _events(settings.event_bus),
        _CLOCK,
        formats,
        settings.min_records,
    )


def submit_shard_ports(settings: s.SubmitShard, provider: str) -> submit_shard.Ports:
    return submit_shard.Ports(
        objects(settings.bucket),
        ledger(settings.table),
        provider_api(settings, provider),
        _CLOCK,
        formats,
        settings.min_records,
    )


def answer_shard_ports(settings: s.AnswerShard, provider: str) -> answer_shard.Ports:
    secret = {"openai": settings.openai_secret, "gemini": settings.gemini_secret}.get(provider, "")
    lane = _on_demand(provider, secret, settings.call_timeout_s)
    return answer_shard.Ports(objects(settings.bucket), ledger(settings.table), lane, _CLOCK, formats)


def poll_shard_ports(settings: s.PollShard, provider: str) -> poll_shard.Ports:
    return poll_shard.Ports(ledger(settings.table), provider_api(settings, provider), _CLOCK)


def collect_shard_ports(settings: s.CollectShard, provider: str) -> collect_shard.Ports:
    return collect_shard.Ports(
        objects(settings.bucket), ledger(settings.table), provider_api(settings, provider), _CLOCK
    )


def reconcile_shard_ports(settings: s.ReconcileShard) -> reconcile_shard.Ports:
    return reconcile_shard.Ports(objects(settings.bucket), ledger(settings.table), _CLOCK, formats)


def reconcile_job_ports(settings: s.ReconcileJob) -> reconcile_job.Ports:
    return reconcile_job.Ports(objects(settings.bucket), ledger(settings.table), _CLOCK)


def judge_canary_ports(settings: s.JudgeCanary) -> judge_canary.Ports:
    return judge_canary.Ports(objects(settings.bucket), ledger(settings.table), _CLOCK)


def approve_canary_ports(settings: s.ApproveCanary) -> approve_canary.Ports:
    return approve_canary.Ports(
        objects(settings.bucket), ledger(settings.table), _events(settings.event_bus), _task_tokens(), _CLOCK
    )


def seal_job_ports(settings: s.SealJob) -> seal_job.Ports:
    return seal_job.Ports(
        objects(settings.bucket), ledger(settings.table), _events(settings.event_bus), _CLOCK, formats
    )


def resume_job_ports(settings: s.ResumeJob) -> resume_job.Ports:
    return resume_job.Ports(
        objects(settings.bucket), ledger(settings.table), _executions(settings.state_machine_arn), _CLOCK
    )


def resolve_review_ports(settings: s.ResolveReview) -> resolve_review.Ports:
    return resolve_review.Ports(
        objects(settings.bucket), ledger(settings.table), _executions(settings.state_machine_arn), _CLOCK
    )


def fail_job_ports(settings: s.FailJob) -> fail_job.Ports:
    return fail_job.Ports(objects(settings.bucket), ledger(settings.table), _events(settings.event_bus), _CLOCK)


def sweep_ports(settings: s.Sweep) -> sweep.Ports:
    return sweep.Ports(
        ledger=ledger(settings.table),
        providers={name: make() for name, make in _provider_makers(settings).items()},
        events=_events(settings.event_bus),
        executions=_executions(settings.state_machine_arn),
        clock=_CLOCK,
        objects=objects(settings.bucket),
        keep_files_s=settings.provider_file_hours * 3600,
    )
