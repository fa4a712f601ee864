"""Whether an output schema can go to OpenAI in strict mode.

Strict mode takes a subset of JSON Schema and refuses the rest with HTTP 400 on every record. A schema outside the
subset is therefore sent with `strict: false`, and our own validation of the answer remains the judge. Subset and
limits: the vendor's Structured Outputs guide, "Supported schemas" (as of February 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES = frozenset({"string", "number", "boolean", "integer", "object", "array", "null"})
_STRUCTURE = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"}
    | {"$ref", "$defs", "definitions", "title", "description"}
)
_BOUNDS = frozenset(
    {"pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"minItems", "maxItems"}
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

MAX_PROPERTIES = 5_000
MAX_NESTING = 10
MAX_ENUM_VALUES = 1_000
MAX_NAME_CHARS = 120_000
"""Property names, definition names, enum and const values, in characters."""


def strict_gap(schema: Mapping[str, Any], *, model: str = "") -> str:
    """The first reason why `schema` is outside strict mode; "" if it is inside. Fine-tuned models take no bounds."""
    if schema.get("type") != "object" or "anyOf" in schema:
        return "the root must be an object without anyOf"
    allowed = _STRUCTURE if model.startswith("ft:") else _STRUCTURE | _BOUNDS
    properties = values = chars = 0
    for path, node, depth in _walk(schema, "$", 1):
        gap = _gap(node, allowed)
        if gap:
            return f"{path}: {gap}"
        if depth > MAX_NESTING:
            return f"{path}: more than {MAX_NESTING} nested levels"
        names = [*node.get("properties", ()), *node.get("$defs", ()), *node.get("definitions", ())]
        texts = [*node.get("enum", ()), *([node["const"]] if "const" in node else [])]
        properties += len(node.get("properties", ()))
        values += len(node.get("enum", ()))
        chars += sum(len(str(item)) for item in [*names, *texts])
    if properties > MAX_PROPERTIES:
        return f"more than {MAX_PROPERTIES} properties"
    if values > MAX_ENUM_VALUES:
        return f"more than {MAX_ENUM_VALUES} enum values"
    return f"names and enum values exceed {MAX_NAME_CHARS} characters" if chars > MAX_NAME_CHARS else ""


def schema_label(name: str) -> str:
    """`name` as the API takes it: letters, digits, `_`, `-`, at most 64 characters."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "output"


def _gap(node: Mapping[str, Any], allowed: frozenset[str]) -> str:
    unknown = sorted(set(node) - allowed)
    if unknown:
        return f"keyword {unknown[0]} is not supported"
    kinds = node.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or not all(isinstance(kind, str) and kind in _TYPES for kind in kinds):
        return "type is not supported"
    if not kinds and not {"anyOf", "$ref", "enum", "const"} & set(node):
        return "a type is missing"
    if "format" in node and node["format"] not in _FORMATS:
        return f"format {node['format']} is not supported"
    if "object" in kinds or "properties" in node:
        if node.get("additionalProperties") is not False:
            return "additionalProperties must be false"
        if set(node.get("required", ())) != set(node.get("properties", {})):
            return "every property must be required"
    if "array" in kinds and "items" not in node:
        return "items is missing"
    return ""


def _walk(node: Any, path: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """Every subschema with its place and its depth; what is no object is given as one that no rule allows."""
    if not isinstance(node, Mapping):
        yield path, {"not an object": node}, depth
        return
    yield path, node, depth
    if depth > MAX_NESTING:
        return
    for keyword in ("properties", "$defs", "definitions"):
        children = node.get(keyword)
        if isinstance(children, Mapping):
            for name, child in children.items():
                yield from _walk(child, f"{path}.{name}", depth + 1 if keyword == "properties" else depth)
    if "items" in node:
        yield from _walk(node["items"], f"{path}[]", depth)
    for index, child in enumerate(node.get("anyOf") or ()):
        yield from _walk(child, f"{path}.anyOf[{index}]", depth)
