"""The providers' API keys: created empty, filled by the operator, read at run time."""

from __future__ import annotations

from typing import cast

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.constructs.nag import acknowledge


class ProviderSecrets(Construct):
    """`openai`, `gemini`: the API key as plain text. None has a value until `aws secretsmanager put-secret-value`."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey, removal_policy: RemovalPolicy) -> None:
        super().__init__(scope, construct_id)
        self.openai = self._secret("OpenAI", key, removal_policy)
        self.gemini = self._secret("Gemini", key, removal_policy)

    def _secret(self, provider: str, key: kms.IKey, removal_policy: RemovalPolicy) -> secretsmanager.Secret:
        secret = secretsmanager.Secret(
            self,
            provider,
            description=f"Tallybatch: the {provider} API key, as plain text",
            encryption_key=key,
            removal_policy=removal_policy,
        )
        # The L2 construct would fill it with a random password, which reads like a key and is none.
        resource = cast("secretsmanager.CfnSecret", secret.node.default_child)
        resource.generate_secret_string = None
        acknowledge(secret, {"SMG4": "The key is issued by the provider, which offers no rotation API."})
        return secret
