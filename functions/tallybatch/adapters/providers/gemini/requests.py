"""Lines of a Gemini batch input file: built from rendered prompts, or taken over from native requests.

Source of the line's shape: the vendor's Batch guide (`key`, `request`). `request` is the raw REST body: what an SDK
writes flat belongs under `generationConfig` there, and a `config` beside it is ignored without a word
(googleapis/python-genai#1608).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tallybatch.adapters.providers.common.texts import one_line, splits_lines
from tallybatch.adapters.providers.gemini import results
from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.outcomes import RecordResult

GENERATE = "generateContent"
EMBED = "embedContent"
ENDPOINTS = (GENERATE, EMBED)

MAX_KEY_CHARS = 512
"""Our own bound for an id that becomes a business key; Gemini documents none, and ours goes on the wire."""

_CONFIG_NAMES: Mapping[str, str] = {
    "max_output_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "stop": "stopSequences",
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
}
"""Our names of sampling parameters, and those of REST's GenerationConfig."""
_REQUEST_NAMES: Mapping[str, str] = {"safety_settings": "safetySettings", "safetySettings": "safetySettings"}
"""Settings that stand beside `generationConfig`, not in it."""
_THINKING: Mapping[str, Mapping[str, Any]] = {
    "none": {"thinkingBudget": 0},
    **{level: {"thinkingLevel": level.upper()} for level in ("minimal", "low", "medium", "high", "xhigh")},
}
"""Levels of SDK types.ThinkingLevel; a budget of 0 switches thinking off (SDK types.ThinkingConfig)."""
_EMBEDDING_NAMES: Mapping[str, str] = {
    "dimensions": "output_dimensionality",
    "output_dimensionality": "output_dimensionality",
    "task_type": "task_type",
    "title": "title",
}
_OWNED = frozenset(
    {"model", "contents", "content", "systemInstruction", "system_instruction", "generationConfig", "candidateCount"}
    | {"candidate_count", "responseSchema", "responseJsonSchema", "responseMimeType", "thinkingConfig", "config"}
)
_FLAT = frozenset({*_CONFIG_NAMES, *_CONFIG_NAMES.values(), "config", "thinking_config", "thinkingConfig"}) | frozenset(
    {"response_schema", "responseSchema", "response_mime_type", "responseMimeType", "responseJsonSchema"}
)
"""What REST ignores or refuses outside of `generationConfig`."""

_encode = msgspec.json.Encoder().encode
_SAMPLE_ID = "0" * 32
_HEAD = b'{"key":'
_EMBED_OPENING = b'"content":{"parts":[{"text":'
_GENERATE_OPENING = b'"contents":[{"role":"user","parts":[{"text":'


