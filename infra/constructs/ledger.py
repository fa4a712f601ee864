"""The ledger's table: one table, conditional writes, one index that lists jobs newest first."""

from __future__ import annotations

from typing import Final

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from constructs import Construct

JOBS_INDEX: Final = "jobs"


class Ledger(Construct):
    """`table`: keys `pk`, `sk` and, in the index `jobs`, `listing`, `listed_at`; all strings. On demand, with
    point-in-time recovery. Items with a number `expires_at` (Unix seconds) are deleted some time after it."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key: kms.IKey,
        deletion_protection: bool,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, construct_id)
        self.table = dynamodb.Table(
            self,
            "Table",
            partition_key=_text("pk"),
            sort_key=_text("sk"),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED,
            encryption_key=key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute="expires_at",
            deletion_protection=deletion_protection,
            removal_policy=removal_policy,
        )
        self.table.add_global_secondary_index(
            index_name=JOBS_INDEX,
            partition_key=_text("listing"),
            sort_key=_text("listed_at"),
            projection_type=dynamodb.ProjectionType.ALL,
        )


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
