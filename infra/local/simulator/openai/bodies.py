"""Response bodies of the three endpoints, for a request and the fault that hits it."""

from __future__ import annotations

import base64
import struct
from typing import Any

import orjson

from infra.local.simulator.answers import embedding, tokens_of
from infra.local.simulator.bill import bent
from infra.local.simulator.execution import Json, Reply
from infra.local.simulator.journal import Tokens
from infra.local.simulator.openai.model import CHAT, EMBEDDINGS, ApiError, error_body
from infra.local.simulator.openai.requests import (
    check,
    embedding_inputs,
    embedding_tokens,
    input_tokens,
    max_output_tokens,
    prompt_of,
)
from infra.local.simulator.texts import Text, text_for

_HTTP_FAULTS: dict[str, tuple[int, Json]] = {
    "error_400": (
        400,
        error_body(
            "The request is longer than the context of this model.",
            kind="invalid_request_error",
            param="messages",
            code="context_length_exceeded",
        ),
    ),
    "error_429": (
        429,
        error_body("Too many requests for this model.", kind="rate_limit_error", code="rate_limit_exceeded"),
    ),
    "error_500": (500, error_body("The server failed on this request.", kind="server_error", code="server_error")),
    "error_503": (503, error_body("The model is overloaded.", kind="server_error", code="service_unavailable")),
}
_DEFAULT_DIMENSIONS = {"text-embedding-3-large": 3_072}


def reply_to(
    endpoint: str, body: Json, *, digest: bytes, model: str, moment: float, fault: str = "", variant: int = 0
) -> Reply:
    """Deterministic in `body`, `fault` and `variant`; `model` is the resolved name, `moment` becomes `created`."""
    if fault in _HTTP_FAULTS:
        status, refusal = _HTTP_FAULTS[fault]
        return Reply(status, refusal)
    try:
        check(endpoint, body)
        if endpoint == EMBEDDINGS:
            return _embeddings(body, model)
        prompt = prompt_of(endpoint, body, digest)
        text = text_for(prompt, fault, variant, max_output_tokens(body))
    except ApiError as error:
        return Reply(error.status, error.body)
    except (LookupError, RecursionError):
        message = "The schema has a reference that leads nowhere, or round in a circle."
        return Reply(400, error_body(message, kind="invalid_request_error", code="invalid_json_schema"))
    if fault == "error_in_body":
        return Reply(200, error_body("The model failed on this request.", kind="server_error", code="server_error"))
    tokens = Tokens(input=input_tokens(endpoint, body), output=tokens_of(text.refusal or text.content))
    tokens = bent(tokens, fault)
    shape = _chat if endpoint == CHAT else _response
    answered_by = f"{model}-preview" if fault == "wrong_model" else model
    key = f"{digest.hex()}{variant or ''}"
    return Reply(200, shape(key, text, tokens, model=answered_by, moment=moment, request=body), tokens)


def _chat(key: str, text: Text, tokens: Tokens, *, model: str, moment: float, request: Json) -> Json:
    return {
        "id": f"chatcmpl-{key}",
        "object": "chat.completion",
        "created": int(moment),
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None if text.refusal else text.content,
                    "refusal": text.refusal or None,
                    "annotations": [],
                },
                "logprobs": None,
                "finish_reason": text.finish,
            }
        ],
        "usage": {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
            "prompt_tokens_details": {"cached_tokens": tokens.cached_input, "cache_write_tokens": tokens.cache_write},
            "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
        },
        "service_tier": request.get("service_tier") or "default",
        "system_fingerprint": "fp_simulator",
    }


def _response(key: str, text: Text, tokens: Tokens, *, model: str, moment: float, request: Json) -> Json:
    part: Json = {"type": "output_text", "text": text.content, "annotations": [], "logprobs": []}
    if text.refusal:
        part = {"type": "refusal", "refusal": text.refusal}
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(text.finish)
    status = "incomplete" if reason else "completed"
    message = {"id": f"msg_{key}", "type": "message", "role": "assistant", "status": status, "content": [part]}
    return {
        "id": f"resp_{key}",
        "object": "response",
        "created_at": int(moment),
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "model": model,
        "output": [message],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": request.get("reasoning") or {"effort": None, "summary": None},
        "store": request.get("store", True),
        "temperature": request.get("temperature", 1.0),
        "text": request.get("text") or {"format": {"type": "text"}},
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools", []),
        "top_p": request.get("top_p", 1.0),
        "truncation": request.get("truncation", "disabled"),
        "usage": {
            "input_tokens": tokens.input,
            "input_tokens_details": {"cached_tokens": tokens.cached_input, "cache_write_tokens": tokens.cache_write},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": tokens.input + tokens.output,
        },
        "metadata": request.get("metadata") or {},
    }


def _embeddings(body: Json, model: str) -> Reply:
    dimensions = body.get("dimensions")
    if dimensions is None:
        dimensions = _DEFAULT_DIMENSIONS.get(model, 1_536)
    if not isinstance(dimensions, int) or not 1 <= dimensions <= 8_192:
        raise ApiError(400, "'dimensions' must be a whole number from 1 to 8192.", param="dimensions")
    as_base64 = body.get("encoding_format") == "base64"
    data: list[Json] = []
    used = 0
    for index, item in enumerate(embedding_inputs(body)):
        used += embedding_tokens(item)
        vector: Any = embedding(item if isinstance(item, str) else orjson.dumps(item).decode(), dimensions)
        if as_base64:
            vector = base64.b64encode(struct.pack(f"<{dimensions}f", *vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    usage = {"prompt_tokens": used, "total_tokens": used}
    return Reply(200, {"object": "list", "data": data, "model": model, "usage": usage}, Tokens(input=used))
