"""The one customer-managed key: objects, table, logs, queues, secret and bus are encrypted with it."""

from __future__ import annotations

from aws_cdk import ArnFormat, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct


class Keys(Construct):
    """`key` rotates every year. Services may use it only for this account, logs only for log groups of this account."""

    def __init__(self, scope: Construct, construct_id: str, *, alias: str, removal_policy: RemovalPolicy) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        self.key = kms.Key(
            self,
            "Key",
            alias=alias,
            description="Tallybatch: everything at rest",
            enable_key_rotation=True,
            removal_policy=removal_policy,
        )
        log_groups = stack.format_arn(
            service="logs", resource="log-group", resource_name="*", arn_format=ArnFormat.COLON_RESOURCE_NAME
        )
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="LogGroupsOfThisAccount",
                principals=[iam.ServicePrincipal(f"logs.{stack.region}.amazonaws.com")],
                actions=["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
                resources=["*"],
                conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": log_groups}},
            )
        )
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="EventsToEncryptedQueues",
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
            )
        )
        # The construct of the bus asks for this with the encryption context, which DescribeKey never has (EventBridge
        # User Guide, "Authorizing EventBridge to use a customer managed key").
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="EventsToTheEncryptedBus",
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["kms:DescribeKey"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
            )
        )
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsToTheEncryptedTopic",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
            )
        )
