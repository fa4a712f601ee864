"""Properties that the emulator's CloudFormation drops silently, put in place by API after a deployment.

The values come from the template, so that what is tested locally is what AWS will be told. A rule in a shape that is
not translated here is an error: dropping it a second time would be as silent as the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infra.local.assembly import Assembly
from infra.local.loopback import Aws
from tallybatch.domain.errors import Permanent

Resolve = Callable[[Any], str]


def apply_dropped(aws: Aws, assembly: Assembly, physical_ids: Mapping[str, str]) -> None:
    """Set encryption and lifecycle of the stack's buckets, and its functions' dead-letter queues; doing it again
    changes nothing."""

    def resolve(value: Any) -> str:
        return _arn(aws, assembly, value, physical_ids)

    _apply_to_buckets(aws, assembly, physical_ids, resolve)
    _apply_to_functions(aws, assembly, physical_ids, resolve)


def _apply_to_buckets(aws: Aws, assembly: Assembly, physical_ids: Mapping[str, str], resolve: Resolve) -> None:
    s3 = aws.s3
    for logical_id, properties in assembly.resources("AWS::S3::Bucket"):
        bucket = physical_ids[logical_id]
        rules = [
            encryption_rule(rule, resolve)
            for rule in properties.get("BucketEncryption", {}).get("ServerSideEncryptionConfiguration", [])
        ]
        if rules:
            encryption: Any = {"Rules": rules}
            s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=encryption)
        lifecycle = [lifecycle_rule(rule) for rule in properties.get("LifecycleConfiguration", {}).get("Rules", [])]
        if lifecycle:
            configuration: Any = {"Rules": lifecycle}
            s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=configuration)


def _apply_to_functions(aws: Aws, assembly: Assembly, physical_ids: Mapping[str, str], resolve: Resolve) -> None:
    functions = aws.lambda_
    for logical_id, properties in assembly.resources("AWS::Lambda::Function"):
        if "DeadLetterConfig" not in properties:
            continue
        name, target = physical_ids[logical_id], resolve(properties["DeadLetterConfig"]["TargetArn"])
        current = functions.get_function_configuration(FunctionName=name).get("DeadLetterConfig", {})
        if current.get("TargetArn") != target:
            functions.update_function_configuration(FunctionName=name, DeadLetterConfig={"TargetArn": target})


def encryption_rule(rule: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
    """A `ServerSideEncryptionRule` of CloudFormation in the shape of PutBucketEncryption."""
    default = {
        name: resolve(value) if name == "KMSMasterKeyID" else value
        for name, value in rule.get("ServerSideEncryptionByDefault", {}).items()
    }
    result: dict[str, Any] = {"ApplyServerSideEncryptionByDefault": default} if default else {}
    if "BucketKeyEnabled" in rule:
        result["BucketKeyEnabled"] = rule["BucketKeyEnabled"]
    return result


def lifecycle_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A lifecycle `Rule` of CloudFormation in the shape of PutBucketLifecycleConfiguration."""
    left = dict(rule)
    result: dict[str, Any] = {"Status": left.pop("Status"), "Filter": _filter(left)}
    if "Id" in left:
        result["ID"] = left.pop("Id")
    expiration = {
        api: left.pop(cfn)
        for cfn, api in (
            ("ExpirationInDays", "Days"),
            ("ExpirationDate", "Date"),
            ("ExpiredObjectDeleteMarker", "ExpiredObjectDeleteMarker"),
        )
        if cfn in left
    }
    if expiration:
        result["Expiration"] = expiration
    if "NoncurrentVersionExpirationInDays" in left:
        result["NoncurrentVersionExpiration"] = {"NoncurrentDays": left.pop("NoncurrentVersionExpirationInDays")}
    for name in ("NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload"):
        if name in left:
            result[name] = left.pop(name)
    for name, unit in (("Transitions", "Days"), ("NoncurrentVersionTransitions", "NoncurrentDays")):
        if name in left:
            result[name] = [
                {"StorageClass": step["StorageClass"], unit: step["TransitionInDays"]} for step in left.pop(name)
            ]
    if left:
        raise Permanent(
            f"lifecycle rule {rule.get('Id', '')} has {sorted(left)}, which is not translated",
            where="infra/local/dropped.py",
            do="add it there, so that the local bucket behaves as the one on AWS",
        )
    return result


def _filter(left: dict[str, Any]) -> dict[str, Any]:
    tags = left.pop("TagFilters", [])
    rest: dict[str, Any] = {
        name: left.pop(name) for name in ("Prefix", "ObjectSizeGreaterThan", "ObjectSizeLessThan") if name in left
    }
    if len(rest) + len(tags) > 1:
        return {"And": {**rest, **({"Tags": tags} if tags else {})}}
    if tags:
        return {"Tag": tags[0]}
    return rest or {"Prefix": ""}


def _arn(aws: Aws, assembly: Assembly, value: Any, physical_ids: Mapping[str, str]) -> str:
    """The ARN that a literal, a `Ref` or an `Fn::GetAtt` in the template stands for: of a key, a queue or a topic."""
    if isinstance(value, str):
        return value
    target = value["Fn::GetAtt"][0] if "Fn::GetAtt" in value else value["Ref"]
    physical_id = physical_ids[target]
    match assembly.template["Resources"][target]["Type"]:
        case "AWS::KMS::Key":
            return str(aws.kms.describe_key(KeyId=physical_id)["KeyMetadata"]["Arn"])
        case "AWS::SQS::Queue":
            attributes = aws.sqs.get_queue_attributes(QueueUrl=physical_id, AttributeNames=["QueueArn"])["Attributes"]
            return str(attributes["QueueArn"])
        case "AWS::SNS::Topic":
            return physical_id
        case other:
            raise Permanent(f"the ARN of {target} ({other}) is not resolved", where="infra/local/dropped.py")
