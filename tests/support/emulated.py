"""Clients and fresh resources on an AWS emulator, made as the stack makes them."""

from __future__ import annotations

import functools
import uuid
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_stepfunctions import SFNClient


@functools.cache
def _session() -> boto3.Session:
    return boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")


class Emulated:
    """`endpoint_url` of a running emulator. Each call makes a client of its own, so that a test may add hooks to it;
    `shared_*` are for tests that do not. The SDK sends a request `attempts` times at most."""

    def __init__(self, endpoint_url: str, *, attempts: int = 3) -> None:
        self._common: dict[str, Any] = {
            "endpoint_url": endpoint_url,
            "config": Config(
                retries={"mode": "standard", "total_max_attempts": attempts},
                s3={"addressing_style": "path"},
                max_pool_connections=20,
            ),
        }

    def s3(self) -> S3Client:
        return _session().client("s3", **self._common)

    def dynamodb(self) -> DynamoDBClient:
        return _session().client("dynamodb", **self._common)

    def secrets_manager(self) -> SecretsManagerClient:
        return _session().client("secretsmanager", **self._common)

    def events(self) -> EventBridgeClient:
        return _session().client("events", **self._common)

    def step_functions(self) -> SFNClient:
        return _session().client("stepfunctions", **self._common)

    def sqs(self) -> Any:
        return _session().client("sqs", **self._common)

    @functools.cached_property
    def shared_s3(self) -> S3Client:
        return self.s3()

    @functools.cached_property
    def shared_dynamodb(self) -> DynamoDBClient:
        return self.dynamodb()

    def new_bucket(self, *, versioned: bool = True) -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        client = self.shared_s3
        client.create_bucket(Bucket=name)
        if versioned:
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def new_table(self) -> str:
        return self.make_table(f"table-{uuid.uuid4().hex[:12]}")

    def make_table(self, name: str) -> str:
        self.shared_dynamodb.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": attribute, "AttributeType": "S"} for attribute in ("pk", "sk", "listing", "listed_at")
            ],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "jobs",
                    "KeySchema": [
                        {"AttributeName": "listing", "KeyType": "HASH"},
                        {"AttributeName": "listed_at", "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
        )
        return name


@functools.cache
def emulated_at(endpoint_url: str) -> Emulated:
    """One for all tests on that emulator."""
    return Emulated(endpoint_url)
