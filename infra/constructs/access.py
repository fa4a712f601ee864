"""IAM statements with the fewest actions and resources that a function's profile needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from infra.constructs.nag import wildcard
from infra.options import Source

READ_ACTIONS = ("s3:GetObject",)
VERSION_ACTIONS = ("s3:GetObjectVersion",)
"""For a request that names a version, which needs no GetObject (S3 API reference, GetObject)."""
TAG_ACTIONS = (
    "s3:GetObjectTagging",
    "s3:GetObjectVersionTagging",
    "s3:PutObjectTagging",
    "s3:PutObjectVersionTagging",
)
WRITE_ACTIONS = ("s3:PutObject", "s3:PutObjectTagging", "s3:AbortMultipartUpload")
KEY_ACTIONS = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
"""What DynamoDB, S3 and SQS ask of a caller for a customer-managed key (DynamoDB Developer Guide, "DynamoDB encryption
at rest usage notes"; S3 User Guide, "Using server-side encryption with KMS keys")."""
_BELOW_PREFIX = "Objects are named by tenant, job and content: only their prefix is known when the stack is written."


def allow(role: iam.Role, actions: Iterable[str], resources: Sequence[str], **conditions: object) -> None:
    """Add one statement to a role's policy. `conditions` maps an IAM operator to its keys."""
    role.add_to_policy(
        iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=conditions or None)
    )


def allow_below(role: iam.Role, bucket_arn: str, prefixes: Iterable[str], actions: Iterable[str]) -> None:
    """Allow actions on the objects below prefixes of a bucket, and acknowledge that this is a wildcard."""
    resources = [f"{bucket_arn}/{prefix}*" for prefix in prefixes]
    allow(role, actions, resources)
    for resource in resources:
        wildcard(role, resource, _BELOW_PREFIX)


def allow_list(role: iam.Role, bucket_arn: str, prefixes: Iterable[str]) -> None:
    """Allow to list below prefixes, and to be told that an object is missing: without ListBucket, S3 answers HEAD and
    GET with 403 instead of 404 (API reference, HeadObject). Those two carry no prefix, hence "IfExists"."""
    patterns = [f"{prefix}*" for prefix in prefixes]
    allow(role, ["s3:ListBucket"], [bucket_arn], StringLikeIfExists={"s3:prefix": patterns})


def allow_key(role: iam.Role, key: kms.IKey, services: Sequence[str]) -> None:
    """Allow to use the key, but only through these services (`s3`, `dynamodb`, ...) of the stack's region."""
    region = Stack.of(role).region
    via = [f"{service}.{region}.amazonaws.com" for service in services]
    allow(role, KEY_ACTIONS, [key.key_arn], StringEquals={"kms:ViaService": via})


def allow_sources(role: iam.Role, own_bucket_arn: str, sources: Sequence[Source]) -> None:
    """Allow a backfill to list its sources and to copy their objects."""
    partition = Stack.of(role).partition
    for source in sources:
        bucket_arn = f"arn:{partition}:s3:::{source.bucket}" if source.bucket else own_bucket_arn
        allow_below(role, bucket_arn, [source.prefix], READ_ACTIONS + VERSION_ACTIONS)
        allow_list(role, bucket_arn, [source.prefix])
