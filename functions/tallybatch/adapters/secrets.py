"""The port Secrets on AWS Secrets Manager: read at run time, kept in memory for a short while, never logged."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from tallybatch.adapters.aws_errors import calling, error_code
from tallybatch.domain.errors import NotFound, Permanent

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

CACHE_S = 300.0


class SecretsManagerSecrets:
    """`monotonic` gives seconds; a value older than `cache_s` is read again, so that a rotation arrives by itself."""

    def __init__(
        self,
        client: SecretsManagerClient,
        *,
        cache_s: float = CACHE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._cache_s = cache_s
        self._monotonic = monotonic
        self._cached: dict[str, tuple[float, str]] = {}

    def get(self, name: str) -> str:
        """The secret's string by name or ARN. Raises `NotFound` if there is none, `Permanent` if it is binary."""
        now = self._monotonic()
        read_at, value = self._cached.get(name, (0.0, ""))
        if value and now - read_at < self._cache_s:
            return value
        with calling(f"secret {name}"):
            try:
                reply = self._client.get_secret_value(SecretId=name)
            except ClientError as error:
                if error_code(error) == "ResourceNotFoundException":
                    raise NotFound(
                        "no such secret",
                        where=f"secret {name}",
                        why="it does not exist in this account and region, or holds no value yet",
                        do="put the provider's API key with `aws secretsmanager put-secret-value`",
                    ) from error
                raise
        value = reply.get("SecretString", "")
        if not value:
            raise Permanent(
                "the secret holds no text",
                where=f"secret {name}",
                why="it is empty or was stored as SecretBinary",
                do="store the key as SecretString",
            )
        self._cached[name] = (now, value)
        return value
