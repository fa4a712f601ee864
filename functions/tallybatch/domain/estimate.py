"""Tokens before anybody counts them: from the bytes of the request lines, without the lines' own syntax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tallybatch.domain.spec import Spec

BYTES_PER_TOKEN: Mapping[str, float] = {"openai": 4.0, "bedrock": 4.0, "gemini": 4.0}
"""Of plain text by provider. Sources: OpenAI's help centre and Gemini's guide "Understand and count tokens" say about
four characters of English; for Bedrock's models nothing better is published for all of them. README, "Costs", has the
error against the simulator's count."""
DENSE_BYTES_PER_TOKEN = 2.0
"""Of text that is unlike English prose: at worst a provider counts twice as many tokens."""
ROUNDING = 0.375
"""A count is rounded up for each record: three eighths of a token more, on average."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of all records in one attempt."""

    likely_input: int
    worst_input: int
    least_output: int
    most_output: int | None
    """None without a cap."""


def estimate(spec: Spec, *, records: int, request_bytes: int, syntax_bytes: int) -> Tokens:
    """`syntax_bytes`: of each request line that are no text (0 for a native file, whose own syntax counts as text)."""
    text = max(0, request_bytes - records * syntax_bytes)
    likely = round(text / BYTES_PER_TOKEN[spec.provider] + ROUNDING * records)
    worst = max(likely, round(text / DENSE_BYTES_PER_TOKEN))
    if spec.is_embedding:
        return Tokens(likely, worst, 0, 0)
    cap = spec.generation.get("max_output_tokens")
    least = max(1, round(len(_shortest(spec.output.schema_)) / BYTES_PER_TOKEN[spec.provider]))
    return Tokens(likely, worst, records * min(least, cap or least), None if cap is None else records * int(cap))


def _shortest(schema: Mapping[str, Any] | None) -> bytes:
    """JSON of about the size of the shortest answer that fits: what is required, and as little of that as can be."""
    return b"" if schema is None else msgspec.json.encode(_least(schema, 0))


def _least(schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > 8:
        return ""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return min(schema["enum"], key=lambda value: len(str(value)))
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: _least(properties.get(name), depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        return [_least(schema.get("items"), depth + 1)] * min(int(schema.get("minItems", 0)), 1000)
    if kind in ("number", "integer", "boolean", "null"):
        return {"boolean": True, "null": None}.get(str(kind), 0)
    return "x" * min(int(schema.get("minLength", 1)), 10_000)
