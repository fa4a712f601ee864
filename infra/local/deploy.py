"""Brings a cloud assembly into the emulator by CloudFormation: unchanged means nothing is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from infra.local.assembly import Assembly
from infra.local.dropped import apply_dropped
from infra.local.loopback import Aws
from tallybatch.domain.errors import Permanent

FINGERPRINT_TAG = "tallybatch:fingerprint"
"""The stack itself remembers what was deployed, so that a lost state file changes nothing."""

_CAPABILITIES: Any = ("CAPABILITY_IAM", "CAPABILITY_NAMED_IAM")
_DONE = ("CREATE_COMPLETE", "UPDATE_COMPLETE")
_UPDATABLE = (*_DONE, "UPDATE_ROLLBACK_COMPLETE")

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Deployment:
    stack: str
    outputs: Mapping[str, str]
    changed: bool
    """False if the stack was there already with this very template."""


def deploy(
    endpoint_url: str,
    assembly: Assembly,
    *,
    secrets: Mapping[str, str] | None = None,
    report: Report = lambda _: None,
    timeout_s: float = 120,
) -> Deployment:
    """Create or update the stack. `secrets` gives the value of the secret that each named output names.
    Raises `BadInput` for an endpoint on another machine, `Permanent` with CloudFormation's reasons when it fails."""
    aws = Aws(endpoint_url)
    present = _describe(aws, assembly.stack)
    changed = not _is_current(present, assembly)
    if changed:
        report(f"deploying {assembly.stack} ({len(assembly.template['Resources'])} resources)")
        template_url = _upload(aws, assembly)
        _apply(aws, assembly, present, template_url, time.monotonic() + timeout_s)
    apply_dropped(aws, assembly, physical_ids(aws, assembly.stack))
    deployed = outputs(aws, assembly.stack)
    for output, value in (secrets or {}).items():
        if output not in deployed:
            raise Permanent(f"the stack has no output {output}", where=f"stack {assembly.stack}", do="add it in infra/")
        _put_secret(aws, deployed[output], value)
    return Deployment(assembly.stack, deployed, changed)


def outputs(aws: Aws, stack: str) -> dict[str, str]:
    """Outputs of a stack that is deployed completely; {} otherwise."""
    found = _describe(aws, stack)
    if not found or found["StackStatus"] not in _DONE:
        return {}
    return {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])}


def physical_ids(aws: Aws, stack: str) -> dict[str, str]:
    """Logical id to physical id of every resource of the stack."""
    found = aws.cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    return {each["LogicalResourceId"]: each.get("PhysicalResourceId", "") for each in found}


def _describe(aws: Aws, stack: str) -> dict[str, Any] | None:
    try:
        found: Sequence[Any] = aws.cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise
    return dict(found[0]) if found else None


def _is_current(present: Mapping[str, Any] | None, assembly: Assembly) -> bool:
    if present is None or present["StackStatus"] not in _DONE:
        return False
    return {"Key": FINGERPRINT_TAG, "Value": assembly.fingerprint} in present.get("Tags", [])


def _upload(aws: Aws, assembly: Assembly) -> str:
    """Store what is not there yet, by content-addressed key; returns the template's URL (a body in the request may
    not exceed 51,200 bytes)."""
    s3 = aws.s3
    bucket = assembly.assets[0].bucket if assembly.assets else "tallybatch-local-assets"
    for name in {bucket, *(asset.bucket for asset in assembly.assets)}:
        s3.create_bucket(Bucket=name)
    for asset in assembly.assets:
        try:
            s3.head_object(Bucket=asset.bucket, Key=asset.key)
        except ClientError:
            s3.put_object(Bucket=asset.bucket, Key=asset.key, Body=asset.body())
    key = f"{assembly.stack}-{assembly.fingerprint}.template.json"
    s3.put_object(Bucket=bucket, Key=key, Body=assembly.template_json)
    return f"{aws.endpoint_url}/{bucket}/{key}"


def _apply(aws: Aws, assembly: Assembly, present: Mapping[str, Any] | None, template_url: str, deadline: float) -> None:
    cloudformation = aws.cloudformation
    stack = assembly.stack
    if present is not None:
        present = _settled(aws, stack, deadline)
    if present is not None and present["StackStatus"] not in _UPDATABLE:
        cloudformation.delete_stack(StackName=stack)
        gone = _settled(aws, stack, deadline)
        if gone is not None and gone["StackStatus"] != "DELETE_COMPLETE":
            raise _failed(aws, stack, gone)
        present = None
    arguments: Any = {
        "StackName": stack,
        "TemplateURL": template_url,
        "Capabilities": _CAPABILITIES,
        "Tags": [{"Key": FINGERPRINT_TAG, "Value": assembly.fingerprint}],
    }
    try:
        if present is None:
            cloudformation.create_stack(**arguments)
        else:
            cloudformation.update_stack(**arguments)
    except ClientError as error:
        raise Permanent(
            "the emulator refused the template", where=f"stack {stack}", why=str(error), do="mend the stack in infra/"
        ) from error
    found = _settled(aws, stack, deadline)
    if found is None or found["StackStatus"] not in _DONE:
        raise _failed(aws, stack, found)


def _settled(aws: Aws, stack: str, deadline: float) -> dict[str, Any] | None:
    while True:
        found = _describe(aws, stack)
        if found is None or not found["StackStatus"].endswith("_IN_PROGRESS"):
            return found
        if time.monotonic() > deadline:
            raise _failed(aws, stack, found)
        time.sleep(0.2)


def _failed(aws: Aws, stack: str, found: Mapping[str, Any] | None) -> Permanent:
    name = str(found["StackId"]) if found else stack
    try:
        events: Sequence[Any] = aws.cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    except ClientError:
        events = []
    reasons = [
        f"{event['LogicalResourceId']} ({event['ResourceType']}): {event.get('ResourceStatusReason', '')}"
        for event in events
        if event["ResourceStatus"].endswith("_FAILED")
    ]
    return Permanent(
        f"the stack is {found['StackStatus'] if found else 'gone'}",
        where=f"stack {stack}",
        why="; ".join(dict.fromkeys(reasons)) or "CloudFormation names no resource",
        do="mend the stack in infra/, or begin again with `tallybatch local reset`",
    )


def _put_secret(aws: Aws, secret_id: str, value: str) -> None:
    secrets = aws.secretsmanager
    try:
        if secrets.get_secret_value(SecretId=secret_id).get("SecretString") == value:
            return
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "ResourceNotFoundException":
            raise
    secrets.put_secret_value(SecretId=secret_id, SecretString=value)
