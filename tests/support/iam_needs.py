"""What AWS asks IAM about a call that a function made, as `recorder.sitecustomize` wrote it down.

Sources: Service Authorization Reference (S3's has a table of operations and their actions, DynamoDB, Step Functions,
EventBridge, Secrets Manager, Bedrock); S3 User Guide, "Required permissions for Amazon S3 API operations"; S3 API
reference, HeadObject and GetObject (404 only with ListBucket, else 403; with a version id GetObjectVersion counts);
S3 User Guide, "Protecting data with SSE-KMS" (GenerateDataKey to write, Decrypt to read and for parts); DynamoDB
Developer Guide, "IAM security policies with PartiQL", "Transactions and IAM" and "DynamoDB encryption at rest usage
notes"; EventBridge User Guide, "Authorizing EventBridge to use a customer managed key" (the bus asks for itself).
SendTask* are checked against the machine's ARN although the reference names no resource (aws/aws-cdk#8486).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.iam_policies import Need

_MISSING = frozenset({"404", "NoSuchKey", "NoSuchVersion", "NotFound"})
_VERBS = {"INSERT": "PartiQLInsert", "UPDATE": "PartiQLUpdate", "SELECT": "PartiQLSelect", "DELETE": "PartiQLDelete"}
_TRANSACTED = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
_ON_ONE_TABLE = frozenset({"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "Scan"})


@dataclass(frozen=True)
class Call:
    """`function` is its deployed name; `params` what `recorder.sitecustomize.kept` kept."""

    function: str
    service: str
    operation: str
    params: Mapping[str, Any]
    error: str = ""

    @property
    def source_bucket(self) -> str:
        """The bucket that it reads, "" for none."""
        return str(self.params.get("CopySource", self.params).get("Bucket", ""))

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.params.items())
        return f"{self.service} {self.operation} {told}" + (f" ({self.error})" if self.error else "")


@dataclass(frozen=True)
class Place:
    """What the names in a call stand for. `machine_arn` is the one state machine's, `key_arn` the one key's."""

    account: str
    region: str
    bucket: str
    key_arn: str
    machine_arn: str

    def arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"


def recorded(directory: Path) -> list[Call]:
    """All calls in a recorder's directory, each once."""
    lines = {line for file in sorted(directory.glob("*.jsonl")) for line in file.read_text().splitlines()}
    return [Call(**json.loads(line)) for line in sorted(lines)]


def needs(call: Call, place: Place) -> list[Need]:
    """Raises `NotImplementedError` for a call that this module does not know."""
    asked = {"s3": _s3, "dynamodb": _dynamodb}.get(call.service, _others)
    return list(asked(call, place))


def _key(place: Place, service: str, *actions: str) -> Iterator[Need]:
    for action in actions:
        yield Need(f"kms:{action}", place.key_arn, {"kms:ViaService": f"{service}.{place.region}.amazonaws.com"})


def _s3(call: Call, place: Place) -> Iterator[Need]:
    params, operation = call.params, call.operation
    bucket = f"arn:aws:s3:::{params['Bucket']}"
    target = f"{bucket}/{params.get('Key', '')}"
    version = "Version" if "VersionId" in params else ""
    if call.error in _MISSING:
        yield Need("s3:ListBucket", bucket)
    match operation:
        case "HeadObject":
            yield Need(f"s3:GetObject{version}", target)
        case "GetObject":
            yield Need(f"s3:GetObject{version}", target)
            yield from _read(params["Bucket"], place)
        case "ListObjectsV2":
            yield Need("s3:ListBucket", bucket, {"s3:prefix": params["Prefix"]} if "Prefix" in params else {})
        case "GetObjectTagging" | "PutObjectTagging":
            yield Need(f"s3:{operation.removesuffix('Tagging')}{version}Tagging", target)
        case "AbortMultipartUpload":
            yield Need("s3:AbortMultipartUpload", target)
        case "PutObject" | "CreateMultipartUpload" | "CompleteMultipartUpload" | "UploadPart":
            yield from _write(params, target, place)
        case "CopyObject" | "UploadPartCopy":
            yield from _write(params, target, place)
            source = params["CopySource"]
            version = "Version" if "VersionId" in source else ""
            copied = f"arn:aws:s3:::{source['Bucket']}/{source['Key']}"
            yield Need(f"s3:GetObject{version}", copied)
            if operation == "CopyObject" and params.get("TaggingDirective", "COPY") == "COPY":
                yield Need(f"s3:GetObject{version}Tagging", copied)
                yield Need("s3:PutObjectTagging", target)
            yield from _read(source["Bucket"], place)
        case _:
            raise NotImplementedError(f"{call}: say in {__name__} which actions it needs")