class GeminiFormat:
    """`ports.ProviderFormat` for one model, endpoint and generation setting. Pure; loads no SDK.

    `generation` holds the spec's parameters under our names; a name that is not ours goes into `generationConfig` as
    written. `schema` is the JSON Schema of the answer: it is sent whole as `responseJsonSchema`, of which Gemini heeds
    the keywords it knows and passes over the rest, so our own validation remains the judge.
    Raises `BadInput` for settings that cannot work.
    """

    name = "gemini"

    def __init__(
        self,
        model: str,
        endpoint: str = GENERATE,
        generation: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model.removeprefix("models/")
        self.endpoint = endpoint
        self._settings = request_settings(endpoint, generation or {}, schema)
        self._tail = b"}]}}}" if endpoint == EMBED else b"}]}]}}"
        self._prefix = ("", self._request_prefix(""))

    def request_line(self, record_id: str, *, system: str, user: str) -> bytes:
        """One line, without the newline. Raises `ValueError` for text that is not Unicode (a lone surrogate)."""
        try:
            line = b"".join((_HEAD, _encode(record_id), self._prefixed(system), _encode(user), self._tail))
        except UnicodeEncodeError:
            raise ValueError(f"record {record_id!a}: its prompt holds a lone surrogate, no legal Unicode") from None
        return one_line(line) if splits_lines(user) else line

    def request_bytes(self, *, system: str, user: str) -> int:
        """Size of `request_line` for any record_id of 32 characters; builds no line where it need not."""
        if splits_lines(user):
            return len(self.request_line(_SAMPLE_ID, system=system, user=user))
        return len(_HEAD) + len(_SAMPLE_ID) + 2 + len(self._prefixed(system)) + len(_encode(user)) + len(self._tail)

    def native_line(self, record_id: str, request: Mapping[str, Any]) -> bytes:
        """One line for a native request: its `request` as it is (a `msgspec.Raw` even byte for byte), our id instead
        of its own. Check it with `native_problem` before."""
        return one_line(b"".join((_HEAD, _encode(record_id), b',"request":', _encode(request["request"]), b"}")))

    def native_problem(self, line: Mapping[str, Any]) -> str:
        return native_problem(line, model=self.model, endpoint=self.endpoint)

    def parse(self, line: bytes) -> RecordResult:
        """One line of a result file; see `results.parse`."""
        return results.parse(line)

    def _prefixed(self, system: str) -> bytes:
        if self._prefix[0] != system:
            self._prefix = (system, self._request_prefix(system))
        return self._prefix[1]

    def _request_prefix(self, system: str) -> bytes:
        """The bytes between the id and the user's text."""
        settings = self._settings
        if system and self.endpoint == EMBED:
            raise BadInput("an embedding takes no system prompt", where="prompt.system", do="put it into prompt.user")
        if system:
            settings = {"systemInstruction": {"parts": [{"text": system}]}, **settings}
        try:
            shown = one_line(_encode(settings))[1:-1]
        except UnicodeEncodeError:
            raise ValueError("the system prompt holds a lone surrogate, no legal Unicode") from None
        opening = _EMBED_OPENING if self.endpoint == EMBED else _GENERATE_OPENING
        return b',"request":{' + shown + (b"," if shown else b"") + opening


def native_problem(line: Mapping[str, Any], *, model: str, endpoint: str) -> str:
    """Why a line of a native batch file cannot be sent, or "". Never quotes the request's content."""
    key = line.get("key")
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY_CHARS:
        return f"key must be a string of 1 to {MAX_KEY_CHARS} characters"
    beside = sorted(set(line) - {"key", "request"})
    if beside:
        return f"{beside[0]!r} beside request would be ignored; put it into request"
    request = line.get("request")
    if not isinstance(request, Mapping):
        return "request must be an object"
    named = request.get("model")
    if named is not None and str(named).removeprefix("models/") != model:
        return f"request.model must be the spec's model, {model}: a batch has one model"
    if endpoint == EMBED:
        return "" if _has_parts(request.get("content")) else "request.content must be an object with parts"
    return _generate_problem(request)


def _generate_problem(request: Mapping[str, Any]) -> str:
    contents = request.get("contents")
    if not isinstance(contents, list) or not contents or not all(map(_has_parts, contents)):
        return "request.contents must be a list of at least one object with parts"
    flat = sorted(_FLAT & set(request))
    if flat:
        return f"request.{flat[0]} belongs under request.generationConfig"
    config = request.get("generationConfig") or request.get("generation_config") or {}
    if not isinstance(config, Mapping):
        return "request.generationConfig must be an object"
    if (config.get("candidateCount") or config.get("candidate_count") or 1) != 1:
        return "request.generationConfig.candidateCount must be 1: one record has one answer"
    return ""


def _has_parts(content: Any) -> bool:
    return isinstance(content, Mapping) and bool(content.get("parts"))


def request_settings(endpoint: str, generation: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parts of a request that all records share, but the prompt. Raises `BadInput`."""
    if endpoint not in ENDPOINTS:
        raise BadInput(
            "this endpoint is not supported", [Problem(f"must be one of {', '.join(ENDPOINTS)}", key="endpoint")]
        )
    if endpoint == EMBED:
        return _embedding_settings(generation, schema)
    problems: list[Problem] = []
    config: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    for key, value in generation.items():
        native = _CONFIG_NAMES.get(key, key)
        if key in _OWNED:
            problems.append(Problem("is not a generation setting of a batch", key=f"generation.{key}"))
        elif key in _REQUEST_NAMES:
            beside[_REQUEST_NAMES[key]] = value
        elif key in ("reasoning_effort", "thinking_budget"):
            problems += _put_thinking(config, key, value)
        elif native in config:
            problems.append(Problem(f"is the same setting as another one: {native}", key=f"generation.{key}"))
        else:
            config[native] = value
    if problems:
        raise BadInput("the generation settings cannot be sent to Gemini", problems)
    if schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
    return {**beside, **({"generationConfig": config} if config else {})}


def _put_thinking(config: dict[str, Any], key: str, value: Any) -> list[Problem]:
    if "thinkingConfig" in config:
        return [Problem("either reasoning_effort or thinking_budget, not both", key=f"generation.{key}")]
    if key == "reasoning_effort" and value not in _THINKING:
        return [Problem(f"Gemini's levels are {', '.join(_THINKING)}", key=f"generation.{key}")]
    config["thinkingConfig"] = dict(_THINKING[value]) if key == "reasoning_effort" else {"thinkingBudget": value}
    return []


def _embedding_settings(generation: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if schema is not None:
        raise BadInput("an embedding has no output schema", [Problem("leave it out", key="output.schema")])
    problems = [
        Problem("is not a setting of embeddings", key=f"generation.{key}")
        for key in generation
        if key not in _EMBEDDING_NAMES
    ]
    if problems:
        raise BadInput("the generation settings cannot be sent to Gemini", problems)
    return {_EMBEDDING_NAMES[key]: value for key, value in generation.items()}
