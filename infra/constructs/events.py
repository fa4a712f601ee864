"""Events in and out: the job's bus, and the one rule that makes a file in the inbox a job."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.queues import dead_letters

INBOX: Final = "inbox/"


class Bus(Construct):
    """`bus`, named like the stack: what the pipeline tells the world (started, refused, completed, failed)."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey) -> None:
        super().__init__(scope, construct_id)
        self.bus = events.EventBus(
            self,
            "Bus",
            event_bus_name=Stack.of(self).stack_name,
            description="Tallybatch: what happens to jobs",
            kms_key=key,
        )


class Intake(Construct):
    """The rule: an object created below `inbox/` goes to `function`, and nothing else does, above all not what the
    pipeline itself writes. `queue` takes what could not be delivered within 24 hours (EventBridge's own limit)."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        bucket: s3.IBucket,
        function: lambda_.IFunction,
        key: kms.IKey,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, construct_id)
        self.queue = dead_letters(self, "DeadLetters", key=key, removal_policy=removal_policy)
        self.rule = events.Rule(
            self,
            "Inbox",
            description="Tallybatch: a file in the inbox becomes a job",
            event_pattern=events.EventPattern(
                source=["aws.s3"],
                detail_type=["Object Created"],
                detail={"bucket": {"name": [bucket.bucket_name]}, "object": {"key": [{"prefix": INBOX}]}},
            ),
            targets=[
                targets.LambdaFunction(
                    function,
                    dead_letter_queue=self.queue,
                    retry_attempts=185,
                    max_event_age=Duration.hours(24),
                )
            ],
        )
