"""Least privilege: what each role may do is written down here a second time, from the design's sections 4 and 10."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tallybatch.settings import FUNCTIONS

READS = {
    "AdmitJob": {"jobs/"},
    "ReserveQuota": set(),
    "ReleaseQuota": set(),
    "BuildManifest": {"inbox/", "specs/", "golden/", "prices/", "jobs/", "quarantine/", "results/"},
    "DiscoverBackfill": {"inbox/", "landing/films/"},
    "PlanAttempt": {"jobs/", "review/"},
    "SubmitShard": {"jobs/"},
    "AnswerShard": {"jobs/", "provider/"},
    "PollShard": {"provider/"},
    "CollectShard": {"jobs/", "provider/"},
    "ReconcileShard": {"jobs/", "quarantine/"},
    "ReconcileJob": {"jobs/"},
    "JudgeCanary": {"jobs/"},
    "ApproveCanary": {"jobs/"},
    "PublishShard": {"jobs/", "results/"},
    "SealJob": {"jobs/", "results/", "quarantine/", "review/"},
    "FailJob": {"jobs/", "results/", "quarantine/"},
    "Sweep": {"jobs/", "provider/", "deletions/"},
    "ResumeJob": {"jobs/", "quarantine/"},
    "ResolveReview": {"jobs/", "review/"},
}
WRITES = {
    "AdmitJob": set(),
    "ReserveQuota": set(),
    "ReleaseQuota": set(),
    "BuildManifest": {"jobs/", "quarantine/", "results/"},
    "DiscoverBackfill": {"inbox/"},
    "PlanAttempt": {"jobs/"},
    "SubmitShard": {"jobs/"},
    "AnswerShard": {"jobs/", "provider/"},
    "PollShard": set(),
    "CollectShard": {"jobs/"},
    "ReconcileShard": {"jobs/", "quarantine/"},
    "ReconcileJob": {"jobs/"},
    "JudgeCanary": {"jobs/"},
    "ApproveCanary": set(),
    "PublishShard": {"jobs/", "results/"},
    "SealJob": {"jobs/", "results/", "review/"},
    "FailJob": {"jobs/"},
    "Sweep": {"jobs/", "deletions/"},
    "ResumeJob": {"jobs/"},
    "ResolveReview": {"review/"},
}
VERSIONS = {"BuildManifest": {"inbox/"}, "DiscoverBackfill": {"landing/films/"}}
"""What is read as the version that an event or a listing named."""
TAGS = {"BuildManifest": {"inbox/"}}
"""What others wrote."""
CLAIMS_RECORDS = {"PlanAttempt", "SubmitShard", "AnswerShard", "ReconcileShard", "SealJob"}
HOLDS_QUOTA = {"AdmitJob", "ReserveQuota", "ReleaseQuota", "SubmitShard", "PollShard", "SealJob", "FailJob", "Sweep"}
"""A reservation that ends is deleted; nothing else in the table is."""
READS_SECRET = {"SubmitShard", "AnswerShard", "PollShard", "CollectShard", "Sweep"}
PUTS_EVENTS = {"BuildManifest", "PlanAttempt", "ApproveCanary", "SealJob", "FailJob", "Sweep"}
CALLED_BY_EVENTS = {"BuildManifest", "DiscoverBackfill", "Sweep"}
CALLED_BY_PEOPLE = {"ResumeJob", "ResolveReview"}
WATCHES_BEDROCK = {
    "bedrock:GetModelInvocationJob",
    "bedrock:ListModelInvocationJobs",
    "bedrock:StopModelInvocationJob",
}
WITHOUT_RESOURCE = {
    "bedrock:ListModelInvocationJobs": "a list over the account",
    "xray:PutTraceSegments": "X-Ray knows no resources",
    "xray:PutTelemetryRecords": "X-Ray knows no resources",
    "xray:GetSamplingRules": "X-Ray knows no resources",
    "xray:GetSamplingTargets": "X-Ray knows no resources",
    "logs:CreateLogDelivery": "log deliveries know no resources",
    "logs:GetLogDelivery": "log deliveries know no resources",
    "logs:UpdateLogDelivery": "log deliveries know no resources",
    "logs:DeleteLogDelivery": "log deliveries know no resources",
    "logs:ListLogDeliveries": "log deliveries know no resources",
    "logs:PutResourcePolicy": "log resource policies know no resources",
    "logs:DescribeResourcePolicies": "log resource policies know no resources",
    "logs:DescribeLogGroups": "a list over the account",
}
NAMES = [model.function for model in FUNCTIONS]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _flat(resource: Any) -> str:
    """A resource as text: `<LogicalId>` for a reference."""
    if isinstance(resource, str):
        return resource
    function, argument = next(iter(resource.items()))
    if function == "Fn::Join":
        return "".join(_flat(part) for part in argument[1])
    return f"<{argument if isinstance(argument, str) else argument[0]}>"


def _statements(template: Mapping[str, Any]) -> Iterator[tuple[str, list[str], list[str], dict[str, Any]]]:
    """(role's logical id, actions, resources, statement) of every identity policy."""
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::IAM::Policy":
            (role,) = resource["Properties"]["Roles"]
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                resources = [_flat(each) for each in _list(statement["Resource"])]
                yield role["Ref"], _list(statement["Action"]), resources, statement


def _of(template: Mapping[str, Any], name: str) -> list[tuple[list[str], list[str], dict[str, Any]]]:
    own = re.compile(f"Functions{name}Role[0-9A-F]{{8}}")
    found = [each[1:] for each in _statements(template) if own.fullmatch(each[0])]
    assert found, name
    return found


def _prefixes(template: Mapping[str, Any], name: str, action: str) -> set[str]:
    """Key prefixes below which a function may do an action in the pipeline's bucket."""
    bucket = _flat(template["Outputs"]["Bucket"]["Value"])
    found = [each for actions, resources, _ in _of(template, name) if action in actions for each in resources]
    return {each.removeprefix(f"{bucket}/").removesuffix("*") for each in found if each.startswith(bucket)}


def _actions(template: Mapping[str, Any], name: str) -> set[str]:
    return {action for actions, _, _ in _of(template, name) for action in actions}


def test_no_action_has_a_wildcard(template: Mapping[str, Any]) -> None:
    wide = [(role, action) for role, actions, _, _ in _statements(template) for action in actions if "*" in action]
    assert wide == []


def test_only_actions_that_know_no_resource_have_all_of_them(template: Mapping[str, Any]) -> None:
    wide = {action for _, actions, resources, _ in _statements(template) if "*" in resources for action in actions}
    assert wide <= set(WITHOUT_RESOURCE)


def test_a_wildcard_in_a_resource_ends_it_below_a_named_prefix(template: Mapping[str, Any]) -> None:
    for role, _, resources, _ in _statements(template):
        for resource in resources:
            if resource != "*" and "*" in resource:
                assert re.fullmatch(r".+(/|:)\*|.+/jobs/\*/request\.jsonl", resource), f"{role}: {resource}"
                assert not re.fullmatch(r"(<[^>]+>|arn:aws:s3:::[^/]+)/\*", resource), f"{role}: a whole bucket"


def test_no_role_has_a_managed_policy(template: Mapping[str, Any]) -> None:
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::IAM::Role":
            assert not {"ManagedPolicyArns", "Policies"} & set(resource["Properties"]), name


@pytest.mark.parametrize("name", NAMES)
def test_a_function_reads_and_writes_only_its_prefixes(template: Mapping[str, Any], name: str) -> None:
    assert _prefixes(template, name, "s3:GetObject") == READS[name]
    assert _prefixes(template, name, "s3:PutObject") == WRITES[name]
    assert _prefixes(template, name, "s3:GetObjectVersion") == VERSIONS.get(name, set())
    tagged = TAGS.get(name, set())
    assert _prefixes(template, name, "s3:PutObjectTagging") == WRITES[name] | tagged
    assert _prefixes(template, name, "s3:PutObjectVersionTagging") == tagged
    assert _prefixes(template, name, "s3:GetObjectVersionTagging") == tagged
    assert "s3:DeleteObject" not in _actions(template, name)


@pytest.mark.parametrize("name", NAMES)
def test_listing_is_bound_to_the_prefixes_that_may_be_read(template: Mapping[str, Any], name: str) -> None:
    bucket = _flat(template["Outputs"]["Bucket"]["Value"])
    listed: set[str] = set()
    for actions, resources, statement in _of(template, name):
        if "s3:ListBucket" in actions and resources == [bucket]:
            listed |= {
                each.removesuffix("*") for each in _list(statement["Condition"]["StringLikeIfExists"]["s3:prefix"])
            }
    assert listed == READS[name]


def test_backfills_read_their_declared_sources_and_no_more(template: Mapping[str, Any]) -> None:
    read = {
        resource
        for actions, resources, _ in _of(template, "DiscoverBackfill")
        if "s3:GetObject" in actions
        for resource in resources
        if resource.startswith("arn:aws:s3:::")
    }
    assert read == {"arn:aws:s3:::geo-source/raw/*"}


@pytest.mark.parametrize("name", NAMES)
def test_a_function_has_the_few_other_actions_that_it_needs(template: Mapping[str, Any], name: str) -> None:
    actions = _actions(template, name)
    assert ("dynamodb:PartiQLInsert" in actions) == (name in CLAIMS_RECORDS)
    assert ("dynamodb:PartiQLUpdate" in actions) == (name in CLAIMS_RECORDS)
    assert ("dynamodb:PutItem" in actions) == (name != "PublishShard")
    assert ("secretsmanager:GetSecretValue" in actions) == (name in READS_SECRET)
    assert ("events:PutEvents" in actions) == (name in PUTS_EVENTS)
    assert ("states:StartExecution" in actions) == (name in {"BuildManifest", "Sweep", "ResumeJob", "ResolveReview"})
    assert ("states:DescribeExecution" in actions) == (name in {"Sweep", "ResumeJob"})
    assert ("states:SendTaskSuccess" in actions) == (name == "ApproveCanary")
    assert ("sqs:SendMessage" in actions) == (name in CALLED_BY_EVENTS)
    assert ("dynamodb:DeleteItem" in actions) == (name in HOLDS_QUOTA)
    assert any(action.startswith("dynamodb:") for action in actions) == (name != "PublishShard")
    assert not actions & {
        "dynamodb:Scan",
        "dynamodb:UpdateItem",
        "lambda:InvokeFunction",
        "secretsmanager:PutSecretValue",
    }


@pytest.mark.parametrize("name", NAMES)
def test_only_the_sweep_walks_the_list_of_jobs(template: Mapping[str, Any], name: str) -> None:
    """An index is a resource of its own: who may query the table may not query it."""
    found = [each for actions, resources, _ in _of(template, name) if "dynamodb:Query" in actions for each in resources]
    assert any(each.endswith("/index/jobs") for each in found) == (name == "Sweep")


@pytest.mark.parametrize("name", NAMES)
def test_only_who_calls_bedrock_may(template: Mapping[str, Any], name: str) -> None:
    asked = {action for action in _actions(template, name) if action.startswith(("bedrock:", "iam:"))}
    makes = {"bedrock:CreateModelInvocationJob", "bedrock:InvokeModel", "iam:PassRole"}
    if name == "AnswerShard":
        assert asked == {"bedrock:InvokeModel"}
        return
    watches = WATCHES_BEDROCK if name in READS_SECRET else set()
    assert asked == watches | (makes if name == "SubmitShard" else set())


def test_the_service_role_is_handed_to_bedrock_alone(template: Mapping[str, Any]) -> None:
    ((_, resources, statement),) = [each for each in _of(template, "SubmitShard") if "iam:PassRole" in each[0]]
    assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": "bedrock.amazonaws.com"}}
    (role,) = [name for name in template["Resources"] if re.fullmatch(r"BedrockRole[0-9A-F]{8}", name)]
    assert resources == [f"<{role}>"]


def test_a_batch_job_reads_request_files_and_writes_results_and_nothing_else(template: Mapping[str, Any]) -> None:
    own = [rest for role, *rest in _statements(template) if role.startswith("BedrockRole")]
    bucket = _flat(template["Outputs"]["Bucket"]["Value"])
    reached = {
        (action, resource.removeprefix(bucket))
        for actions, resources, _ in own
        for action in actions
        for resource in resources
        if action.startswith("s3:")
    }
    assert reached == {
        ("s3:GetObject", "/jobs/*/request.jsonl"),
        ("s3:GetObject", "/provider/*"),
        ("s3:PutObject", "/provider/*"),
        ("s3:AbortMultipartUpload", "/provider/*"),
        ("s3:ListBucket", ""),
    }
    (trust,) = [
        resource["Properties"]["AssumeRolePolicyDocument"]["Statement"][0]
        for name, resource in template["Resources"].items()
        if re.fullmatch(r"BedrockRole[0-9A-F]{8}", name)
    ]
    assert trust["Principal"] == {"Service": "bedrock.amazonaws.com"}
    assert set(trust["Condition"]) == {"StringEquals", "ArnLike"}


def test_the_key_is_used_only_through_services(template: Mapping[str, Any]) -> None:
    for role, actions, _, statement in _statements(template):
        if any(action.startswith("kms:") for action in actions):
            services = _list(statement["Condition"]["StringEquals"]["kms:ViaService"])
            assert services, role
            assert ("secretsmanager.us-east-1.amazonaws.com" in services) == any(
                role.startswith(f"Functions{name}Role") for name in READS_SECRET
            ), role


def test_the_workflow_calls_its_functions_reads_item_lists_and_starts_itself(template: Mapping[str, Any]) -> None:
    own = [rest for role, *rest in _statements(template) if role.startswith("WorkflowRole")]
    by_action = {action: resources for actions, resources, _ in own for action in actions}
    called = {re.sub(r"^<Functions(\w+)Function.*$", r"\1", each) for each in by_action["lambda:InvokeFunction"]}
    assert called == set(NAMES) - CALLED_BY_EVENTS - CALLED_BY_PEOPLE
    (items,) = by_action["s3:GetObject"]
    assert items.endswith("/jobs/*")
    assert by_action["states:StartExecution"] == [_flat(template["Outputs"]["StateMachineArn"]["Value"])]
    for action in ("states:DescribeExecution", "states:StopExecution"):
        assert all(":execution:Tallybatch-job" in each for each in by_action[action])
    assert not {action for action in by_action if action.startswith("s3:")} - {"s3:GetObject"}


def test_the_sweeper_starts_and_watches_executions_of_this_machine_only(template: Mapping[str, Any]) -> None:
    by_action = {action: resources for actions, resources, _ in _of(template, "Sweep") for action in actions}
    assert by_action["states:StartExecution"] == [_flat(template["Outputs"]["StateMachineArn"]["Value"])]
    (watched,) = by_action["states:DescribeExecution"]
    assert watched.endswith(":execution:Tallybatch-job:*")
    assert "states:StopExecution" not in by_action


def test_the_approvals_function_wakes_tasks_of_this_machine_only(template: Mapping[str, Any]) -> None:
    by_action = {action: resources for actions, resources, _ in _of(template, "ApproveCanary") for action in actions}
    (machine,) = by_action["states:SendTaskSuccess"]
    assert machine.endswith(":stateMachine:Tallybatch-job")


def test_the_schedules_may_call_two_functions_and_nothing_else(template: Mapping[str, Any]) -> None:
    own = [rest for role, *rest in _statements(template) if role.startswith("SchedulesRole")]
    by_action = {action: resources for actions, resources, _ in own for action in actions}
    called = [re.sub(r"^<Functions(\w+)Function.*$", r"\1", each) for each in by_action["lambda:InvokeFunction"]]
    assert called == ["DiscoverBackfill", "Sweep"]
    assert {action.partition(":")[0] for action in by_action} == {"lambda", "sqs", "kms"}
