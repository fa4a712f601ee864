"""The policies of a synthesised template: of a role, and of a resource towards a service. References stay symbols:
`<LogicalId>` is the ARN that a reference or its `Arn` stands for, the same wherever it appears."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.iam_policies import Policies, listed


def flat(value: Any) -> Any:
    """A value with its intrinsic functions put in as text."""
    if isinstance(value, list):
        return [flat(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        ((function, argument),) = value.items()
        if function == "Fn::Join":
            return argument[0].join(flat(part) for part in argument[1])
        if function == "Ref":
            return f"<{argument}>"
        if function == "Fn::GetAtt":
            return f"<{argument[0]}>"
        assert not function.startswith("Fn::"), function
    return {name: flat(each) for name, each in value.items()}


@dataclass(frozen=True)
class Stack:
    """A template; `properties` are flat."""

    template: Mapping[str, Any]

    def of_type(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Logical id and properties of each resource of a type."""
        for name, resource in self.template["Resources"].items():
            if resource["Type"] == kind:
                yield name, flat(resource.get("Properties", {}))

    def one(self, kind: str, beginning: str = "") -> tuple[str, dict[str, Any]]:
        """The one resource of the type whose logical id begins so; its ARN instead of its id."""
        ((name, properties),) = [each for each in self.of_type(kind) if each[0].startswith(beginning)]
        return f"<{name}>", properties

    def role(self, arn: str) -> Policies:
        """The identity policies of the role `<LogicalId>`."""
        return Policies(
            properties["PolicyDocument"]
            for _, properties in self.of_type("AWS::IAM::Policy")
            if arn in properties["Roles"]
        )


def towards(service: str, document: Mapping[str, Any], resource: str = "") -> Policies:
    """What a resource's policy says to a service (`sqs.amazonaws.com`): its statements that name the service, and
    those for everybody. `resource` stands in where a policy names none, as a role's trust, or "*", as a key's."""
    found = []
    for each in listed(document["Statement"]):
        principal = each["Principal"]
        everybody = principal == "*" or principal == {"AWS": "*"}
        if everybody or service in listed(principal.get("Service", []) if isinstance(principal, Mapping) else []):
            statement = {name: part for name, part in each.items() if name != "Principal"}
            found.append({**statement, **({"Resource": resource} if resource else {})})
    return Policies([{"Statement": found}])
