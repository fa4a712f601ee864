"""`modelOutput` of every family, or the `error` that stands in its place, for a request and the fault that hits it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from infra.local.simulator.answers import embedding, tokens_of
from infra.local.simulator.bedrock.model import ApiError, Json
from infra.local.simulator.bedrock.requests import CONVERSE, check, max_output_tokens, prompt_of, said, texts_of
from infra.local.simulator.bill import bent
from infra.local.simulator.journal import Tokens
from infra.local.simulator.texts import Text, text_for
from tallybatch.domain.bedrock_models import EMBEDDINGS, Family, family_of

_ERRORS: dict[str, tuple[Any, str]] = {
    "error_400": (400, "Input is too long for requested model."),
    "error_429": (429, "Too many requests, please wait before trying again."),
    "error_500": (500, "The system encountered an unexpected error during processing. Try your request again."),
    "error_503": (503, "Bedrock is unable to process your request."),
    "error_in_body": ("InternalServerException", "The model failed on this request."),
    "status_zero": (0, ""),
}
_DEFAULT_DIMENSIONS = {Family.TITAN_EMBED: 1_024, Family.COHERE_EMBED: 1_536}
_CONVERSE_STOPS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "content_filtered"}


@dataclass(frozen=True, slots=True)
class Reply:
    """`part` is the member of the line beside `recordId` and `modelInput`; `failed` if it is an error."""

    part: Json
    failed: bool = False
    tokens: Tokens = field(default_factory=Tokens)


def reply_to(
    model_id: str, invocation_type: str, body: Json, *, digest: bytes, key: str, fault: str = "", variant: int = 0
) -> Reply:
    """Deterministic in `body`, `fault` and `variant`; `key` becomes the id that Claude gives its message."""
    if fault in _ERRORS:
        code, message = _ERRORS[fault]
        return _error(code, message)
    family = family_of(model_id)
    try:
        check(family, invocation_type, body)
        if family in EMBEDDINGS:
            return _vectors(family, body, key)
        text = text_for(prompt_of(body, digest), fault, variant, max_output_tokens(invocation_type, family, body))
    except ApiError as error:
        return _error(error.status, error.message)
    except (LookupError, RecursionError):
        return _error(400, "The schema has a reference that leads nowhere, or round in a circle.")
    tokens = bent(Tokens(input=said(body).tokens, output=tokens_of(text.refusal or text.content)), fault)
    if invocation_type != CONVERSE and family is Family.ANTHROPIC:
        return Reply({"modelOutput": _claude(model_id, key, text, tokens, fault)}, tokens=tokens)
    return Reply({"modelOutput": _converse(text, tokens)}, tokens=tokens)


def _error(code: Any, message: str) -> Reply:
    return Reply({"error": {"errorCode": code, "errorMessage": message}}, failed=True)


def _converse(text: Text, tokens: Tokens) -> Json:
    stop = "guardrail_intervened" if text.refusal else _CONVERSE_STOPS[text.finish]
    content = [{"text": text.refusal or text.content}]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop,
        "usage": {
            "inputTokens": tokens.input - tokens.cached_input - tokens.cache_write,
            "outputTokens": tokens.output,
            "totalTokens": tokens.input + tokens.output,
            "cacheReadInputTokens": tokens.cached_input,
            "cacheWriteInputTokens": tokens.cache_write,
        },
        "metrics": {"latencyMs": 100 + tokens.output},
    }


def _claude(model_id: str, key: str, text: Text, tokens: Tokens, fault: str) -> Json:
    """Claude names itself without the prefixes and the suffix of Bedrock's id."""
    name = model_id.rpartition("anthropic.")[2].partition(":")[0].removesuffix("-v1")
    stop = "refusal" if text.refusal or text.finish == "content_filter" else _CONVERSE_STOPS[text.finish]
    return {
        "model": f"{name}-preview" if fault == "wrong_model" else name,
        "id": f"msg_bdrk_{key}",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": text.refusal or text.content}],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens.input - tokens.cached_input - tokens.cache_write,
            "cache_creation_input_tokens": tokens.cache_write,
            "cache_read_input_tokens": tokens.cached_input,
            "output_tokens": tokens.output,
        },
    }


def _vectors(family: Family, body: Json, key: str) -> Reply:
    """Titan counts its tokens; Cohere tells none, so none can be told as billed."""
    texts = texts_of(family, body)
    wanted = body.get("dimensions") or body.get("output_dimension") or _DEFAULT_DIMENSIONS[family]
    if not isinstance(wanted, int) or not 1 <= wanted <= 8_192:
        raise ApiError(400, "ValidationException", "dimensions: not a valid number of dimensions")
    vectors = [embedding(text, wanted) for text in texts]
    if family is Family.COHERE_EMBED:
        told: Any = {"float": vectors} if body.get("embedding_types") else vectors
        kind = "embeddings_by_type" if body.get("embedding_types") else "embeddings_floats"
        return Reply({"modelOutput": {"id": key, "response_type": kind, "embeddings": told, "texts": texts}})
    tokens = Tokens(input=tokens_of(texts[0]))
    output = {
        "embedding": vectors[0],
        "embeddingsByType": {"float": vectors[0]},
        "inputTextTokenCount": tokens.input,
    }
    return Reply({"modelOutput": output}, tokens=tokens)
