"""The bucket, its access logs, and how long objects live.

A lifecycle filter matches the beginning of a key, and classes of objects differ in its middle (`jobs/<tenant>/
<job_key>/attempts/.../raw/`). So the writer tags each object: `retention=CLASS` (inbox, working, raw, results) for the
stack's default of that class, or `retention=Nd` (`domain/retention.py`) for what the spec asks. Each value is a rule.

Where two rules match, S3 lets the earlier expiry win (User Guide, "Examples of S3 Lifecycle configurations"). Rules by
prefix are therefore of two kinds only. `inbox/`, `quarantine/` and `provider/` (where Bedrock writes) hold what comes
without tags: a tag can shorten that, to lengthen it is up to the stack. Elsewhere a ceiling of the longest allowed
retention sees to it that nothing untagged lives for ever. `specs/` and `golden/` are declarations, not data of a run:
they stay.
"""

from __future__ import annotations

from typing import Final, cast

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.nag import acknowledge
from infra.options import Retention
from tallybatch.domain.retention import OVERRIDE_DAYS

TAG: Final = "retention"
ABORT_MULTIPART_DAYS: Final = 3
ACCESS_LOG_DAYS: Final = 365
_CEILINGS: Final = ("jobs/", "results/", "review/", "deletions/")


def lifecycle_rules(retention: Retention) -> list[s3.LifecycleRule]:
    """All rules of the bucket; the ids say what they match."""
    classes = retention.model_dump(exclude={"noncurrent"})
    longest = max(*OVERRIDE_DAYS, *classes.values())
    by_tag = {**classes, **{f"{days}d": days for days in OVERRIDE_DAYS}}
    by_prefix = {
        "inbox/": retention.inbox,
        "quarantine/": retention.raw,
        "provider/": retention.raw,
        **dict.fromkeys(_CEILINGS, longest),
    }
    return [
        *(
            s3.LifecycleRule(id=f"{TAG}={value}", tag_filters={TAG: value}, expiration=Duration.days(days))
            for value, days in by_tag.items()
        ),
        *(
            s3.LifecycleRule(id=f"prefix={prefix}", prefix=prefix, expiration=Duration.days(days))
            for prefix, days in by_prefix.items()
        ),
        s3.LifecycleRule(
            id="leftovers",
            noncurrent_version_expiration=Duration.days(retention.noncurrent),
            expired_object_delete_marker=True,
            abort_incomplete_multipart_upload_after=Duration.days(ABORT_MULTIPART_DAYS),
        ),
    ]


class Storage(Construct):
    """`bucket`: versioned, TLS only, encrypted with `key` through bucket keys, events to EventBridge."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key: kms.IKey,
        retention: Retention,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, construct_id)
        self.access_logs = s3.Bucket(
            self,
            "AccessLogs",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=removal_policy,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="old",
                    expiration=Duration.days(ACCESS_LOG_DAYS),
                    abort_incomplete_multipart_upload_after=Duration.days(ABORT_MULTIPART_DAYS),
                )
            ],
        )
        acknowledge(self.access_logs, {"S1": "It holds the access logs; logging its own accesses would feed itself."})
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            versioned=True,
            encryption=s3.BucketEncryption.KMS,
            encryption_key=key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            server_access_logs_bucket=self.access_logs,
            server_access_logs_prefix="data/",
            removal_policy=removal_policy,
            lifecycle_rules=lifecycle_rules(retention),
        )
        # The L2 property would switch events on through a custom resource: one more function with wide permissions.
        resource = cast("s3.CfnBucket", self.bucket.node.default_child)
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(event_bridge_enabled=True)
        )
