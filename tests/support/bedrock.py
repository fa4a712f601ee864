"""Bedrock for tests: the official SDK as client, a bucket in memory, and lines of every family."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import boto3
from botocore.config import Config

from infra.local.simulator.client import SimulatorControl
from tests.support.memory_objects import MemoryObjects

Service = Literal["bedrock", "bedrock-runtime"]
ROLE_ARN = "arn:aws:iam::123456789012:role/bedrock-batch"
BUCKET = "bucket"
NOVA = "amazon.nova-lite-v1:0"
CLAUDE = "us.anthropic.claude-haiku-4-5-20251001-v1:0"
TITAN = "amazon.titan-embed-text-v2:0"
COHERE = "cohere.embed-v4:0"


def bedrock_runtime(endpoint_url: str, *, timeout_s: float = 10) -> Any:
    """boto3's own client for single calls, without retries."""
    return bedrock_client(endpoint_url, timeout_s=timeout_s, service="bedrock-runtime")


def bedrock_client(endpoint_url: str, *, timeout_s: float = 10, attempts: int = 1, service: Service = "bedrock") -> Any:
    """boto3's own client, with dummy credentials."""
    config = Config(retries={"total_max_attempts": attempts}, connect_timeout=timeout_s, read_timeout=timeout_s)
    session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
    client: Any = session.client(service, endpoint_url=endpoint_url, config=config)
    return client


class MemoryStore:
    """`infra.local.simulator.store.Store` over a bucket in memory."""

    def __init__(self, objects: MemoryObjects) -> None:
        self._objects = objects

    def get(self, bucket: str, key: str) -> bytes:
        assert bucket == self._objects.bucket
        return self._objects.get(key)

    def put(self, bucket: str, key: str, body: bytes) -> None:
        assert bucket == self._objects.bucket
        self._objects.write_as_user(key, body)

    def keys(self, bucket: str, prefix: str) -> Iterator[str]:
        assert bucket == self._objects.bucket
        return (info.key for info in self._objects.list(prefix))


def converse(text: str, system: str = "", **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": [{"text": text}]}], **more}
    return {**body, "system": [{"text": system}]} if system else body


def claude(text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 200, "messages": [message], **more}


def line(record_id: str, body: Any) -> bytes:
    return json.dumps({"recordId": record_id, "modelInput": body}).encode()


def converse_lines(count: int) -> bytes:
    return b"".join(line(f"R{number:010}", converse(f"Film {number}")) + b"\n" for number in range(count))


def request(token: str, **changed: Any) -> dict[str, Any]:
    """Arguments of `create_model_invocation_job` for the object at `in/<token>.jsonl`."""
    return {
        "jobName": f"job-{token}",
        "clientRequestToken": token,
        "roleArn": ROLE_ARN,
        "modelId": NOVA,
        "modelInvocationType": "Converse",
        "inputDataConfig": {
            "s3InputDataConfig": {"s3InputFormat": "JSONL", "s3Uri": f"s3://{BUCKET}/in/{token}.jsonl"}
        },
        "outputDataConfig": {"s3OutputDataConfig": {"s3Uri": f"s3://{BUCKET}/out/{token}/"}},
        "timeoutDurationInHours": 24,
        **changed,
    }


def scenario(control: SimulatorControl, **keys: Any) -> None:
    """Replace the scenario by these keys; a job may have one record."""
    control.set_scenario_text(json.dumps({"name": "test", "limits": {"min_records": 1}, **keys}))
