"""Request bodies by dialect: Converse, and the own bodies of Claude, Nova, Titan and Cohere embeddings.

A body is what stands before the user's text, the text as a JSON string, and what stands after it. Sources: user guide,
"Format your inference data"; botocore bedrock-runtime (ConverseRequest); the families' own request references.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tallybatch.adapters.providers.common.texts import one_line
from tallybatch.domain.bedrock_models import EMBEDDINGS, Family, family_of
from tallybatch.domain.errors import BadInput, Problem

CONVERSE = "Converse"
INVOKE = "InvokeModel"
ENDPOINTS = (CONVERSE, INVOKE)
ANTHROPIC_VERSION = "bedrock-2023-05-31"
"""The only value there is (Anthropic on Bedrock, Messages API)."""

_CONVERSE_NAMES = {
    "max_output_tokens": "maxTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop": "stopSequences",
}
_ANTHROPIC_NAMES = {"max_output_tokens": "max_tokens", "stop": "stop_sequences"}
_COHERE_NAMES = {"dimensions": "output_dimension"}
_OWNED = frozenset({"messages", "system", "modelId", "inputText", "texts", "images", "toolConfig", "stream"})
_USER_END = b"}]}]}"

_encode = msgspec.json.Encoder().encode


class Dialect(NamedTuple):
    """`end` follows the user's text."""

    endpoint: str
    family: Family
    settings: Mapping[str, Any]
    end: bytes

    @property
    def embeds(self) -> bool:
        return self.family in EMBEDDINGS

    def begin(self, system: str) -> bytes:
        """The bytes of `modelInput` before the user's text. Raises `ValueError` for a lone surrogate."""
        try:
            shown = one_line(_encode(system))
        except UnicodeEncodeError:
            raise ValueError("the system prompt holds a lone surrogate, no legal Unicode") from None
        head = _encode(self.settings)[:-1] + (b"," if self.settings else b"")
        if self.embeds:
            if system:
                raise BadInput(
                    "an embedding takes no system prompt", where="prompt.system", do="put it into prompt.user"
                )
            return head + (b'"inputText":' if self.family is Family.TITAN_EMBED else b'"texts":[')
        if self.endpoint == INVOKE and self.family is Family.ANTHROPIC:
            first = b'"system":' + shown + b"," if system else b""
            return head + first + b'"messages":[{"role":"user","content":[{"type":"text","text":'
        first = b'"system":[{"text":' + shown + b"}]," if system else b""
        return head + first + b'"messages":[{"role":"user","content":[{"text":'


def dialect_of(model: str, endpoint: str, generation: Mapping[str, Any]) -> Dialect:
    """Raises `BadInput` for a model, endpoint or setting that has no body."""
    family = family_of(model)
    if endpoint not in ENDPOINTS or (endpoint == CONVERSE and family in EMBEDDINGS):
        reason = f"must be one of {', '.join(ENDPOINTS)}, and InvokeModel for embeddings"
        raise BadInput("this endpoint is not supported", [Problem(reason, key="endpoint")])
    if problems := [
        Problem("is not a generation setting", key=f"generation.{key}") for key in generation if key in _OWNED
    ]:
        raise BadInput("the generation settings cannot be sent to Bedrock", problems)
    if endpoint == CONVERSE:
        return Dialect(endpoint, family, _converse(generation, "additionalModelRequestFields"), _USER_END)
    if family is Family.ANTHROPIC:
        settings = {"anthropic_version": ANTHROPIC_VERSION, **_renamed(generation, _ANTHROPIC_NAMES)}
        return Dialect(endpoint, family, settings, _USER_END)
    if family is Family.NOVA:
        return Dialect(endpoint, family, {"schemaVersion": "messages-v1", **_converse(generation, "")}, _USER_END)
    if family is Family.TITAN_EMBED:
        asked: dict[str, Any] = {"embeddingTypes": ["float"]} if "-v2" in model else {}
        return Dialect(endpoint, family, {**asked, **generation}, b"}")
    if family is Family.COHERE_EMBED:
        asked = {"input_type": "search_document", "embedding_types": ["float"]}
        return Dialect(endpoint, family, {**asked, **_renamed(generation, _COHERE_NAMES)}, b"]}")
    return Dialect(endpoint, family, {}, b"")


def schema_instruction(schema: Mapping[str, Any]) -> str:
    """How the output schema is asked for, on every model alike.

    Bedrock's own structured output (`outputConfig`) is refused by models that lack it, Nova among them, on each record
    and only hours later. Words are understood by all; our own validation of the answer is the judge either way.
    """
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return f"Answer with one JSON object and nothing else, no code fence. It must satisfy this JSON Schema:\n{text}"


def body_problem(body: Mapping[str, Any], endpoint: str, family: Family) -> str:
    """Why the `modelInput` of a native line would come back as an error, hours later; "" if nothing is seen."""
    if "modelId" in body:
        return "modelInput.modelId must not be there: the model is named by the job"
    if endpoint == CONVERSE and "toolConfig" in body:
        return "modelInput.toolConfig is refused by batches of type Converse; write InvokeModel for tools"
    needed: tuple[str, ...] = ("messages",) if endpoint == CONVERSE else _NEEDED[family]
    missing = next((name for name in needed if not body.get(name)), "")
    return f"modelInput.{missing} is missing or empty" if missing else ""


_NEEDED: Mapping[Family, tuple[str, ...]] = {
    Family.ANTHROPIC: ("anthropic_version", "max_tokens", "messages"),
    Family.NOVA: ("messages",),
    Family.TITAN_EMBED: ("inputText",),
    Family.COHERE_EMBED: ("input_type",),
    Family.OTHER: (),
}


def _converse(generation: Mapping[str, Any], rest: str) -> dict[str, Any]:
    """`inferenceConfig`, and every other parameter as written: inside `rest`, or beside it if that is ""."""
    inference = {_CONVERSE_NAMES[key]: value for key, value in generation.items() if key in _CONVERSE_NAMES}
    others = {key: value for key, value in generation.items() if key not in _CONVERSE_NAMES}
    if others and rest:
        others = {rest: others}
    return {**({"inferenceConfig": inference} if inference else {}), **others}


def _renamed(generation: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in generation.items()}
