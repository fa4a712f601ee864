"""What this release does not do yet: keys that are understood and checked, and then refused rather than ignored.

To support a key, delete its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from tallybatch.domain.spec import Spec
from tallybatch.domain.units import shown

NOT_YET = "not supported yet"
NOT_SUPPORTED = "not_supported"
"""Code of the problem."""

REMOVE = f"{NOT_YET} in this release; remove the key"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """`path` is refused unless it has its default or a value in `only`."""

    path: tuple[str, ...]
    only: tuple[str, ...] = ()


UNSUPPORTED: tuple[Unsupported, ...] = (
    Unsupported(("input", "redact")),
    Unsupported(("generation", "tools")),
)


def unsupported(spec: Spec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path and reason of each key of `spec` that this release would have to ignore."""
    for row in UNSUPPORTED:
        value, default = _value_and_default(spec, row.path)
        if value == default or value in row.only:
            continue
        if row.only:
            yield row.path, f"{shown(value)} is {NOT_YET}; this release has {', '.join(row.only)}"
        else:
            yield row.path, REMOVE


def _value_and_default(spec: Spec, path: tuple[str, ...]) -> tuple[Any, Any]:
    parent: Any = spec
    for name in path[:-1]:
        parent = getattr(parent, name)
    if isinstance(parent, BaseModel):
        return getattr(parent, path[-1]), type(parent).model_fields[path[-1]].default
    return parent.get(path[-1]), None


def mark_unsupported(schema: dict[str, Any]) -> dict[str, Any]:
    """The same JSON Schema, whose descriptions say what is not supported yet, for whoever completes by it."""
    for row in UNSUPPORTED:
        node: Mapping[str, Any] = schema
        for name in row.path[:-1]:
            reference = node["properties"][name]["$ref"]
            node = schema["$defs"][reference.rsplit("/", 1)[-1]]
        prop = node["properties"][row.path[-1]]
        note = f"Only {', '.join(row.only)}: the rest is {NOT_YET}." if row.only else f"{NOT_YET.capitalize()}."
        prop["description"] = f"{prop['description']} {note}"
    return schema
