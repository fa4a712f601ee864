"""Dead-letter queues: where an event goes that could not be handled, for two weeks."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.nag import acknowledge


def dead_letters(scope: Construct, construct_id: str, *, key: kms.IKey, removal_policy: RemovalPolicy) -> sqs.Queue:
    """An encrypted queue that takes TLS only."""
    queue = sqs.Queue(
        scope,
        construct_id,
        encryption=sqs.QueueEncryption.KMS,
        encryption_master_key=key,
        data_key_reuse=Duration.hours(1),
        enforce_ssl=True,
        retention_period=Duration.days(14),
        removal_policy=removal_policy,
    )
    acknowledge(queue, {"SQS3": "This is itself a dead-letter queue: of an event source, not of another queue."})
    return queue
