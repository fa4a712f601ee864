"""What runs by the clock: each declared backfill calls DiscoverBackfill with its request, and Sweep runs every hour."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra.constructs.access import allow, allow_key
from infra.constructs.queues import dead_letters
from infra.options import Backfill

SCHEDULED_TIME: Final = "<aws.scheduler.scheduled-time>"
"""EventBridge Scheduler puts in the moment for which a run was planned (User Guide, "Adding context attributes")."""
MAX_RETRIES = 185
MAX_EVENT_AGE_S = 86_400
"""EventBridge Scheduler's own limits: 185 retries within 24 hours."""


SWEEP_EVERY: Final = "rate(1 hour)"
SWEEP_FLEXIBLE_MINUTES: Final = 15


class Schedules(Construct):
    """One group named like the stack; its role may only call the two functions and send to `queue`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        backfills: Sequence[Backfill],
        discover: lambda_.IFunction,
        sweep: lambda_.IFunction,
        planned_time: str,
        key: kms.IKey,
        removal_policy: RemovalPolicy,
    ) -> None:
        """`planned_time`: what stands for the planned moment in a request; "" lets the function look at its clock."""
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        self.queue = dead_letters(self, "DeadLetters", key=key, removal_policy=removal_policy)
        self.group = scheduler.CfnScheduleGroup(self, "Group", name=stack.stack_name)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": stack.account}}
            ),
            description="Tallybatch: what a schedule may do",
        )
        allow(self.role, ["lambda:InvokeFunction"], [discover.function_arn, sweep.function_arn])
        allow(self.role, ["sqs:SendMessage"], [self.queue.queue_arn])
        allow_key(self.role, key, ["sqs"])
        for backfill in backfills:
            schedule = self._schedule(
                f"Backfill-{backfill.name}",
                f"backfill-{backfill.name}",
                discover,
                {**backfill.payload(), "time": planned_time},
                f"backfill of {backfill.prefix} for {backfill.tenant} by {backfill.spec}",
                backfill.schedule,
                backfill.flexible_minutes,
            )
            schedule.schedule_expression_timezone = backfill.timezone
            schedule.state = "ENABLED" if backfill.enabled else "DISABLED"
        look = "look for provider jobs that the ledger does not know, and for jobs that nobody works on"
        self._schedule("Sweep", "sweep", sweep, {}, look, SWEEP_EVERY, SWEEP_FLEXIBLE_MINUTES)

    def _schedule(
        self,
        construct_id: str,
        name: str,
        function: lambda_.IFunction,
        payload: Mapping[str, object],
        description: str,
        expression: str,
        flexible_minutes: int,
    ) -> scheduler.CfnSchedule:
        schedule = scheduler.CfnSchedule(
            self,
            construct_id,
            name=name,
            group_name=self.group.ref,
            description=f"Tallybatch: {description}",
            schedule_expression=expression,
            state="ENABLED",
            flexible_time_window=_window(flexible_minutes),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=function.function_arn,
                role_arn=self.role.role_arn,
                input=json.dumps(payload, sort_keys=True),
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=self.queue.queue_arn),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_retry_attempts=MAX_RETRIES, maximum_event_age_in_seconds=MAX_EVENT_AGE_S
                ),
            ),
        )
        schedule.node.add_dependency(self.role)
        return schedule


def _window(minutes: int) -> scheduler.CfnSchedule.FlexibleTimeWindowProperty:
    if minutes == 0:
        return scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF")
    return scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="FLEXIBLE", maximum_window_in_minutes=minutes)
