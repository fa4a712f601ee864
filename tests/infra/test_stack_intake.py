"""Only a file in the inbox starts anything; above all, the pipeline's own writes do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

BUCKET = "the-bucket"


def _rules(template: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each["Properties"] for each in template["Resources"].values() if each["Type"] == "AWS::Events::Rule"]


def _matches(pattern: object, value: object) -> bool:
    """EventBridge's pattern language as far as the rule uses it: nested keys, exact values, `prefix`."""
    if isinstance(pattern, Mapping):
        return isinstance(value, Mapping) and all(
            key in value and _matches(pattern[key], value[key]) for key in pattern
        )
    assert isinstance(pattern, list)
    for option in pattern:
        if isinstance(option, Mapping) and "prefix" in option:
            assert set(option) == {"prefix"}
            if isinstance(value, str) and value.startswith(option["prefix"]):
                return True
        elif option == value or (isinstance(option, Mapping) and "Ref" in option and value == BUCKET):
            return True
    return False


def _event(key: str, *, bucket: str = BUCKET, detail_type: str = "Object Created") -> dict[str, Any]:
    return {
        "source": "aws.s3",
        "detail-type": detail_type,
        "detail": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1}},
    }


@pytest.mark.parametrize("key", ["inbox/acme/films/2024/a.jsonl", "inbox/a b/c+d/100%/ü.jsonl.gz", "inbox/too-short"])
def test_a_file_in_the_inbox_matches(template: Mapping[str, Any], key: str) -> None:
    (rule,) = _rules(template)
    assert _matches(rule["EventPattern"], _event(key))


@pytest.mark.parametrize(
    "key",
    [
        "jobs/acme/k/manifest.json",
        "jobs/inbox/k/shards/a.jsonl.zst",
        "results/acme/films/1/current.json",
        "quarantine/acme/report.json",
        "review/acme/k/1.jsonl",
        "specs/acme/films.yaml",
        "golden/acme/films.jsonl",
        "landing/inbox/a.jsonl",
        "Inbox/a.jsonl",
        "inbox",
    ],
)
def test_nothing_else_matches(template: Mapping[str, Any], key: str) -> None:
    (rule,) = _rules(template)
    assert not _matches(rule["EventPattern"], _event(key))


def test_other_events_and_buckets_do_not_match(template: Mapping[str, Any]) -> None:
    (rule,) = _rules(template)
    assert not _matches(rule["EventPattern"], _event("inbox/a.jsonl", detail_type="Object Deleted"))
    assert not _matches(rule["EventPattern"], _event("inbox/a.jsonl", bucket="another"))


def test_the_pattern_names_the_pipelines_bucket(template: Mapping[str, Any]) -> None:
    (rule,) = _rules(template)
    (bucket,) = rule["EventPattern"]["detail"]["bucket"]["name"]
    assert bucket == template["Outputs"]["Bucket"]["Value"]


def test_the_rule_calls_build_manifest_alone_and_keeps_what_it_cannot_deliver(template: Mapping[str, Any]) -> None:
    (rule,) = _rules(template)
    (target,) = rule["Targets"]
    function = template["Resources"][target["Arn"]["Fn::GetAtt"][0]]["Properties"]
    assert function["FunctionName"] == "Tallybatch-BuildManifest"
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}
    queue = target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0]
    assert template["Resources"][queue]["Type"] == "AWS::SQS::Queue"
    assert "EventBusName" not in rule


def test_nobody_else_may_call_a_function_from_outside(template: Mapping[str, Any]) -> None:
    resources = template["Resources"].values()
    permissions = [each["Properties"] for each in resources if each["Type"] == "AWS::Lambda::Permission"]
    assert [(each["Principal"], "SourceArn" in each) for each in permissions] == [("events.amazonaws.com", True)]
    assert not [each for each in resources if each["Type"] == "AWS::Lambda::EventSourceMapping"]
