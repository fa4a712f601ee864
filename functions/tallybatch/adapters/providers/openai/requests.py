"""Lines of an OpenAI batch input file: built from rendered prompts, or taken over from native requests.

Source of the line's shape: the vendor's Batch guide (`custom_id`, `method`, `url`, `body`; one model per file).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tallybatch.adapters.providers.common.texts import one_line, splits_lines
from tallybatch.adapters.providers.openai import results
from tallybatch.adapters.providers.openai.schemas import schema_label, strict_gap
from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.outcomes import RecordResult

RESPONSES = "/v1/responses"
CHAT = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
ENDPOINTS = (RESPONSES, CHAT, EMBEDDINGS)

MAX_CUSTOM_ID_CHARS = 512
"""Our own bound for an id that becomes a business key; OpenAI documents none, and ours goes on the wire."""
MAX_EMBEDDING_INPUTS = 2_048
"""Inputs of one embedding request (SDK, embedding_create_params.py)."""

_OWNED = frozenset(
    {"model", "input", "messages", "instructions", "prompt", "stream", "stream_options", "background"}
    | {"previous_response_id", "conversation"}
)
_EMBEDDING_SETTINGS = frozenset({"dimensions", "encoding_format", "user"})
"""All there are (SDK, embedding_create_params.py)."""
_INPUT_FIELDS: Mapping[str, tuple[str, ...]] = {
    RESPONSES: ("input", "prompt"),
    CHAT: ("messages",),
    EMBEDDINGS: ("input",),
}
_NATIVE_NAMES: Mapping[str, Mapping[str, str]] = {
    RESPONSES: {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"},
    CHAT: {"max_output_tokens": "max_completion_tokens"},
    EMBEDDINGS: {},
}
_encode = msgspec.json.Encoder().encode
_SAMPLE_ID = "0" * 32


class OpenAIFormat:
    """`ports.ProviderFormat` for one model, endpoint and generation setting. Pure; loads no SDK.

    `generation` holds body parameters. The token cap may be called `max_output_tokens` on both text endpoints, and
    `reasoning_effort` and `verbosity` work on both; everything else goes into the body under its own name. `schema` is
    the JSON Schema of the answer; it is sent in strict mode if it fits (`strict_gap` says why not).
    Raises `BadInput` for settings that cannot work.
    """

    name = "openai"

    def __init__(
        self,
        model: str,
        endpoint: str = RESPONSES,
        generation: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        schema_name: str = "output",
    ) -> None:
        self.model = model
        self.endpoint = endpoint
        settings = body_settings(endpoint, generation or {})
        self.strict_gap = strict_gap(schema, model=model) if schema is not None else ""
        if schema is not None:
            _put_schema(settings, endpoint, schema, schema_label(schema_name), strict=not self.strict_gap)
        self._head = b'{"custom_id":'
        self._route = b',"method":"POST","url":' + _encode(endpoint) + b',"body":'
        self._body = self._route + _encode({"model": model, **settings})[:-1]
        self._tail = b"}]}}" if endpoint == CHAT else b"}}"
        self._prefix = ("", self._body_prefix(""))

    def request_line(self, record_id: str, *, system: str, user: str) -> bytes:
        """One line, without the newline. Raises `ValueError` for text that is not Unicode (a lone surrogate)."""
        prefix = self._prefix
        if prefix[0] != system:
            prefix = self._prefix = (system, self._body_prefix(system))
        try:
            line = b"".join((self._head, _encode(record_id), prefix[1], _encode(user), self._tail))
        except UnicodeEncodeError:
            raise ValueError(f"record {record_id!a}: its prompt holds a lone surrogate, no legal Unicode") from None
        return one_line(line) if splits_lines(user) else line

    def request_bytes(self, *, system: str, user: str) -> int:
        """Size of `request_line` for any record_id of 32 characters; builds no line where it need not."""
        if splits_lines(user):
            return len(self.request_line(_SAMPLE_ID, system=system, user=user))
        prefix = self._prefix
        if prefix[0] != system:
            prefix = self._prefix = (system, self._body_prefix(system))
        return len(self._head) + len(_SAMPLE_ID) + 2 + len(prefix[1]) + len(_encode(user)) + len(self._tail)

    def native_line(self, record_id: str, request: Mapping[str, Any]) -> bytes:
        """One line for a native request: its `body` as it is (a `msgspec.Raw` even byte for byte), our id instead of
        its own. Check it with `native_problem` before."""
        return one_line(
            b"".join((self._head, _encode(record_id), self._route, _encode(request["body"]), b"}")),
        )

    def native_problem(self, line: Mapping[str, Any]) -> str:
        return native_problem(line, model=self.model, endpoint=self.endpoint)

    def parse(self, line: bytes) -> RecordResult:
        """One line of an output or error file; see `results.parse`."""
        return results.parse(line)

    def _body_prefix(self, system: str) -> bytes:
        """The bytes between the id and the user's text."""
        try:
            shown = one_line(_encode(system))
        except UnicodeEncodeError:
            raise ValueError("the system prompt holds a lone surrogate, no legal Unicode") from None
        if self.endpoint == CHAT:
            first = b'{"role":"system","content":' + shown + b"}," if system else b""
            return self._body + b',"messages":[' + first + b'{"role":"user","content":'
        if not system:
            return self._body + b',"input":'
        if self.endpoint == EMBEDDINGS:
            raise BadInput("an embedding takes no system prompt", where="prompt.system", do="put it into prompt.user")
        return self._body + b',"instructions":' + shown + b',"input":'


