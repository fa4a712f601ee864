"""What a stack with declared backfills adds to DiscoverBackfill's role. The local stack declares none, and the tests
ask the function for sources of their own, which on AWS they would have to declare."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from infra.constructs.access import allow_sources  # first: `infra` says which Node the CDK uses
from infra.options import Source

# isort: split
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam

from infra.local.loopback import ACCOUNT, REGION
from tests.support.iam_template import flat


def declared_sources(buckets: Iterable[str], prefix: str) -> dict[str, Any]:
    """The policy document that the real construct writes for a source in each bucket."""
    stack = Stack(App(), "Declared", env=Environment(account=ACCOUNT, region=REGION))
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    allow_sources(role, "", [Source(bucket=bucket, prefix=prefix) for bucket in sorted(buckets)])
    template: dict[str, Any] = App.of(stack).synth().get_stack_by_name("Declared").template  # type: ignore[union-attr]
    statements = [
        statement
        for each in template.get("Resources", {}).values()
        if each["Type"] == "AWS::IAM::Policy"
        for statement in flat(each["Properties"]["PolicyDocument"])["Statement"]
    ]
    whole: dict[str, Any] = json.loads(json.dumps({"Statement": statements}).replace("<AWS::Partition>", "aws"))
    return whole
