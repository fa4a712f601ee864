"""The providers' API keys: created empty, filled by the operator, read at run time."""

from __future__ import annotations

from typing import cast

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.constructs.nag import acknowledge


class ProviderSecrets(Construct):
    """`openai`: the OpenAI API key as plain text. It has no value until `aws secretsmanager put-secret-value`."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey, removal_policy: RemovalPolicy) -> None:
        super().__init__(scope, construct_id)
        self.openai = secretsmanager.Secret(
            self,
            "OpenAI",
            description="Tallybatch: the OpenAI API key, as plain text",
            encryption_key=key,
            removal_policy=removal_policy,
        )
        # The L2 construct would fill it with a random password, which reads like a key and is none.
        resource = cast("secretsmanager.CfnSecret", self.openai.node.default_child)
        resource.generate_secret_string = None
        acknowledge(self.openai, {"SMG4": "The key is issued by the provider, which offers no rotation API."})