def native_problem(line: Mapping[str, Any], *, model: str, endpoint: str) -> str:
    """Why a line of a native batch file cannot be sent, or "". Never quotes the request's content.

    What is wrong here would come back only after hours, for the whole file (`invalid_json_line`, `mismatched_model`,
    `invalid_url`, `streaming_unsupported`) or as an HTTP 400 on the record.
    """
    custom_id = line.get("custom_id")
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MAX_CUSTOM_ID_CHARS:
        return f"custom_id must be a string of 1 to {MAX_CUSTOM_ID_CHARS} characters"
    if line.get("method") != "POST":
        return "method must be POST"
    if line.get("url") != endpoint:
        return f"url must be the spec's endpoint, {endpoint}"
    body = line.get("body")
    if not isinstance(body, Mapping):
        return "body must be an object"
    if body.get("model") != model:
        return f"body.model must be the spec's model, {model}: a batch file holds one model"
    return _body_problem(body, endpoint)


def _body_problem(body: Mapping[str, Any], endpoint: str) -> str:
    if body.get("stream"):
        return "body.stream must not be true: a batch cannot stream"
    if body.get("background"):
        return "body.background must not be true: a batch waits for the answer"
    if body.get("n") not in (None, 1):
        return "body.n must be 1: one record has one answer"
    fields = _INPUT_FIELDS[endpoint]
    if not any(body.get(field) for field in fields):
        return f"body.{fields[0]} is missing or empty"
    if endpoint == CHAT and not isinstance(body["messages"], list):
        return "body.messages must be an array"
    inputs = body.get("input")
    if endpoint == EMBEDDINGS and isinstance(inputs, list) and len(inputs) > MAX_EMBEDDING_INPUTS:
        return f"body.input holds more than {MAX_EMBEDDING_INPUTS} inputs"
    return ""


def body_settings(endpoint: str, generation: Mapping[str, Any]) -> dict[str, Any]:
    """`generation` as parameters of the endpoint's body. Raises `BadInput`."""
    if endpoint not in ENDPOINTS:
        raise BadInput(
            "this endpoint is not supported", [Problem(f"must be one of {', '.join(ENDPOINTS)}", key="endpoint")]
        )
    problems: list[Problem] = []
    settings: dict[str, Any] = {}
    for key, value in generation.items():
        native = _NATIVE_NAMES[endpoint].get(key, key)
        if endpoint == EMBEDDINGS and key not in _EMBEDDING_SETTINGS:
            problems.append(Problem("is not a setting of embeddings", key=f"generation.{key}"))
        elif key in _OWNED or (key == "n" and value != 1):
            problems.append(Problem("is not a generation setting of a batch", key=f"generation.{key}"))
        elif native in settings:
            problems.append(Problem(f"is the same setting as another one: {native}", key=f"generation.{key}"))
        elif endpoint == RESPONSES and key in ("reasoning_effort", "verbosity"):
            _nest(settings, "reasoning" if key == "reasoning_effort" else "text", key.removeprefix("reasoning_"), value)
        elif isinstance(value, Mapping) and isinstance(settings.get(native), dict):
            settings[native] |= value
        else:
            settings[native] = dict(value) if isinstance(value, Mapping) else value
    if problems:
        raise BadInput("the generation settings cannot be sent to OpenAI", problems)
    return settings


def _nest(settings: dict[str, Any], group: str, key: str, value: Any) -> None:
    settings[group] = {**settings.get(group, {}), key: value}


def _put_schema(settings: dict[str, Any], endpoint: str, schema: Mapping[str, Any], name: str, *, strict: bool) -> None:
    if endpoint == EMBEDDINGS:
        raise BadInput("an embedding has no output schema", [Problem("leave it out", key="output.schema")])
    described = {"name": name, "strict": strict, "schema": schema}
    taken = "response_format" in settings if endpoint == CHAT else "format" in settings.get("text", {})
    if taken:
        key = "generation.response_format" if endpoint == CHAT else "generation.text.format"
        raise BadInput("the answer's format is set twice", [Problem("output.schema sets it already", key=key)])
    if endpoint == CHAT:
        settings["response_format"] = {"type": "json_schema", "json_schema": described}
    else:
        _nest(settings, "text", "format", {"type": "json_schema", **described})
