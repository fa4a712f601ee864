"""Scheduled backfills: each declared one is a schedule that calls DiscoverBackfill with its request."""

from __future__ import annotations

import json
from collections.abc import Sequence
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


class Schedules(Construct):
    """One group named like the stack; its role may only call `function` and send to `queue`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        backfills: Sequence[Backfill],
        function: lambda_.IFunction,
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
            description="Tallybatch: what a backfill's schedule may do",
        )
        allow(self.role, ["lambda:InvokeFunction"], [function.function_arn])
        allow(self.role, ["sqs:SendMessage"], [self.queue.queue_arn])
        allow_key(self.role, key, ["sqs"])
        for backfill in backfills:
            schedule = scheduler.CfnSchedule(
                self,
                f"Backfill-{backfill.name}",
                name=f"backfill-{backfill.name}",
                group_name=self.group.ref,
                description=f"Tallybatch: backfill of {backfill.prefix} for {backfill.tenant} by {backfill.spec}",
                schedule_expression=backfill.schedule,
                schedule_expression_timezone=backfill.timezone,
                state="ENABLED" if backfill.enabled else "DISABLED",
                flexible_time_window=_window(backfill.flexible_minutes),
                target=scheduler.CfnSchedule.TargetProperty(
                    arn=function.function_arn,
                    role_arn=self.role.role_arn,
                    input=json.dumps({**backfill.payload(), "time": planned_time}, sort_keys=True),
                    dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=self.queue.queue_arn),
                    retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                        maximum_retry_attempts=MAX_RETRIES, maximum_event_age_in_seconds=MAX_EVENT_AGE_S
                    ),
                ),
            )
            schedule.node.add_dependency(self.role)


def _window(minutes: int) -> scheduler.CfnSchedule.FlexibleTimeWindowProperty:
    if minutes == 0:
        return scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF")
    return scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="FLEXIBLE", maximum_window_in_minutes=minutes)
