"""The functions: one per settings model, with its own role, log group and, where events call it, dead-letter queue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy, Size, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.access import (
    READ_ACTIONS,
    TAG_ACTIONS,
    VERSION_ACTIONS,
    WRITE_ACTIONS,
    allow,
    allow_below,
    allow_key,
    allow_list,
    allow_sources,
)
from infra.constructs.bedrock import Bedrock
from infra.constructs.ledger import JOBS_INDEX, Ledger
from infra.constructs.nag import acknowledge
from infra.constructs.profiles import PROFILES, Profile
from infra.constructs.queues import dead_letters
from infra.constructs.secrets import ProviderSecrets
from infra.constructs.storage import Storage
from infra.options import Source
from tallybatch.settings import AnswerShard, CallerSettings, DiscoverBackfill, StoreSettings, SubmitShard

RUNTIME = lambda_.Runtime.PYTHON_3_13
OLDEST_EVENT = Duration.hours(6)
"""Lambda's own limit for asynchronous events, written down."""


@dataclass(frozen=True, kw_only=True)
class FunctionCode:
    """`core` for functions that call no provider, `providers` with the providers' SDKs for those that do."""

    core: lambda_.Code
    providers: lambda_.Code


def handler_of(model: type[StoreSettings]) -> str:
    """`BuildManifest` -> `tallybatch.handlers.build_manifest.handler`."""
    return f"tallybatch.handlers.{re.sub(r'(?<!^)(?=[A-Z])', '_', model.function).lower()}.handler"


class Functions(Construct):
    """Makes functions with `add`; `by_name` holds them by `StoreSettings.function`, `queues` their dead letters."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: FunctionCode,
        key: kms.IKey,
        storage: Storage,
        ledger: Ledger,
        secrets: ProviderSecrets,
        bedrock: Bedrock,
        bus: events.IEventBus,
        sources: tuple[Source, ...],
        log_retention: logs.RetentionDays,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, construct_id)
        self._code = code
        self._key = key
        self._storage = storage
        self._ledger = ledger
        self._secrets = secrets
        self._bedrock = bedrock
        self._bus = bus
        self._sources = sources
        self._log_retention = log_retention
        self._removal_policy = removal_policy
        self.by_name: dict[str, lambda_.Function] = {}
        self.queues: dict[str, sqs.Queue] = {}

    def add(self, model: type[StoreSettings], values: Mapping[str, str] | None = None) -> lambda_.Function:
        """Make the function of a settings model. `values` are fields that this construct cannot know by itself; a
        field without a value or a default is a `ValidationError` of the model."""
        profile, name = PROFILES[model], model.function
        function_name = f"{Stack.of(self).stack_name}-{name}"
        scope = Construct(self, name)
        role = self._role(scope, model, profile)
        log_group = logs.LogGroup(
            scope,
            "Logs",
            log_group_name=f"/aws/lambda/{function_name}",
            encryption_key=self._key,
            retention=self._log_retention,
            removal_policy=RemovalPolicy.DESTROY,
        )
        log_group.grant_write(role)
        queue = None
        if profile.asynchronous:
            queue = dead_letters(scope, "DeadLetters", key=self._key, removal_policy=self._removal_policy)
            self.queues[name] = queue
        function = lambda_.Function(
            scope,
            "Function",
            function_name=function_name,
            description=f"Tallybatch: {name}",
            code=self._code.providers if issubclass(model, CallerSettings) else self._code.core,
            handler=handler_of(model),
            runtime=RUNTIME,
            architecture=lambda_.Architecture.ARM_64,
            memory_size=profile.memory_mb,
            timeout=Duration.seconds(profile.timeout_s),
            ephemeral_storage_size=Size.mebibytes(profile.spool_mb),
            environment=self._environment(model, values or {}),
            role=role,
            log_group=log_group,
            logging_format=lambda_.LoggingFormat.JSON,
            tracing=lambda_.Tracing.ACTIVE,
            dead_letter_queue=queue,
            max_event_age=OLDEST_EVENT if profile.asynchronous else None,
            retry_attempts=2 if profile.asynchronous else None,
        )
        acknowledge(
            role,
            {
                "IAM5[Resource::*]": "X-Ray's PutTraceSegments and PutTelemetryRecords know no resources, "
                "nor does Bedrock's ListModelInvocationJobs."
            },
        )
        acknowledge(function, {"L1": "Python 3.13 on arm64 is what the dependencies are locked and tested for."})
        self.by_name[name] = function
        return function

    def _environment(self, model: type[StoreSettings], values: Mapping[str, str]) -> dict[str, str]:
        known = {
            "bucket": self._storage.bucket.bucket_name,
            "table": self._ledger.table.table_name,
            "event_bus": self._bus.event_bus_name,
            "openai_secret": self._secrets.openai.secret_arn,
            "gemini_secret": self._secrets.gemini.secret_arn,
            "bedrock_role_arn": self._bedrock.role.role_arn,
            **values,
        }
        settings = model.model_validate({name: known[name] for name in model.model_fields if name in known})
        return {
            **settings.environment(),
            "POWERTOOLS_SERVICE_NAME": "tallybatch",
            "POWERTOOLS_METRICS_NAMESPACE": "Tallybatch",
        }

    def _role(self, scope: Construct, model: type[StoreSettings], profile: Profile) -> iam.Role:
        role = iam.Role(
            scope,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Tallybatch: what {model.function} may do",
        )
        bucket_arn = self._storage.bucket.bucket_arn
        services = []
        if profile.table:
            services.append("dynamodb")
            allow(role, profile.table, [self._ledger.table.table_arn])
        if profile.lists_jobs:
            allow(role, ["dynamodb:Query"], [f"{self._ledger.table.table_arn}/index/{JOBS_INDEX}"])
        if profile.readable:
            services.append("s3")
            allow_below(role, bucket_arn, profile.readable, READ_ACTIONS)
            allow_list(role, bucket_arn, profile.readable)
        if profile.writes:
            allow_below(role, bucket_arn, profile.writes, WRITE_ACTIONS)
        if profile.versions:
            allow_below(role, bucket_arn, profile.versions, VERSION_ACTIONS)
        if profile.tags:
            allow_below(role, bucket_arn, profile.tags, TAG_ACTIONS)
        if model is DiscoverBackfill:
            allow_sources(role, bucket_arn, self._sources)
        if "event_bus" in model.model_fields:
            allow(role, ["events:PutEvents"], [self._bus.event_bus_arn])
        if issubclass(model, CallerSettings):
            services.append("secretsmanager")
            keys = [self._secrets.openai.secret_arn, self._secrets.gemini.secret_arn]
            allow(role, ["secretsmanager:GetSecretValue"], keys)
            if model is AnswerShard:
                self._bedrock.allow_invoke(role)
            else:
                self._bedrock.allow_watch(role)
            if model is SubmitShard:
                self._bedrock.allow_submit(role)
        if profile.asynchronous:
            services.append("sqs")
        allow_key(role, self._key, services)
        return role
