"""What AWS's own services need between the stack's parts, held against every policy on the way: the workflow's states,
schedules, the rule, dead letters, alarms, logs, Bedrock, and the key under all of them.

Each test names the page that says what is needed. Nothing of this shows on the emulator, which enforces no IAM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from infra.constructs.workflow import DEFINITION
from tests.support.iam_policies import Need, Policies
from tests.support.iam_template import Stack, towards

ACCOUNT, REGION = "000000000000", "us-east-1"
OURS = {"aws:SourceAccount": ACCOUNT}
JOB = "jobs/acme/5d41402abc4b2a76/"
EXECUTION = f"arn:aws:states:{REGION}:{ACCOUNT}:execution:Tallybatch-job"


@pytest.fixture(scope="module")
def stack(template: Mapping[str, Any]) -> Stack:
    return Stack(template)


def lacks(policies: Policies, *needs: Need) -> list[str]:
    return [str(need) for need in needs if not policies.allow(need)]


def via(service: str, key: str, *actions: str) -> list[Need]:
    """The key's use that a service makes in the name of who called it."""
    return [Need(f"kms:{action}", key, {"kms:ViaService": f"{service}.{REGION}.amazonaws.com"}) for action in actions]


def key_policy(stack: Stack, service: str) -> tuple[str, Policies]:
    key, properties = stack.one("AWS::KMS::Key")
    return key, towards(service, properties["KeyPolicy"], key)


