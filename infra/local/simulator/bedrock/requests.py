"""Reads `modelInput` of every family: what the user said, which schema is asked for in words, what input costs."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from infra.local.simulator.answers import Prompt, tokens_of
from infra.local.simulator.bedrock.model import Json, invalid
from tallybatch.domain.bedrock_models import Family

CONVERSE = "Converse"
_CONVERSE_MEMBERS = frozenset(
    {"messages", "system", "inferenceConfig", "toolConfig", "guardrailConfig", "additionalModelRequestFields"}
    | {"promptVariables", "additionalModelResponseFieldPaths", "requestMetadata", "performanceConfig"}
    | {"serviceTier", "outputConfig"}
)
"""[botocore bedrock-runtime, ConverseRequest]"""
_NATIVE_MEMBERS = {
    Family.TITAN_EMBED: frozenset({"inputText", "dimensions", "normalize", "embeddingTypes"}),
    Family.COHERE_EMBED: frozenset(
        {"texts", "images", "inputs", "input_type", "embedding_types", "truncate", "output_dimension", "max_tokens"}
    ),
}
_SCHEMA_WORDS = "JSON Schema"


class Said(NamedTuple):
    system: str
    user: str

    @property
    def tokens(self) -> int:
        return tokens_of(self.system + self.user)


def check(family: Family, invocation_type: str, body: Json) -> None:
    """Raises `ApiError` for what comes back as a record's error: creating a job does not look into `modelInput`."""
    if "modelId" in body:
        raise invalid("modelId: Extra inputs are not permitted")
    if invocation_type == CONVERSE:
        if extra := sorted(body.keys() - _CONVERSE_MEMBERS):
            raise invalid(f"{extra[0]}: Extra inputs are not permitted")
        if "toolConfig" in body:
            raise invalid("toolConfig is not supported for batch inference with Converse")
        _check_inference(body.get("inferenceConfig"))
    elif family is Family.OTHER:
        raise invalid("The simulator knows no request body of this model; use the type Converse.")
    elif family in _NATIVE_MEMBERS:
        if extra := sorted(body.keys() - _NATIVE_MEMBERS[family]):
            raise invalid(f"#: extraneous key [{extra[0]}] is not permitted")
        if not texts_of(family, body):
            raise invalid("#: required key [inputText] not found" if family is Family.TITAN_EMBED else "texts is empty")
        if family is Family.COHERE_EMBED and "input_type" not in body:
            raise invalid("input_type: Field required")
        return
    elif family is Family.ANTHROPIC:
        for name in ("anthropic_version", "max_tokens"):
            if name not in body:
                raise invalid(f"{name}: Field required")
    else:
        _check_inference(body.get("inferenceConfig"))
    messages = body.get("messages")
    if not (isinstance(messages, list) and messages and all(isinstance(item, dict) for item in messages)):
        raise invalid("messages: at least one message is required")


def _check_inference(config: Any) -> None:
    config = config if isinstance(config, dict) else {}
    limit, temperature = config.get("maxTokens"), config.get("temperature")
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        raise invalid("inferenceConfig.maxTokens must be at least 1")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature <= 1):
        raise invalid("inferenceConfig.temperature must be between 0 and 1")


def said(body: Json) -> Said:
    """Of a conversation in any family's body."""
    users = [_content(item.get("content")) for item in body.get("messages") or () if item.get("role", "user") == "user"]
    return Said(_content(body.get("system")), "\n".join(users))


def texts_of(family: Family, body: Json) -> list[str]:
    """What an embedding request embeds."""
    if family is Family.TITAN_EMBED:
        text = body.get("inputText")
        return [text] if isinstance(text, str) and text else []
    texts = body.get("texts")
    return [str(text) for text in texts] if isinstance(texts, list) and all(texts) else []


def prompt_of(body: Json, digest: bytes) -> Prompt:
    """A model does what it is told in words: the JSON object after the words "JSON Schema" in the system prompt."""
    system, user = said(body)
    return Prompt(digest, user, _schema_in(system))


def max_output_tokens(invocation_type: str, family: Family, body: Json) -> int | None:
    if invocation_type != CONVERSE and family is Family.ANTHROPIC:
        limit = body.get("max_tokens")
    else:
        config = body.get("inferenceConfig")
        limit = config.get("maxTokens") if isinstance(config, dict) else None
    return limit if isinstance(limit, int) else None


def _schema_in(system: str) -> Json | None:
    at = system.find("{", system.find(_SCHEMA_WORDS)) if _SCHEMA_WORDS in system else -1
    if at < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(system, at)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