def _read(bucket: str, place: Place) -> Iterator[Need]:
    """Another bucket's key is its owner's matter."""
    if bucket == place.bucket:
        yield from _key(place, "s3", "Decrypt")


def _write(params: Mapping[str, Any], target: str, place: Place) -> Iterator[Need]:
    yield Need("s3:PutObject", target)
    if "Tagging" in params:
        yield Need("s3:PutObjectTagging", target)
    if "IfMatch" in params:
        yield Need("s3:GetObject", target)
    yield from _key(place, "s3", "GenerateDataKey", "Decrypt")


def _dynamodb(call: Call, place: Place) -> Iterator[Need]:
    def table(name: str) -> str:
        return place.arn("dynamodb", f"table/{name}")

    params = call.params
    if call.operation in _ON_ONE_TABLE:
        index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
        yield Need(f"dynamodb:{call.operation}", table(params["TableName"]) + index)
    elif call.operation in {"BatchGetItem", "BatchWriteItem"}:
        yield from (Need(f"dynamodb:{call.operation}", table(name)) for name in params["RequestItems"])
    elif call.operation == "TransactWriteItems":
        yield from (Need(f"dynamodb:{_TRANSACTED[kind]}", table(name)) for kind, name in params["TransactItems"])
    elif call.operation == "BatchExecuteStatement":
        yield from (Need(f"dynamodb:{_VERBS[verb]}", table(name)) for verb, name in params["Statements"])
    else:
        raise NotImplementedError(f"{call}: say in {__name__} which actions it needs")
    yield from _key(place, "dynamodb", "Decrypt")


def _others(call: Call, place: Place) -> Iterator[Need]:
    params = call.params
    match call.service, call.operation:
        case "stepfunctions", "StartExecution":
            yield Need("states:StartExecution", params["stateMachineArn"])
        case "stepfunctions", "DescribeExecution":
            yield Need("states:DescribeExecution", params["executionArn"])
        case "stepfunctions", "SendTaskSuccess":
            yield Need("states:SendTaskSuccess", place.machine_arn)
        case "events", "PutEvents":
            for bus in params["Entries"]:
                yield Need("events:PutEvents", bus if ":" in bus else place.arn("events", f"event-bus/{bus}"))
        case "secretsmanager", "GetSecretValue":
            yield Need("secretsmanager:GetSecretValue", params["SecretId"])
            yield from _key(place, "secretsmanager", "Decrypt")
        case "bedrock", "CreateModelInvocationJob":
            yield Need("bedrock:CreateModelInvocationJob", place.arn("bedrock", "model-invocation-job/*"))
            yield Need("bedrock:CreateModelInvocationJob", _model(params["modelId"], place))
            yield Need("iam:PassRole", params["roleArn"], {"iam:PassedToService": "bedrock.amazonaws.com"})
        case "bedrock", "GetModelInvocationJob" | "StopModelInvocationJob":
            yield Need(f"bedrock:{call.operation}", params["jobIdentifier"])
        case "bedrock", "ListModelInvocationJobs":
            yield Need("bedrock:ListModelInvocationJobs", "*")
        case "bedrock-runtime", "Converse" | "InvokeModel":
            yield Need("bedrock:InvokeModel", _model(params["modelId"], place))
        case _:
            raise NotImplementedError(f"{call}: say in {__name__} which actions it needs")


def _model(name: str, place: Place) -> str:
    """A profile's id begins with the geography it routes in, a model's with its maker (Bedrock User Guide)."""
    if name.startswith("arn:"):
        return name
    if name.split(".")[0] in {"us", "eu", "apac", "global"}:
        return place.arn("bedrock", f"inference-profile/{name}")
    return f"arn:aws:bedrock:{place.region}::foundation-model/{name}"
