"""Reads GenerateContentRequest and EmbedContentRequest bodies, whose keys may be in either casing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from infra.local.simulator.answers import Prompt, tokens_of
from infra.local.simulator.execution import Json
from infra.local.simulator.gemini.model import EMBED

_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"})
_SNAKE = re.compile(r"(?<!^)(?=[A-Z])")


class BadRequest(Exception):
    """A row that ends as INVALID_ARGUMENT."""


def member(holder: Any, name: str) -> Any:
    """A field by its lowerCamel name, or as snake_case: the API accepts both."""
    if not isinstance(holder, Mapping):
        return None
    value = holder.get(name)
    return holder.get(_SNAKE.sub("_", name).lower()) if value is None else value


def check(method: str, body: Json) -> None:
    """What comes back as an error of the row."""
    if method == EMBED:
        if not text_of(body.get("content")):
            raise BadRequest("content is empty: it must hold at least one part with text.")
        return
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents or not all(isinstance(item, dict) for item in contents):
        raise BadRequest("contents is not specified")
    if not any(text_of(item) for item in contents):
        raise BadRequest("contents must hold at least one part with text.")
    limit = member(member(body, "generationConfig"), "maxOutputTokens")
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        raise BadRequest("max_output_tokens must be positive.")


def prompt_of(body: Json, digest: bytes) -> Prompt:
    config = member(body, "generationConfig")
    schema = member(config, "responseJsonSchema")
    if schema is None and member(config, "responseSchema") is not None:
        schema = _as_json_schema(member(config, "responseSchema"))
    if schema is not None and member(config, "responseMimeType") != "application/json":
        raise BadRequest("a response schema needs the response MIME type application/json.")
    users = [text_of(item) for item in body["contents"] if item.get("role", "user") == "user"]
    is_json = member(config, "responseMimeType") == "application/json" and schema is None
    return Prompt(digest, "\n".join(users), schema, is_json)


def input_tokens(method: str, body: Any) -> int:
    """Of a well-formed or ill-formed body; quota is counted before the body is checked."""
    if not isinstance(body, Mapping):
        return 0
    if method == EMBED:
        return tokens_of(text_of(body.get("content")))
    contents = body.get("contents")
    texts = [text_of(item) for item in contents] if isinstance(contents, list) else []
    return tokens_of(text_of(member(body, "systemInstruction")) + "".join(texts))


def text_of(content: Any) -> str:
    parts = content.get("parts") if isinstance(content, Mapping) else None
    if isinstance(parts, Mapping):
        parts = [parts]
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    return "".join(text for text in texts if isinstance(text, str))


def _as_json_schema(schema: Any) -> Any:
    """An OpenAPI schema, whose types are upper case."""
    if isinstance(schema, Mapping):
        return {key: _as_json_schema(value) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_as_json_schema(item) for item in schema]
    return schema.lower() if isinstance(schema, str) and schema in _TYPES else schema
