"""Would IAM allow it? Identity policies of one role, with the operators and keys that the stack's policies use.

Rules: IAM User Guide, "Policy evaluation logic" (an explicit deny wins, what nothing allows is denied) and "IAM JSON
policy elements: Condition operators" (all keys must match; several values of one key are alternatives; a key that the
request has not fails, except under `...IfExists`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Need:
    """One question that AWS asks IAM. `context` holds the condition keys of the request, by their full name."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        told = "".join(f", {key}={value}" for key, value in sorted(self.context.items()))
        return f"{self.action} on {self.resource}{told}"


class Policies:
    """The statements of a role's identity policies, whose resources are whole ARNs."""

    def __init__(self, documents: Iterable[Mapping[str, Any]]) -> None:
        self.statements = [each for document in documents for each in listed(document["Statement"])]
        for statement in self.statements:
            if unknown := set(statement) - {"Sid", "Effect", "Action", "Resource", "Condition"}:
                raise NotImplementedError(f"policy elements {sorted(unknown)} in {statement}")

    def allow(self, need: Need) -> bool:
        effects = {each["Effect"] for each in self.statements if _matches(each, need)}
        return "Allow" in effects and "Deny" not in effects

    def grants(self) -> Iterator[tuple[str, str]]:
        """Each (action, resource pattern) that is allowed."""
        for each in self.statements:
            if each["Effect"] == "Allow":
                yield from (
                    (action, target) for action in listed(each["Action"]) for target in listed(each["Resource"])
                )

    def used(self, needs: Iterable[Need]) -> set[tuple[str, str]]:
        """The grants that at least one of the needs falls under."""
        asked = set(needs)
        return {
            (action, target)
            for action, target in self.grants()
            if any(like(action, need.action, fold=True) and like(target, need.resource) for need in asked)
        }


def listed(value: Any) -> list[Any]:
    """An element that may stand alone or in a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def like(pattern: str, text: str, *, fold: bool = False) -> bool:
    """`*` stands for any characters, `?` for one; actions do not tell capitals apart, ARNs do."""
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL | (re.IGNORECASE if fold else 0)) is not None


def _matches(statement: Mapping[str, Any], need: Need) -> bool:
    return (
        any(like(action, need.action, fold=True) for action in listed(statement["Action"]))
        and any(like(target, need.resource) for target in listed(statement["Resource"]))
        and all(
            holds(operator, need.context.get(key), listed(values))
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def holds(operator: str, actual: str | None, wanted: Sequence[Any]) -> bool:
    """One key of one condition operator; `actual` is None if the request has no such key."""
    base = operator.removesuffix("IfExists")
    if actual is None:
        return base != operator
    match base:
        case "StringEquals" | "ArnEquals":
            return actual in wanted
        case "StringLike" | "ArnLike":
            return any(like(pattern, actual) for pattern in wanted)
        case "Bool":
            return actual in [str(each).lower() for each in wanted]
        case "NumericLessThan":
            return any(float(actual) < float(each) for each in wanted)
    raise NotImplementedError(f"condition operator {operator}")
