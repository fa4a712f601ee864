"""Responses of the models, for a request and the fault that hits it, and the lines that carry them."""

from __future__ import annotations

from typing import Any

import orjson

from infra.local.simulator.answers import Prompt, embedding, tokens_of
from infra.local.simulator.bill import bent
from infra.local.simulator.dice import Dice
from infra.local.simulator.execution import Json, Reply, digest_of
from infra.local.simulator.gemini.model import EMBED, PROVIDER, without_zeros
from infra.local.simulator.gemini.requests import BadRequest, check, input_tokens, member, prompt_of, text_of
from infra.local.simulator.journal import Tokens
from infra.local.simulator.texts import text_for

_ROW_ERRORS: dict[str, tuple[int, str]] = {
    "error_400": (3, "Request contains an invalid argument."),
    "error_429": (8, "Resource has been exhausted (e.g. check quota)."),
    "error_500": (13, "An internal error has occurred."),
    "error_503": (14, "The model is overloaded. Please try again later."),
}
_DEFAULT_DIMENSIONS = 3_072
_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}


class GeminiLines:
    """See `execution.Dialect`. The keys of a line, and of its response, come in any order."""

    provider = PROVIDER
    id_field = "key"
    body_field = "request"
    empty_counts_as_done: frozenset[str] = frozenset()

    def __init__(self, method: str, model: str) -> None:
        self._method = method
        self.model = model

    def reply(self, body: Json, *, digest: bytes, moment: float, fault: str, variant: int = 0) -> Reply:
        """Deterministic in `body`, `fault` and `variant`; Gemini's answers carry no time."""
        del moment
        if fault in _ROW_ERRORS:
            return _row_error(*_ROW_ERRORS[fault])
        try:
            check(self._method, body)
            if self._method == EMBED:
                return _embedding(body)
            return self._generated(body, prompt_of(body, digest), fault, variant)
        except BadRequest as error:
            return _row_error(3, str(error))
        except (LookupError, RecursionError):
            return _row_error(3, "The schema has a reference that leads nowhere, or round in a circle.")

    def line(self, record_id: str, reply: Reply, *, salt: bytes = b"") -> Json:
        dice = Dice(digest_of(salt + record_id.encode("utf-8", "surrogatepass")))
        if reply.status != 200:
            return _shuffled({"key": record_id, "error": reply.body["error"]}, dice)
        return _shuffled({"key": record_id, "response": _shuffled(reply.body, dice)}, dice)

    def empty_line(self, record_id: str, fault: str) -> Json:
        """A bare status whose zero code is left out, or nothing but the key."""
        return {"key": record_id, "status": {"message": ""}} if fault == "status_zero" else {"key": record_id}

    def bend(self, line: Json, fault: str) -> None:
        """A response as text; `no_error_key` says nothing here, where good lines never have one."""
        if fault == "body_as_string":
            line["response"] = orjson.dumps(line["response"]).decode()

    def _generated(self, body: Json, prompt: Prompt, fault: str, variant: int) -> Reply:
        spent = input_tokens(self._method, body)
        meta = {"modelVersion": self.model, "responseId": f"{prompt.digest.hex()[:22]}{variant or ''}"}
        if fault == "wrong_model":
            meta["modelVersion"] = f"{self.model}-preview"
        if fault == "error_in_body":
            return Reply(200, {"error": {"code": 13, "message": "An internal error has occurred."}, **meta})
        if fault == "refusal":
            usage = Tokens(input=spent)
            return Reply(200, {"promptFeedback": {"blockReason": "SAFETY"}, **_usage(usage), **meta}, usage)
        limit = member(member(body, "generationConfig"), "maxOutputTokens")
        answer = text_for(prompt, fault, variant, limit if isinstance(limit, int) else None)
        text, finish = answer.content, _FINISH[answer.finish]
        thoughts = _thoughts(body, prompt)
        usage = Tokens(input=spent, output=tokens_of(text) + thoughts, reasoning=thoughts)
        usage = bent(usage, fault, writes_cache=False)
        candidate: Json = {"finishReason": finish, "index": 0}
        if finish != "SAFETY":
            candidate["content"] = {"role": "model", "parts": [{"text": text}]}
        return Reply(200, {"candidates": [candidate], **_usage(usage), **meta}, usage)


def _thoughts(body: Json, prompt: Prompt) -> int:
    """Tokens of thinking, unless its budget is 0; billed as output."""
    thinking = member(member(body, "generationConfig"), "thinkingConfig")
    return 0 if member(thinking, "thinkingBudget") == 0 else Dice(prompt.digest).between(8, 40)


def _usage(tokens: Tokens) -> Json:
    counts = {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": tokens.output - tokens.reasoning,
        "thoughtsTokenCount": tokens.reasoning,
        "cachedContentTokenCount": tokens.cached_input,
        "totalTokenCount": tokens.input + tokens.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens.input}],
    }
    return {"usageMetadata": without_zeros(counts)}


def _embedding(body: Json) -> Reply:
    dimensions: Any = member(body, "outputDimensionality")
    dimensions = _DEFAULT_DIMENSIONS if dimensions is None else dimensions
    if not isinstance(dimensions, int) or not 1 <= dimensions <= _DEFAULT_DIMENSIONS:
        raise BadRequest(f"output_dimensionality must be from 1 to {_DEFAULT_DIMENSIONS}.")
    text = text_of(body["content"])
    used = tokens_of(text)
    return Reply(
        200, {"tokenCount": str(used), "embedding": {"values": embedding(text, dimensions)}}, Tokens(input=used)
    )


def _row_error(code: int, message: str) -> Reply:
    return Reply(500 if code in (8, 13, 14) else 400, {"error": {"code": code, "message": message}})


def _shuffled(fields: Json, dice: Dice) -> Json:
    names = list(fields)
    dice.shuffle(names)
    return {name: fields[name] for name in names}
