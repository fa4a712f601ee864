"""What the emulator has after the deployment is what the line relies on."""

from __future__ import annotations

from typing import Any

import pytest

from tallybatch.settings import FUNCTIONS, PREFIX, StoreSettings
from tests.support.deployed import Deployed, fresh_tenant
from tests.support.films import films, spec

pytestmark = pytest.mark.xdist_group("e2e")


@pytest.mark.parametrize("model", FUNCTIONS, ids=lambda model: model.function)
def test_given_a_deployed_function_when_its_environment_is_read_then_its_settings_are_whole_and_nothing_is_over(
    line: Deployed, model: type[StoreSettings]
) -> None:
    found = line.aws.lambda_.get_function_configuration(FunctionName=f"{line.status.stack}-{model.function}")
    variables = found["Environment"]["Variables"]
    settings = model.load(variables)
    assert (settings.bucket, settings.table) == (line.bucket, line.status.table)
    assert {name for name in variables if name.startswith(PREFIX)} == set(settings.environment())
    assert found["Handler"].startswith("tallybatch.handlers.")


def test_given_the_table_when_described_then_it_has_the_keys_and_the_index_that_the_ledger_reads(
    line: Deployed,
) -> None:
    table: Any = line.aws.client("dynamodb").describe_table(TableName=line.status.table)["Table"]
    assert keys(table) == [("pk", "HASH"), ("sk", "RANGE")]
    [index] = table["GlobalSecondaryIndexes"]
    assert (index["IndexName"], keys(index)) == ("jobs", [("listing", "HASH"), ("listed_at", "RANGE")])
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"


def keys(described: Any) -> list[tuple[str, str]]:
    return [(key["AttributeName"], key["KeyType"]) for key in described["KeySchema"]]


def test_given_the_bucket_when_asked_then_it_is_versioned_encrypted_and_forgets_by_class(line: Deployed) -> None:
    s3 = line.aws.s3
    assert s3.get_bucket_versioning(Bucket=line.bucket)["Status"] == "Enabled"
    [rule] = s3.get_bucket_encryption(Bucket=line.bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert rule["BucketKeyEnabled"] is True
    assert {name: days for name, days in rules(line).items() if not name[-2].isdigit()} == {
        "retention=inbox": 30, "retention=working": 30, "retention=raw": 90, "retention=results": 365,
        "prefix=inbox/": 30, "prefix=quarantine/": 90, "prefix=provider/": 90,
        "prefix=jobs/": 3650, "prefix=results/": 3650, "prefix=review/": 3650, "prefix=deletions/": 3650,
    }  # fmt: skip


def rules(line: Deployed) -> dict[str, int]:
    """Days of each rule that lets objects expire."""
    found = line.s3.get_bucket_lifecycle_configuration(Bucket=line.bucket)["Rules"]
    return {one["ID"]: one["Expiration"]["Days"] for one in found if "Days" in one.get("Expiration", {})}


def test_given_a_job_when_its_objects_are_read_then_each_carries_a_class_that_a_rule_of_the_bucket_forgets(
    line: Deployed,
) -> None:
    tenant = fresh_tenant("retention")
    line.push_spec(tenant, spec() + "retention: {raw: 7d}\n")
    job = line.run(tenant, films(2))
    classes: dict[str, set[str]] = {}
    for info in (*line.objects.list(line.keys(job).prefix), *line.objects.list(f"results/{tenant}/")):
        tags = line.s3.get_object_tagging(Bucket=line.bucket, Key=info.key)["TagSet"]
        classes.setdefault("/".join(f"{tag['Key']}={tag['Value']}" for tag in tags), set()).add(info.key)
    assert classes.keys() == {"retention=working", "retention=7d", "retention=results"}
    assert classes.keys() <= rules(line).keys()
    assert all("/raw/" in key for key in classes["retention=7d"])
    assert line.keys(job).certificate in classes["retention=results"]


def test_given_the_workflow_when_its_tasks_are_read_then_each_calls_a_function_that_is_there(line: Deployed) -> None:
    there = {model.function: f"{line.status.stack}-{model.function}" for model in FUNCTIONS}
    machine: dict[str, Any] = line.states.describe_state_machine(stateMachineArn=line.status.state_machine_arn)
    assert "${" not in machine["definition"]
    called = {name for name, function in there.items() if f':function:{function}"' in machine["definition"]}
    assert called == set(there) - {"BuildManifest", "DiscoverBackfill", "Sweep", "ResumeJob", "ResolveReview"}
