"""The state machine: `statemachines/job.asl.json` with the functions' ARNs put in, and a role for just that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from aws_cdk import ArnFormat, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.constructs.access import allow, allow_below, allow_key
from infra.constructs.nag import acknowledge, wildcard
from infra.constructs.storage import Storage

DEFINITION: Final = Path(__file__).resolve().parents[2] / "statemachines" / "job.asl.json"


class Workflow(Construct):
    """`state_machine` (Standard) is named `<stack>-job`; logs tell every transition, without execution data."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        functions: Mapping[str, lambda_.IFunction],
        storage: Storage,
        key: kms.IKey,
        log_retention: logs.RetentionDays,
    ) -> None:
        """`functions`: by the name that stands as `${Name}` in the definition."""
        super().__init__(scope, construct_id)
        name = f"{Stack.of(self).stack_name}-job"
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
            description="Tallybatch: what a job's execution may do",
        )
        arns = {name: function.function_arn for name, function in functions.items()}
        allow(role, ["lambda:InvokeFunction"], list(arns.values()))
        allow_below(role, storage.bucket.bucket_arn, ["jobs/"], ["s3:GetObject"])
        allow_key(role, key, ["s3"])
        self.state_machine = sfn.StateMachine(
            self,
            "Job",
            state_machine_name=name,
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(DEFINITION.read_text(encoding="utf-8")),
            definition_substitutions=arns,
            role=role,
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=logs.LogGroup(
                    self,
                    "Logs",
                    log_group_name=f"/aws/vendedlogs/states/{name}",
                    encryption_key=key,
                    retention=log_retention,
                    removal_policy=RemovalPolicy.DESTROY,
                ),
                include_execution_data=False,
                level=sfn.LogLevel.ALL,
            ),
        )
        # cfn-lint knows one query language per machine, so `Seconds` in JSONata is an error to it (E3601);
        # asl-validator checks the definition instead.
        resource = cast("sfn.CfnStateMachine", self.state_machine.node.default_child)
        resource.add_metadata("cfn-lint", {"config": {"ignore_checks": ["E3601"]}})
        acknowledge(
            role,
            {"IAM5[Resource::*]": "X-Ray's and the log delivery's actions know no resources (Step Functions guide)."},
        )
        self._allow_map_runs(name).attach_to_role(role)
        self._allow_wake(functions["ApproveCanary"])

    def _allow_map_runs(self, name: str) -> iam.Policy:
        """A distributed Map starts executions of its own machine, watches and redrives them (Step Functions Developer
        Guide, "IAM policies for using Distributed Map states"). A policy of its own: in the role's
        default policy, on which the machine depends, the machine's ARN would be a cycle."""
        executions = [self._execution_arn(f"{name}:*"), self._execution_arn(f"{name}/*")]
        policy = iam.Policy(
            self,
            "MapRuns",
            statements=[
                iam.PolicyStatement(
                    actions=["states:StartExecution"], resources=[self.state_machine.state_machine_arn]
                ),
                iam.PolicyStatement(
                    actions=["states:DescribeExecution", "states:StopExecution", "states:RedriveExecution"],
                    resources=executions,
                ),
            ],
        )
        for resource in executions:
            wildcard(
                policy, resource, "Executions of this machine and of its map runs only; they are named at run time."
            )
        return policy

    def _allow_wake(self, function: lambda_.IFunction) -> None:
        """Let a function answer a task of this machine that waits for a token. The machine is named, not referred to,
        for it depends on the function."""
        machine = Stack.of(self).format_arn(
            service="states",
            resource="stateMachine",
            resource_name=f"{Stack.of(self).stack_name}-job",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        allow(cast("iam.Role", function.role), ["states:SendTaskSuccess"], [machine])

    def allow_repair(self, function: lambda_.Function) -> None:
        """Let a function ask whether an execution runs, and start another."""
        self.state_machine.grant_start_execution(function)
        executions = self._execution_arn(f"{Stack.of(self).stack_name}-job:*")
        function.add_to_role_policy(iam.PolicyStatement(actions=["states:DescribeExecution"], resources=[executions]))
        wildcard(cast("iam.Role", function.role), executions, "Executions of this machine only; jobs name them.")

    def _execution_arn(self, pattern: str) -> str:
        return Stack.of(self).format_arn(
            service="states",
            resource="execution",
            resource_name=pattern,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
