"""What issue 2 asks of the stack, asserted on its template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Match, Template

from infra.app import build_app
from infra.options import StackOptions
from infra.stack import function_code
from tallybatch.settings import FUNCTIONS, StoreSettings

PROVIDER_CALLERS = {"SubmitShard", "PollShard", "CollectShard", "Sweep"}
HEAVY = {"BuildManifest", "ReconcileJob", "ReconcileShard", "CollectShard", "SubmitShard"}


@pytest.fixture(scope="module")
def stack(template: Mapping[str, Any]) -> Template:
    return Template.from_json(template)


@pytest.fixture(scope="module")
def local_stack(local_template: Mapping[str, Any]) -> Template:
    return Template.from_json(local_template)


def _of_type(template: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {name: each for name, each in template["Resources"].items() if each["Type"] == kind}


def test_one_key_that_rotates(stack: Template) -> None:
    stack.resource_count_is("AWS::KMS::Key", 1)
    stack.has_resource_properties("AWS::KMS::Key", {"EnableKeyRotation": True})


def test_the_bucket_is_versioned_encrypted_private_logged_and_sends_events(stack: Template) -> None:
    stack.has_resource(
        "AWS::S3::Bucket",
        {
            "DeletionPolicy": "Retain",
            "Properties": {
                "VersioningConfiguration": {"Status": "Enabled"},
                "BucketEncryption": {
                    "ServerSideEncryptionConfiguration": [
                        {
                            "BucketKeyEnabled": True,
                            "ServerSideEncryptionByDefault": {
                                "SSEAlgorithm": "aws:kms",
                                "KMSMasterKeyID": Match.any_value(),
                            },
                        }
                    ]
                },
                "NotificationConfiguration": {"EventBridgeConfiguration": {"EventBridgeEnabled": True}},
                "LoggingConfiguration": {"DestinationBucketName": Match.any_value()},
            },
        },
    )


def test_every_bucket_refuses_plain_http_old_tls_and_the_public(template: Mapping[str, Any]) -> None:
    buckets = _of_type(template, "AWS::S3::Bucket")
    assert len(buckets) == 2
    for name, bucket in buckets.items():
        assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}, name
    for policy in _of_type(template, "AWS::S3::BucketPolicy").values():
        denied = [each for each in policy["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"]
        conditions = [each["Condition"] for each in denied if each["Principal"] == {"AWS": "*"}]
        assert {"Bool": {"aws:SecureTransport": "false"}} in conditions
        assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in conditions


def test_the_table_is_one_on_demand_recoverable_and_protected(stack: Template) -> None:
    stack.resource_count_is("AWS::DynamoDB::Table", 1)
    stack.has_resource(
        "AWS::DynamoDB::Table",
        {
            "DeletionPolicy": "Retain",
            "Properties": {
                "KeySchema": [
                    {"AttributeName": "pk", "KeyType": "HASH"},
                    {"AttributeName": "sk", "KeyType": "RANGE"},
                ],
                "AttributeDefinitions": [
                    {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "listing", "listed_at")
                ],
                "BillingMode": "PAY_PER_REQUEST",
                "DeletionProtectionEnabled": True,
                "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
                "SSESpecification": {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": Match.any_value()},
                "TimeToLiveSpecification": {"AttributeName": "expires_at", "Enabled": True},
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
    )


@pytest.mark.parametrize("model", FUNCTIONS, ids=lambda model: model.function)
def test_each_settings_model_is_a_function(stack: Template, model: type[StoreSettings]) -> None:
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in model.function).lstrip("_")
    heavy = {"MemorySize": 1769, "Timeout": 900} if model.function in HEAVY else {}
    stack.has_resource_properties(
        "AWS::Lambda::Function",
        {
            "FunctionName": f"Tallybatch-{model.function}",
            "Handler": f"tallybatch.handlers.{words}.handler",
            "Runtime": "python3.13",
            "Architectures": ["arm64"],
            "TracingConfig": {"Mode": "Active"},
            "LoggingConfig": {"LogFormat": "JSON", "LogGroup": Match.any_value()},
            **heavy,
        },
    )


def test_there_is_no_other_function(template: Mapping[str, Any]) -> None:
    names = {each["Properties"]["FunctionName"] for each in _of_type(template, "AWS::Lambda::Function").values()}
    assert names == {f"Tallybatch-{model.function}" for model in FUNCTIONS}


def test_every_log_group_expires_and_is_encrypted(template: Mapping[str, Any]) -> None:
    groups = _of_type(template, "AWS::Logs::LogGroup")
    assert len(groups) == len(FUNCTIONS) + 1
    for group in groups.values():
        assert group["Properties"]["RetentionInDays"] == 30
        assert "KmsKeyId" in group["Properties"]
    names = {group["Properties"]["LogGroupName"] for group in groups.values()}
    assert "/aws/vendedlogs/states/Tallybatch-job" in names


def test_functions_called_by_events_have_dead_letter_queues(template: Mapping[str, Any]) -> None:
    with_queue = {
        each["Properties"]["FunctionName"]
        for each in _of_type(template, "AWS::Lambda::Function").values()
        if "DeadLetterConfig" in each["Properties"]
    }
    assert with_queue == {"Tallybatch-BuildManifest", "Tallybatch-DiscoverBackfill", "Tallybatch-Sweep"}
    for queue in _of_type(template, "AWS::SQS::Queue").values():
        assert "KmsMasterKeyId" in queue["Properties"]


def test_the_state_machine_logs_without_data_and_is_traced(stack: Template) -> None:
    stack.has_resource_properties(
        "AWS::StepFunctions::StateMachine",
        {
            "StateMachineName": "Tallybatch-job",
            "StateMachineType": "STANDARD",
            "TracingConfiguration": {"Enabled": True},
            "LoggingConfiguration": {"IncludeExecutionData": False, "Level": "ALL"},
            "DefinitionSubstitutions": {
                model.function: {"Fn::GetAtt": [Match.string_like_regexp(f"Functions{model.function}"), "Arn"]}
                for model in FUNCTIONS
                if model.function not in {"BuildManifest", "DiscoverBackfill", "Sweep", "ResumeJob", "ResolveReview"}
            },
        },
    )


def test_the_secrets_are_encrypted_and_empty(template: Mapping[str, Any]) -> None:
    secrets = _of_type(template, "AWS::SecretsManager::Secret").values()
    assert len(secrets) == 2
    for secret in secrets:
        assert "KmsKeyId" in secret["Properties"]
        assert not {"SecretString", "GenerateSecretString"} & set(secret["Properties"])


def test_the_bus_is_named_like_the_stack(stack: Template) -> None:
    stack.has_resource_properties("AWS::Events::EventBus", {"Name": "Tallybatch"})


def test_each_dead_letter_queue_and_bad_end_has_an_alarm(template: Mapping[str, Any]) -> None:
    metrics = [each["Properties"]["MetricName"] for each in _of_type(template, "AWS::CloudWatch::Alarm").values()]
    assert metrics.count("ApproximateNumberOfMessagesVisible") == len(_of_type(template, "AWS::SQS::Queue"))
    assert {"ExecutionsFailed", "ExecutionsTimedOut", "ExecutionsAborted"} <= set(metrics)
    assert not _of_type(template, "AWS::CloudWatch::CompositeAlarm")


def test_every_alarm_tells_the_one_topic_when_it_goes_off_and_when_it_ends(template: Mapping[str, Any]) -> None:
    ((topic, properties),) = _of_type(template, "AWS::SNS::Topic").items()
    assert set(properties["Properties"]["KmsMasterKeyId"]) == {"Fn::GetAtt"}
    for alarm in _of_type(template, "AWS::CloudWatch::Alarm").values():
        assert alarm["Properties"]["AlarmActions"] == alarm["Properties"]["OKActions"] == [{"Ref": topic}]
    assert template["Outputs"]["AlarmTopic"]["Value"] == {"Ref": topic}
    (policy,) = _of_type(template, "AWS::SNS::TopicPolicy").values()
    denied, allowed = policy["Properties"]["PolicyDocument"]["Statement"]
    assert (denied["Effect"], denied["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert (allowed["Action"], allowed["Principal"]) == ("sns:Publish", {"Service": "cloudwatch.amazonaws.com"})
    assert set(allowed["Condition"]["StringEquals"]) == {"aws:SourceAccount"}
    (key,) = _of_type(template, "AWS::KMS::Key").values()
    granted = {
        each["Principal"].get("Service"): each["Action"]
        for each in key["Properties"]["KeyPolicy"]["Statement"]
        if isinstance(each["Principal"].get("Service"), str)
    }
    assert set(granted["cloudwatch.amazonaws.com"]) == {"kms:Decrypt", "kms:GenerateDataKey*"}
    assert not _of_type(template, "AWS::SNS::Subscription")


def test_an_address_for_alarms_is_subscribed(tmp_path: Path) -> None:
    code = function_code(StackOptions(local=True))
    build_app({"alarm_email": "data-team@example.com"}, output=tmp_path, code=code).synth()
    found = json.loads((tmp_path / "Tallybatch.template.json").read_text())
    (subscription,) = _of_type(found, "AWS::SNS::Subscription").values()
    told = subscription["Properties"]
    assert (told["Protocol"], told["Endpoint"]) == ("email", "data-team@example.com")


def test_the_outputs_are_those_that_the_cli_reads(template: Mapping[str, Any]) -> None:
    assert set(template["Outputs"]) == {
        "Bucket",
        "CostDatabase",
        "Table",
        "StateMachineArn",
        "EventBus",
        "OpenAISecret",
        "GeminiSecret",
        "BuildManifestFunction",
        "DiscoverBackfillFunction",
        "SweepFunction",
        "ResumeJobFunction",
        "ResolveReviewFunction",
        "AlarmTopic",
        "Region",
    }
    assert template["Outputs"]["Region"]["Value"] == "us-east-1"


def test_the_local_stack_differs_only_where_it_must(
    template: Mapping[str, Any], local_template: Mapping[str, Any], local_stack: Template
) -> None:
    assert set(local_template["Resources"]) == set(template["Resources"])
    assert local_template["Outputs"] == template["Outputs"]
    local_stack.has_resource_properties("AWS::DynamoDB::Table", {"DeletionProtectionEnabled": False})
    kept = [name for name, each in local_template["Resources"].items() if each.get("DeletionPolicy") == "Retain"]
    assert kept == []
    for name, resource in template["Resources"].items():
        if resource["Type"] not in {"AWS::DynamoDB::Table", "AWS::Lambda::Function", "AWS::Scheduler::Schedule"}:
            assert local_template["Resources"][name]["Properties"] == resource["Properties"], name
