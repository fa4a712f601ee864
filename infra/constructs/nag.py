"""Acknowledged findings of cdk-nag: always on the narrowest construct, always with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct


def acknowledge(construct: IConstruct, findings: Mapping[str, str]) -> None:
    """Accept findings (id -> reason) of AwsSolutions on a construct and what is below it."""
    rules = [Acknowledgment(id=f"AwsSolutions-{rule}", reason=reason) for rule, reason in findings.items()]
    Validations.of(construct).acknowledge(*rules)


def wildcard(construct: IConstruct, resource: str, reason: str) -> None:
    """Accept one resource with a wildcard in the policies below `construct`: exactly this one."""
    acknowledge(construct, {f"IAM5[Resource::{_flat(Stack.of(construct).resolve(resource))}]": reason})


def _flat(resolved: Any) -> str:
    """A resource as cdk-nag writes it in a finding's id: references in angle brackets, everything else as it is."""
    if isinstance(resolved, str):
        return resolved
    function, argument = next(iter(resolved.items()))
    if function == "Ref":
        return f"<{argument}>"
    if function == "Fn::GetAtt":
        return f"<{'.'.join(argument)}>"
    if function == "Fn::Join":
        separator, parts = argument
        return str(separator).join(_flat(part) for part in parts)
    raise ValueError(f"{function} in the resource of a policy: say in _flat how cdk-nag writes it")