def states(machine: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, state in machine["States"].items():
        yield name, state
        if "ItemProcessor" in state:
            yield from states(state["ItemProcessor"])


def state_needs(stack: Stack, name: str, state: Mapping[str, Any], machine: str) -> list[Need]:
    """Step Functions Developer Guide: "Invoke an AWS Lambda function with Step Functions" and "IAM policies for using
    Distributed Map states" (the machine starts itself; children are `machine/label:name`)."""
    if state["Type"] == "Task":
        assert state["Resource"].removesuffix(".waitForTaskToken") == "arn:aws:states:::lambda:invoke", name
        function = state["Arguments"]["FunctionName"].strip("${}")
        return [Need("lambda:InvokeFunction", stack.one("AWS::Lambda::Function", f"Functions{function}Function")[0])]
    if state["Type"] != "Map":
        return []
    assert state["ItemProcessor"]["ProcessorConfig"]["Mode"] == "DISTRIBUTED"
    assert state["ItemReader"]["Resource"] == "arn:aws:states:::s3:getObject"
    assert "ResultWriter" not in state
    bucket = stack.one("AWS::S3::Bucket", "StorageBucket")[0]
    runs = [
        Need(f"states:{action}", f"{EXECUTION}/{state['Label']}:a-b")
        for action in ("DescribeExecution", "StopExecution", "RedriveExecution")
    ]
    items = Need("s3:GetObject", f"{bucket}/{JOB}attempts/1/items.json")
    return [Need("states:StartExecution", machine), *runs, items, *via("s3", stack.one("AWS::KMS::Key")[0], "Decrypt")]


def test_given_each_state_of_the_workflow_when_it_runs_then_the_machines_role_may_do_what_it_does(stack: Stack) -> None:
    machine, properties = stack.one("AWS::StepFunctions::StateMachine")
    role = stack.role(properties["RoleArn"])
    definition = json.loads(DEFINITION.read_text(encoding="utf-8"))
    asked = {name: state_needs(stack, name, state, machine) for name, state in states(definition)}
    assert len([name for name, needs in asked.items() if needs]) == 17
    assert {name: missing for name, needs in asked.items() if (missing := lacks(role, *needs))} == {}


def test_given_the_workflow_when_it_logs_and_traces_then_its_role_may(stack: Stack) -> None:
    """Step Functions Developer Guide, "Logging in CloudWatch Logs" and "X-Ray"; a log group named /aws/vendedlogs/
    keeps the account's log resource policy below its size limit."""
    _, properties = stack.one("AWS::StepFunctions::StateMachine")
    assert properties["TracingConfiguration"] == {"Enabled": True}
    (destination,) = properties["LoggingConfiguration"]["Destinations"]
    group = destination["CloudWatchLogsLogGroup"]["LogGroupArn"].strip("<>")
    assert dict(stack.of_type("AWS::Logs::LogGroup"))[group]["LogGroupName"].startswith("/aws/vendedlogs/states/")
    logs = (
        "CreateLogDelivery", "GetLogDelivery", "UpdateLogDelivery", "DeleteLogDelivery", "ListLogDeliveries",
        "PutResourcePolicy", "DescribeResourcePolicies", "DescribeLogGroups",
    )  # fmt: skip
    xray = ("PutTraceSegments", "PutTelemetryRecords", "GetSamplingRules", "GetSamplingTargets")
    needs = [*(Need(f"logs:{action}", "*") for action in logs), *(Need(f"xray:{action}", "*") for action in xray)]
    assert lacks(stack.role(properties["RoleArn"]), *needs) == []


def test_given_a_function_when_lambda_runs_it_then_its_role_may_log_trace_and_leave_dead_letters(stack: Stack) -> None:
    """Lambda Developer Guide: "Execution role" (logs), "X-Ray", "Dead-letter queues" (the function's role sends)."""
    key = stack.one("AWS::KMS::Key")[0]
    missing = {}
    for name, properties in stack.of_type("AWS::Lambda::Function"):
        group = properties["LoggingConfig"]["LogGroup"]
        needs = [Need(f"logs:{action}", group) for action in ("CreateLogStream", "PutLogEvents")]
        assert properties["TracingConfig"] == {"Mode": "Active"}
        needs += [Need(f"xray:{action}", "*") for action in ("PutTraceSegments", "PutTelemetryRecords")]
        if "DeadLetterConfig" in properties:
            needs += [Need("sqs:SendMessage", properties["DeadLetterConfig"]["TargetArn"])]
            needs += via("sqs", key, "GenerateDataKey", "Decrypt")
        missing[name] = lacks(stack.role(properties["Role"]), *needs)
        trusted = stack.template["Resources"][properties["Role"].strip("<>")]["Properties"]["AssumeRolePolicyDocument"]
        assert towards("lambda.amazonaws.com", trusted, "self").allow(Need("sts:AssumeRole", "self"))
    assert {name: each for name, each in missing.items() if each} == {}


def test_given_the_rule_when_a_file_is_dropped_then_it_may_call_its_function_and_leave_dead_letters(
    stack: Stack,
) -> None:
    """EventBridge User Guide: "Using resource-based policies" (Lambda targets), "Using dead-letter queues" (the queue's
    policy admits the rule), "Encrypted queues" (the key's policy admits EventBridge)."""
    rule, properties = stack.one("AWS::Events::Rule")
    (target,) = properties["Targets"]
    permissions = [
        each
        for _, each in stack.of_type("AWS::Lambda::Permission")
        if (each["Principal"], each["FunctionName"], each["SourceArn"]) == ("events.amazonaws.com", target["Arn"], rule)
    ]
    assert [each["Action"] for each in permissions] == ["lambda:InvokeFunction"]
    queue = target["DeadLetterConfig"]["Arn"]
    (policy,) = [each for _, each in stack.of_type("AWS::SQS::QueuePolicy") if queue in each["Queues"]]
    source = {**OURS, "aws:SourceArn": rule, "aws:SecureTransport": "true"}
    admitted = towards("events.amazonaws.com", policy["PolicyDocument"])
    assert lacks(admitted, Need("sqs:SendMessage", queue, source)) == []
    key, policies = key_policy(stack, "events.amazonaws.com")
    assert lacks(policies, *(Need(f"kms:{action}", key, source) for action in ("GenerateDataKey", "Decrypt"))) == []


def test_given_the_encrypted_bus_when_an_event_arrives_then_eventbridge_may_use_the_key(stack: Stack) -> None:
    """EventBridge User Guide, "Authorizing EventBridge to use a customer managed key": DescribeKey belongs to no data,
    so it comes without the encryption context (KMS Developer Guide, "kms:EncryptionContext:context-key")."""
    bus = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/{stack.one('AWS::Events::EventBus')[1]['Name']}"
    key, policies = key_policy(stack, "events.amazonaws.com")
    source = {**OURS, "aws:SourceArn": bus}
    context = {**source, "kms:EncryptionContext:aws:events:event-bus:arn": bus}
    needs = [Need(f"kms:{action}", key, context) for action in ("GenerateDataKey", "Decrypt")]
    assert lacks(policies, Need("kms:DescribeKey", key, source), *needs) == []


def test_given_each_schedule_when_it_is_due_then_its_role_may_call_its_function_and_leave_dead_letters(
    stack: Stack,
) -> None:
    """EventBridge Scheduler User Guide: "Execution role", "Configuring a dead-letter queue" (the role sends), and
    "Confused deputy" (aws:SourceAccount)."""
    schedules = list(stack.of_type("AWS::Scheduler::Schedule"))
    assert len(schedules) == 3
    for name, properties in schedules:
        target = properties["Target"]
        needs = [
            Need("lambda:InvokeFunction", target["Arn"]),
            Need("sqs:SendMessage", target["DeadLetterConfig"]["Arn"]),
            *via("sqs", stack.one("AWS::KMS::Key")[0], "GenerateDataKey", "Decrypt"),
        ]
        assert lacks(stack.role(target["RoleArn"]), *needs) == [], name
        trusted = stack.template["Resources"][target["RoleArn"].strip("<>")]["Properties"]["AssumeRolePolicyDocument"]
        trust = towards("scheduler.amazonaws.com", trusted, "self")
        assert lacks(trust, Need("sts:AssumeRole", "self", OURS)) == []


def test_given_an_alarm_when_it_goes_off_then_cloudwatch_may_publish_to_the_encrypted_topic(stack: Stack) -> None:
    """CloudWatch User Guide, "Notifying users on alarm changes"; SNS Developer Guide, "Enable compatibility between
    event sources from AWS services and encrypted topics"."""
    topic, properties = stack.one("AWS::SNS::Topic")
    alarms = [each for _, each in stack.of_type("AWS::CloudWatch::Alarm")]
    assert alarms
    assert all(each["AlarmActions"] == [topic] for each in alarms)
    key, policies = key_policy(stack, "cloudwatch.amazonaws.com")
    assert properties["KmsMasterKeyId"] == key
    assert lacks(policies, *(Need(f"kms:{action}", key, OURS) for action in ("GenerateDataKey", "Decrypt"))) == []
    ((_, policy),) = stack.of_type("AWS::SNS::TopicPolicy")
    admitted = towards("cloudwatch.amazonaws.com", policy["PolicyDocument"])
    assert lacks(admitted, Need("sns:Publish", topic, {**OURS, "aws:SecureTransport": "true"})) == []


def test_given_each_log_group_when_it_is_written_then_cloudwatch_logs_may_use_the_key(stack: Stack) -> None:
    """CloudWatch Logs User Guide, "Encrypt log data in CloudWatch Logs using AWS Key Management Service"."""
    key, policies = key_policy(stack, f"logs.{REGION}.amazonaws.com")
    actions = ("Encrypt", "Decrypt", "ReEncryptFrom", "ReEncryptTo", "GenerateDataKey", "DescribeKey")
    for name, properties in stack.of_type("AWS::Logs::LogGroup"):
        assert properties["KmsKeyId"] == key, name
        arn = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{properties['LogGroupName']}"
        context = {"kms:EncryptionContext:aws:logs:arn": arn}
        assert lacks(policies, *(Need(f"kms:{action}", key, context) for action in actions)) == [], name


def test_given_the_buckets_access_logs_when_s3_delivers_them_then_it_may(stack: Stack) -> None:
    """S3 User Guide, "Enabling Amazon S3 server access logging": a bucket policy, for ACLs are off; no KMS key."""
    bucket, properties = stack.one("AWS::S3::Bucket", "StorageBucket")
    logging = properties["LoggingConfiguration"]
    (policy,) = [
        each for _, each in stack.of_type("AWS::S3::BucketPolicy") if each["Bucket"] == logging["DestinationBucketName"]
    ]
    target = f"{logging['DestinationBucketName']}/{logging['LogFilePrefix']}2026-01-01"
    source = {**OURS, "aws:SourceArn": bucket, "aws:SecureTransport": "true", "s3:TlsVersion": "1.3"}
    admitted = towards("logging.s3.amazonaws.com", policy["PolicyDocument"])
    assert lacks(admitted, Need("s3:PutObject", target, source)) == []


def test_given_a_batch_job_when_bedrock_runs_it_then_the_service_role_may_read_write_and_invoke(stack: Stack) -> None:
    """Bedrock User Guide, "Create a custom service role for batch inference" and "Prerequisites for inference profiles"
    (the profile, and its model in each region that it routes to)."""
    (role,) = [f"<{name}>" for name, _ in stack.of_type("AWS::IAM::Role") if name.startswith("BedrockRole")]
    bucket, key = stack.one("AWS::S3::Bucket", "StorageBucket")[0], stack.one("AWS::KMS::Key")[0]
    output = f"{bucket}/provider/acme/5d41402abc4b2a76/1/x1y2z3/"
    needs = [
        Need("s3:GetObject", f"{bucket}/{JOB}attempts/1/9a0364b9e99bb480/request.jsonl"),
        Need("s3:ListBucket", bucket, {"s3:prefix": JOB}),
        Need("s3:ListBucket", bucket, {"s3:prefix": "provider/acme/"}),
        Need("s3:PutObject", f"{output}request.jsonl.out"),
        Need("s3:PutObject", f"{output}manifest.json.out"),
        Need("s3:GetObject", f"{output}manifest.json.out"),
        Need("bedrock:InvokeModel", f"arn:aws:bedrock:{REGION}::foundation-model/amazon.nova-lite-v1:0"),
        Need("bedrock:InvokeModel", "arn:aws:bedrock:us-west-2::foundation-model/amazon.nova-lite-v1:0"),
        Need("bedrock:InvokeModel", f"arn:aws:bedrock:{REGION}:{ACCOUNT}:inference-profile/us.amazon.nova-lite-v1:0"),
        *via("s3", key, "GenerateDataKey", "Decrypt"),
    ]
    assert lacks(stack.role(role), *needs) == []
    trusted = stack.template["Resources"][role.strip("<>")]["Properties"]["AssumeRolePolicyDocument"]
    job = f"arn:aws:bedrock:{REGION}:{ACCOUNT}:model-invocation-job/abc123"
    trust = towards("bedrock.amazonaws.com", trusted, "self")
    assert lacks(trust, Need("sts:AssumeRole", "self", {**OURS, "aws:SourceArn": job})) == []


def test_given_a_role_of_the_local_stack_when_compared_then_it_is_the_one_of_aws(
    template: Mapping[str, Any], local_template: Mapping[str, Any]
) -> None:
    """So what the calls on the emulator are held against is what AWS will hold them against."""

    def policies(of: Mapping[str, Any]) -> dict[str, Any]:
        kinds = {"AWS::IAM::Role", "AWS::IAM::Policy"}
        return {name: each["Properties"] for name, each in of["Resources"].items() if each["Type"] in kinds}

    assert policies(local_template) == policies(template)
