"""What Bedrock's batch inference needs: the service role with which it reads request files and writes results, and what
a function may ask of it."""

from __future__ import annotations

from typing import Final

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.constructs.access import allow, allow_below, allow_key, allow_list
from infra.constructs.nag import wildcard
from infra.constructs.storage import Storage

OUTPUT_PREFIX: Final = "provider/"
"""`layout.JobKeys.provider_output`."""
_SERVICE: Final = "bedrock.amazonaws.com"
_WATCH: Final = ("bedrock:GetModelInvocationJob", "bedrock:StopModelInvocationJob")


class Bedrock(Construct):
    """`role`: trusted by Bedrock for batch jobs of this account and region alone (user guide, "Create a service role
    for batch inference")."""

    def __init__(self, scope: Construct, construct_id: str, *, storage: Storage, key: kms.IKey) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        self._jobs = stack.format_arn(service="bedrock", resource="model-invocation-job", resource_name="*")
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                _SERVICE,
                conditions={
                    "StringEquals": {"aws:SourceAccount": stack.account},
                    "ArnLike": {"aws:SourceArn": self._jobs},
                },
            ),
            description="Tallybatch: what a Bedrock batch job may do",
        )
        bucket_arn = storage.bucket.bucket_arn
        requests = f"{bucket_arn}/jobs/*/request.jsonl"
        allow(self.role, ["s3:GetObject"], [requests])
        wildcard(self.role, requests, "Request files are named by tenant, job and submission, at run time.")
        allow_below(self.role, bucket_arn, [OUTPUT_PREFIX], ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"])
        allow_list(self.role, bucket_arn, ["jobs/", OUTPUT_PREFIX])
        allow_key(self.role, key, ["s3"])
        models = self._models()
        allow(self.role, ["bedrock:InvokeModel"], models)
        for resource in models:
            wildcard(self.role, resource, _ANY_MODEL)

    def allow_watch(self, role: iam.Role) -> None:
        """Let a function find jobs, ask for their state and stop them."""
        allow(role, _WATCH, [self._jobs])
        allow(role, ["bedrock:ListModelInvocationJobs"], ["*"])
        wildcard(role, self._jobs, _ANY_JOB)

    def allow_submit(self, role: iam.Role) -> None:
        """Let a function make jobs, and hand them the service role."""
        models = self._models()
        allow(role, ["bedrock:CreateModelInvocationJob"], [self._jobs])
        allow(role, ["bedrock:CreateModelInvocationJob", "bedrock:InvokeModel"], models)
        allow(role, ["iam:PassRole"], [self.role.role_arn], StringEquals={"iam:PassedToService": _SERVICE})
        for resource in models:
            wildcard(role, resource, _ANY_MODEL)

    def allow_invoke(self, role: iam.Role) -> None:
        """Let a function ask models one request at a time; Converse is a way of InvokeModel (Service Authorization
        Reference, Amazon Bedrock)."""
        models = self._models()
        allow(role, ["bedrock:InvokeModel"], models)
        for resource in models:
            wildcard(role, resource, _ANY_MODEL)

    def _models(self) -> list[str]:
        """Foundation models of any region, for an inference profile routes to several; profiles of this account."""
        stack = Stack.of(self)
        foundation = f"arn:{stack.partition}:bedrock:*::foundation-model/*"
        profiles = [
            stack.format_arn(
                service="bedrock", resource=kind, resource_name="*", arn_format=ArnFormat.SLASH_RESOURCE_NAME
            )
            for kind in ("inference-profile", "application-inference-profile")
        ]
        return [foundation, *profiles]


_ANY_JOB: Final = "Bedrock names its jobs itself, when they are created."
_ANY_MODEL: Final = "The model is the spec's choice; which ones an account may use is decided in Bedrock."
