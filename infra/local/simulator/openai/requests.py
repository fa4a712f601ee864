"""Reads request bodies of the three endpoints: what the user said, which schema is asked for, what input costs."""

from __future__ import annotations

from typing import Any

import orjson

from infra.local.simulator.answers import Prompt, tokens_of
from infra.local.simulator.execution import Json, canonical_bytes
from infra.local.simulator.openai.model import CHAT, EMBEDDINGS, RESPONSES, ApiError

MAX_EMBEDDING_INPUTS = 2_048
"""Per request [openai SDK embedding_create_params.py]."""


def canonical(body: Json) -> bytes:
    """See `execution.canonical_bytes`. Raises `ApiError` 400 if it is too deep."""
    try:
        return canonical_bytes(body)
    except orjson.JSONEncodeError:
        raise ApiError(400, "The body is nested too deeply.", code="invalid_json") from None


def check(endpoint: str, body: Json) -> None:
    """What the synchronous endpoint refuses with HTTP 400, and a batch with such a line in its error file."""
    name = {CHAT: "messages", RESPONSES: "input", EMBEDDINGS: "input"}[endpoint]
    value = body.get(name)
    if value is None:
        raise ApiError(400, f"{name!r} is required.", param=name, code="missing_required_parameter")
    if endpoint == CHAT and not (isinstance(value, list) and value and all(isinstance(item, dict) for item in value)):
        raise ApiError(400, "'messages' must be a list of at least one message.", param=name, code="invalid_type")
    if endpoint == RESPONSES and not isinstance(value, str | list):
        raise ApiError(400, "'input' must be a string or a list.", param=name, code="invalid_type")
    if endpoint == EMBEDDINGS:
        count = len(embedding_inputs(body))
        if not count or count > MAX_EMBEDDING_INPUTS or "" in (value if isinstance(value, list) else [value]):
            raise ApiError(400, f"'input' must hold 1 to {MAX_EMBEDDING_INPUTS} non-empty texts.", param=name)
    for limit in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        if limit in body and not (body[limit] is None or (isinstance(body[limit], int) and body[limit] > 0)):
            raise ApiError(400, f"{limit!r} must be a whole number above 0.", param=limit, code="invalid_value")


def prompt_of(endpoint: str, body: Json, digest: bytes) -> Prompt:
    asked = _dict(body.get("response_format") if endpoint == CHAT else _dict(body.get("text")).get("format"))
    schema = None
    if asked.get("type") == "json_schema":
        holder = asked.get("json_schema") if endpoint == CHAT else asked
        schema = _dict(holder).get("schema")
        if not isinstance(schema, dict):
            where = "response_format" if endpoint == CHAT else "text.format"
            raise ApiError(400, f"{where!r} asks for a schema but holds none.", param=where)
    texts = [text for role, text in _messages(endpoint, body) if role == "user"]
    return Prompt(digest, "\n".join(texts), schema, asked.get("type") == "json_object")


def input_tokens(endpoint: str, body: Json) -> int:
    """Of a well-formed or ill-formed body; quota is counted before the body is checked."""
    if endpoint == EMBEDDINGS:
        return sum(embedding_tokens(item) for item in embedding_inputs(body))
    return tokens_of("".join(text for _, text in _messages(endpoint, body)))


def embedding_inputs(body: Json) -> list[Any]:
    """Texts, or lists of token numbers; a single one is a list of one."""
    value = body.get("input")
    if isinstance(value, list) and not (value and all(isinstance(item, int) for item in value)):
        return value
    return [] if value is None else [value]


def embedding_tokens(item: Any) -> int:
    return len(item) if isinstance(item, list) else tokens_of(str(item))


def max_output_tokens(body: Json) -> int | None:
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        if isinstance(body.get(name), int):
            return int(body[name])
    return None


def _messages(endpoint: str, body: Json) -> list[tuple[str, str]]:
    value = body.get("messages") if endpoint == CHAT else body.get("input")
    found = [("system", body["instructions"])] if isinstance(body.get("instructions"), str) else []
    if isinstance(value, str):
        return [*found, ("user", value)]
    messages = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    return [*found, *((str(item.get("role", "user")), _content(item.get("content"))) for item in messages)]


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
