"""The way from a stack's name to its ports, on the emulator."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tallybatch.cli.stack import DISCOVER_BACKFILL, Place, connect_to
from tallybatch.domain.errors import NotFound
from tests.support import rows

_INDEX_KEYS = ("listing", "listed_at")
TEMPLATE: dict[str, Any] = {
    "Resources": {
        "Objects": {"Type": "AWS::S3::Bucket"},
        "Ledger": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [
                    {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", *_INDEX_KEYS)
                ],
                "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
                "GlobalSecondaryIndexes": [
                    {
                        "IndexName": "jobs",
                        "KeySchema": [
                            {"AttributeName": "listing", "KeyType": "HASH"},
                            {"AttributeName": "listed_at", "KeyType": "RANGE"},
                        ],
                        "Projection": {"ProjectionType": "ALL"},
                    }
                ],
            },
        },
    },
    "Outputs": {"Bucket": {"Value": {"Ref": "Objects"}}, "Table": {"Value": {"Ref": "Ledger"}}},
}


@pytest.fixture
def stack(emulator: str) -> Iterator[str]:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    cloudformation = boto3.client(
        "cloudformation",
        endpoint_url=emulator,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(TEMPLATE))
    cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    yield name


def test_given_a_stack_when_connected_then_its_bucket_and_table_are_the_ports(
    emulator: str, stack: str, tmp_path: Path
) -> None:
    connection = connect_to(Place(stack, emulator))
    file = tmp_path / "ü b+c.jsonl"
    file.write_bytes(b'{"id": 1}\n' * 1000)
    moved: list[int] = []
    connection.upload(file, "inbox/a/b/c/ü b+c.jsonl", moved.append, "")
    assert connection.objects.get("inbox/a/b/c/ü b+c.jsonl") == file.read_bytes()
    assert sum(moved) == 10_000
    connection.ledger.put_job(rows.job(), expected_version=None)
    assert [job.job_key for job in connection.ledger.jobs()] == [rows.hexdigest("job")]


def test_given_real_credentials_in_the_environment_when_connected_to_this_machine_then_they_are_not_sent(
    emulator: str, stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert list(connect_to(Place(stack, emulator)).objects.list("")) == []


def test_given_no_such_stack_when_connected_then_it_says_how_to_get_one(emulator: str) -> None:
    with pytest.raises(NotFound, match="tallybatch local up"):
        connect_to(Place("none", emulator))


def test_given_a_stack_without_the_function_when_called_then_the_missing_output_is_named(
    emulator: str, stack: str
) -> None:
    with pytest.raises(NotFound, match=DISCOVER_BACKFILL):
        connect_to(Place(stack, emulator)).invoke(DISCOVER_BACKFILL, {})
