"""The stack: the constructs, one per concern, tied together. Its outputs are what the CLI reads."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import CfnOutput, DefaultStackSynthesizer, Environment, RemovalPolicy, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.bundling import NOT_SHIPPED, package, source_package
from infra.constructs.athena import CostTables
from infra.constructs.bedrock import Bedrock
from infra.constructs.events import Bus, Intake
from infra.constructs.functions import FunctionCode, Functions
from infra.constructs.keys import Keys
from infra.constructs.ledger import Ledger
from infra.constructs.observability import Observability
from infra.constructs.schedule import SCHEDULED_TIME, Schedules
from infra.constructs.secrets import ProviderSecrets
from infra.constructs.storage import Storage
from infra.constructs.workflow import Workflow
from infra.options import StackOptions
from tallybatch.settings import FUNCTIONS, BuildManifest, DiscoverBackfill, ResolveReview, ResumeJob, Sweep

OUTSIDE: Final = (BuildManifest, DiscoverBackfill, Sweep, ResumeJob, ResolveReview)
"""The functions that events and people call."""
WORKFLOW_FUNCTIONS: Final = tuple(model for model in FUNCTIONS if model not in OUTSIDE)
"""The functions that the state machine calls."""


def function_code(options: StackOptions) -> FunctionCode:
    """The functions' packages: with locked dependencies for AWS, the source alone for the embedded default."""
    if options.local:
        source = source_package()
        code: lambda_.Code = lambda_.Code.from_asset(
            str(source.path), asset_hash=source.hash, exclude=[*NOT_SHIPPED, "**/__pycache__"]
        )
        return FunctionCode(core=code, providers=code)
    core, providers = package(), package("gemini", "openai")
    return FunctionCode(
        core=lambda_.Code.from_asset(str(core.path), asset_hash=core.hash),
        providers=lambda_.Code.from_asset(str(providers.path), asset_hash=providers.hash),
    )


class TallybatchStack(Stack):
    """One pipeline: inbox, ledger, functions, workflow. Data outlives the stack, unless it is a local one.

    A local stack also differs in its schedules: the emulator does not fill in the planned time of a run.
    """

    def __init__(
        self, scope: Construct, *, options: StackOptions, env: Environment, code: FunctionCode | None = None
    ) -> None:
        super().__init__(
            scope,
            options.stack,
            stack_name=options.stack,
            description="Tallybatch: LLM jobs over provider batch APIs, every record answered once, with proof",
            env=env,
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
            termination_protection=not options.local,
        )
        # cfn-lint: the dependencies that it finds superfluous (W3005) are written by CDK itself.
        self.template_options.metadata = {"cfn-lint": {"config": {"ignore_checks": ["W3005"]}}}
        keep = RemovalPolicy.DESTROY if options.local else RemovalPolicy.RETAIN

        keys = Keys(self, "Keys", alias=f"alias/{options.stack}", removal_policy=keep)
        shared: dict[str, Any] = {"key": keys.key, "removal_policy": keep}
        storage = Storage(self, "Storage", retention=options.retention, **shared)
        ledger = Ledger(self, "Ledger", deletion_protection=not options.local, **shared)
        secrets = ProviderSecrets(self, "Secrets", **shared)
        bedrock = Bedrock(self, "Bedrock", storage=storage, key=keys.key)
        bus = Bus(self, "Bus", key=keys.key).bus
        functions = Functions(
            self,
            "Functions",
            code=code or function_code(options),
            storage=storage,
            ledger=ledger,
            secrets=secrets,
            bedrock=bedrock,
            bus=bus,
            sources=options.sources,
            log_retention=options.log_retention,
            **shared,
        )
        discover = functions.add(DiscoverBackfill)
        workflow = Workflow(
            self,
            "Workflow",
            functions={model.function: functions.add(model) for model in WORKFLOW_FUNCTIONS},
            storage=storage,
            key=keys.key,
            log_retention=options.log_retention,
        )
        state_machine = workflow.state_machine
        build = functions.add(BuildManifest, {"state_machine_arn": state_machine.state_machine_arn})
        state_machine.grant_start_execution(build)
        sweep = functions.add(
            Sweep,
            {
                "state_machine_arn": state_machine.state_machine_arn,
                "provider_file_hours": str(options.provider_file_hours),
            },
        )
        workflow.allow_repair(sweep)
        steering = {
            f"{model.function}Function": functions.add(model, {"state_machine_arn": state_machine.state_machine_arn})
            for model in (ResumeJob, ResolveReview)
        }
        workflow.allow_repair(steering["ResumeJobFunction"])
        state_machine.grant_start_execution(steering["ResolveReviewFunction"])
        intake = Intake(self, "Intake", bucket=storage.bucket, function=build, **shared)
        schedules = Schedules(
            self,
            "Schedules",
            backfills=options.backfills,
            discover=discover,
            sweep=sweep,
            planned_time="" if options.local else SCHEDULED_TIME,
            **shared,
        )
        observability = Observability(
            self,
            "Observability",
            key=keys.key,
            alarm_email=options.alarm_email,
            queues={**functions.queues, "Intake": intake.queue, "Schedules": schedules.queue},
            state_machine=state_machine,
        )
        tables = CostTables(self, "Costs", bucket_name=storage.bucket.bucket_name)
        for name, value in {
            "Bucket": storage.bucket.bucket_name,
            "Table": ledger.table.table_name,
            "CostDatabase": tables.database.ref,
            "StateMachineArn": state_machine.state_machine_arn,
            "EventBus": bus.event_bus_name,
            "OpenAISecret": secrets.openai.secret_arn,
            "GeminiSecret": secrets.gemini.secret_arn,
            "BuildManifestFunction": build.function_name,
            "DiscoverBackfillFunction": discover.function_name,
            "SweepFunction": sweep.function_name,
            **{name: function.function_name for name, function in steering.items()},
            "AlarmTopic": observability.topic.topic_arn,
            "Region": self.region,
        }.items():
            CfnOutput(self, name, value=value)
