"""The roles of the deployed functions as the emulator keeps them: references are resolved, nothing is enforced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from infra.local.loopback import ACCOUNT, REGION
from tallybatch.settings import FUNCTIONS
from tests.support.deployed import Deployed
from tests.support.iam_needs import Call, Place, needs
from tests.support.iam_policies import Need, Policies

BY_LAMBDA = ("logs:", "xray:", "sqs:")
"""Actions that Lambda takes for a function, not the function's code."""


class DeployedRoles:
    def __init__(self, line: Deployed) -> None:
        self._line = line

    @cached_property
    def place(self) -> Place:
        resources = self._line.aws.cloudformation.describe_stack_resources(StackName=self._line.status.stack or "")
        (key,) = [each for each in resources["StackResources"] if each["ResourceType"] == "AWS::KMS::Key"]
        key_id = key["PhysicalResourceId"]
        machine = self._line.status.state_machine_arn or ""
        return Place(ACCOUNT, REGION, self._line.bucket, f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{key_id}", machine)

    @cached_property
    def policies(self) -> Mapping[str, Policies]:
        """By the function's deployed name."""
        names = [f"{self._line.status.stack}-{model.function}" for model in FUNCTIONS]
        return {name: self._of(name) for name in names}

    def _of(self, function: str) -> Policies:
        iam = self._line.aws.client("iam")
        configuration = self._line.aws.lambda_.get_function_configuration(FunctionName=function)
        role = configuration["Role"].rpartition("/")[2]
        assert not iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        documents: list[Mapping[str, Any]] = [
            iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
        ]
        return Policies(documents)

    def denied(self, calls: Iterable[Call], more: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """A line for each action that a function's role lacks on a resource, with one call that needs it. `more` are
        policy documents that count as well, by function."""
        found: dict[tuple[str, str, str], str] = {}
        added = {function: Policies([document]) for function, document in more.items()}
        for call in calls:
            for need in needs(call, self.place):
                allowed = self.policies[call.function].allow(need)
                if not allowed and not (call.function in added and added[call.function].allow(need)):
                    found.setdefault(
                        (call.function, need.action, need.resource), f"{call.function} may not {need}: {call}"
                    )
        return sorted(found.values())

    def unused(self, calls: Iterable[Call]) -> list[str]:
        """A line for each action and resource of a grant that none of the calls needed, with the functions' names."""
        asked: dict[str, set[Need]] = {}
        for call in calls:
            asked.setdefault(call.function, set()).update(needs(call, self.place))
        found: dict[str, list[str]] = {}
        for function, policies in self.policies.items():
            for action, target in set(policies.grants()) - policies.used(asked.get(function, set())):
                if not action.startswith(BY_LAMBDA):
                    short = target.replace(self.place.bucket, "BUCKET").rpartition(":")[2]
                    found.setdefault(f"{action} on {short}", []).append(function.rpartition("-")[2])
        return sorted(f"{grant}: {', '.join(sorted(functions))}" for grant, functions in found.items())
