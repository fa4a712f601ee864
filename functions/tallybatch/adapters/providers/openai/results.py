"""Lines of OpenAI output and error files, read into one shape.

A record succeeded iff `error` is null, the HTTP status inside `response` is 2xx, the body has no `error`, and there is
an answer. An HTTP error hides inside `response` while `error` stays null (openai/openai-openapi#302), and a job's
"completed" says nothing about its records.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tallybatch.adapters.providers.common.texts import MAX_MESSAGE_CHARS, read_again
from tallybatch.adapters.providers.openai import vectors
from tallybatch.adapters.providers.openai.codes import classify
from tallybatch.domain.outcomes import SUCCEEDED, OutcomeClass, RecordResult, Usage

UNREADABLE = "unreadable_result"
NO_ANSWER = "no_answer"
NO_RESPONSE = "no_response"

_OURS = frozenset({UNREADABLE, NO_ANSWER, NO_RESPONSE, ""})
_OPEN_STATUSES = frozenset({"failed", "in_progress", "queued", "incomplete"})
"""Of a response (SDK, types/responses/response_status.py): without an answer, and with no more to tell."""
_NO_USAGE = Usage()
_RETRYABLE = OutcomeClass.RETRYABLE


class _InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = 0
    cache_write_tokens: int | None = 0


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = 0


class _Usage(msgspec.Struct, gc=False):
    """Chat and embeddings say prompt/completion, responses say input/output."""

    input_tokens: int | None = 0
    input_tokens_details: _InputDetails | None = None
    output_tokens: int | None = 0
    output_tokens_details: _OutputDetails | None = None
    prompt_tokens: int | None = 0
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens: int | None = 0
    completion_tokens_details: _OutputDetails | None = None


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Message(msgspec.Struct, gc=False):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()


class _Choice(msgspec.Struct, gc=False):
    message: _Message | None = None
    finish_reason: str | None = None
    index: int = 0


class _Item(msgspec.Struct, gc=False):
    type: str = ""
    content: str | list[_Part] | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Body(msgspec.Struct, gc=False):
    """In the order in which they come, in which the decoder looks for them."""

    data: list[vectors.Vector] | None = None
    status: str | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None
    model: str | None = None
    output: list[_Item] | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


class _Response(msgspec.Struct, gc=False):
    status_code: int | None = None
    request_id: str | None = None
    body: _Body | str | None = None


class _Line(msgspec.Struct, gc=False):
    custom_id: str
    response: _Response | None = None
    error: Any = None


class _BareLine(msgspec.Struct, gc=False):
    """What is left to read when a line is JSON but not the documented shape."""

    custom_id: str
    response: Any = None


_line = msgspec.json.Decoder(_Line).decode
_loose_line = msgspec.json.Decoder(_Line, strict=False).decode
_body = msgspec.json.Decoder(_Body, strict=False).decode
_encode = msgspec.json.Encoder().encode


def parse(line: bytes) -> RecordResult:
    """Read one line. Raises `ValueError`, without quoting the line, if it is no JSON or names no record."""
    try:
        row = _line(line)
    except (ValueError, RecursionError):
        again = _second_reading(line)
        if isinstance(again, RecordResult):
            return again
        row, line = again
    record_id = row.custom_id
    if not record_id:
        raise ValueError("the line's custom_id is empty")
    response = row.response
    if response is None:
        return _failed(record_id, row.error or {"code": NO_RESPONSE}, None, None, "")
    body = response.body
    text = line
    if isinstance(body, str):
        text, body = body.encode(errors="replace"), _body_of(body)
    status = response.status_code
    if row.error or status is None or not 200 <= status < 300 or (body is not None and body.error):
        error = row.error or (body.error if body is not None else response.body)
        return _failed(record_id, error, status, body, response.request_id or "")
    if body is None:
        return _failed(record_id, {"code": NO_ANSWER}, status, None, response.request_id or "")
    outcome, answer, code, message, finish = _read(body, text)
    unknown = outcome is _RETRYABLE and code not in _OURS and code not in _OPEN_STATUSES
    return RecordResult(
        record_id,
        outcome,
        answer,
        code,
        message,
        finish,
        body.model or "",
        response.request_id or "",
        _usage(body.usage) if body.usage is not None else _NO_USAGE,
        unknown,
    )


_Reading = tuple[OutcomeClass, str | None, str, str, str]
"""Outcome, answer, code, message, finish reason."""


def _read(body: _Body, line: bytes) -> _Reading:
    if body.choices:
        return _read_chat(body.choices)
    if body.output is not None:
        return _read_response(body, body.output, line)
    if body.data:
        return _read_vectors(body.data)
    return OutcomeClass.RETRYABLE, None, NO_ANSWER, "", body.status or ""


def _read_chat(choices: list[_Choice]) -> _Reading:
    choice = choices[0]
    finish = choice.finish_reason or ""
    message = choice.message
    if message is None:
        return OutcomeClass.RETRYABLE, None, NO_ANSWER, "", finish
    content = message.content
    refusal = message.refusal
    if isinstance(content, list):
        refusal = refusal or _joined(content, "refusal")
        content = "".join([part.text for part in content if part.text])
    if not content and len(message.tool_calls) > len(b"null"):
        content = bytes(message.tool_calls).decode()
    return _judge(content or None, refusal, finish, "length")


def _read_response(body: _Body, items: list[_Item], line: bytes) -> _Reading:
    if body.status == "completed" and (text := _only_text(items)):
        return SUCCEEDED, text, "", "", "completed"
    texts: list[str] = []
    refusal = ""
    for item in items:
        if item.type == "message":
            if isinstance(item.content, str):
                texts.append(item.content)
                continue
            for part in item.content or ():
                if part.type == "output_text":
                    texts.append(part.text or "")
                elif part.type == "refusal":
                    refusal = part.refusal or part.type
    answer = "".join(texts) or _tool_calls(items, line)
    status = body.status or ""
    if status == "cancelled":
        return OutcomeClass.CANCELLED, None, status, "", status
    reason = (body.incomplete_details.reason if body.incomplete_details else None) or ""
    if status in ("", "completed"):
        return _judge(answer, refusal, status, "max_output_tokens")
    if status == "incomplete" and reason in ("max_output_tokens", "content_filter"):
        return _judge(answer, refusal, reason, "max_output_tokens")
    return OutcomeClass.RETRYABLE, None, reason or status, "", reason or status


def _only_text(items: list[_Item]) -> str | None:
    """The text of a response that is one message of one part, alone or after its reasoning: most are."""
    if len(items) == 2 and items[0].type == "reasoning":
        items = items[1:]
    if len(items) != 1 or items[0].type != "message":
        return None
    content = items[0].content
    if not isinstance(content, list) or len(content) != 1:
        return None
    return content[0].text if content[0].type == "output_text" else None


def _judge(answer: str | None, refusal: str | None, finish: str, cut_short: str) -> _Reading:
    if refusal:
        return OutcomeClass.REFUSED, None, "refusal", refusal[:MAX_MESSAGE_CHARS], finish
    if finish == "content_filter":
        return OutcomeClass.REFUSED, None, finish, "", finish
    if finish == cut_short:
        return OutcomeClass.TRUNCATED, answer, finish, "", finish
    if answer is None:
        return OutcomeClass.RETRYABLE, None, NO_ANSWER, "", finish
    return SUCCEEDED, answer, "", "", finish


def _read_vectors(data: list[vectors.Vector]) -> _Reading:
    try:
        return OutcomeClass.SUCCEEDED, vectors.answer(data), "", "", ""
    except ValueError as flaw:
        return OutcomeClass.RETRYABLE, None, NO_ANSWER, str(flaw), ""


def _joined(parts: list[_Part], kind: str) -> str:
    return "".join([part.refusal or "" for part in parts if part.type == kind])


def _tool_calls(items: list[_Item], line: bytes) -> str | None:
    """For a native request with tools: the JSON array of the calls, as the model made them."""
    if not any(item.type.endswith("_call") for item in items):
        return None
    body = msgspec.json.decode(line)
    body = body["response"]["body"] if "response" in body else body
    calls = [item for item in body["output"] if str(item.get("type")) in ("function_call", "custom_tool_call")]
    return _encode(calls).decode() if calls else None


def _usage(usage: _Usage) -> Usage:
    """`input` includes cached and written tokens and `output` includes reasoning, as OpenAI counts them."""
    inner = usage.input_tokens_details or usage.prompt_tokens_details
    outer = usage.output_tokens_details or usage.completion_tokens_details
    return Usage(
        usage.input_tokens or usage.prompt_tokens or 0,
        (inner.cached_tokens or 0) if inner is not None else 0,
        usage.output_tokens or usage.completion_tokens or 0,
        (outer.reasoning_tokens or 0) if outer is not None else 0,
        (inner.cache_write_tokens or 0) if inner is not None else 0,
    )


def _failed(record_id: str, error: Any, status: int | None, body: _Body | None, request_id: str) -> RecordResult:
    """`error` is the error object, or in some servers a bare text."""
    fields = error if isinstance(error, dict) else {"message": error}
    code, kind, message = (_text(fields.get(key)) for key in ("code", "type", "message"))
    outcome = classify(status, code, kind)
    return RecordResult(
        record_id,
        outcome or OutcomeClass.RETRYABLE,
        code=code or kind or (f"http_{status}" if status is not None else UNREADABLE),
        message=message[:MAX_MESSAGE_CHARS],
        model_version=(body.model or "") if body is not None else "",
        request_id=request_id,
        usage=_usage(body.usage) if body is not None and body.usage is not None else _NO_USAGE,
        unknown_code=outcome is None and (code or kind) not in _OURS,
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _body_of(text: str) -> _Body | None:
    """A body that came as a string of JSON; None if it is none."""
    try:
        return _body(text)
    except (ValueError, RecursionError):
        return None


def _second_reading(line: bytes) -> tuple[_Line, bytes] | RecordResult:
    """A line the strict reader refused: numbers as strings, a byte order mark, a lone surrogate (read as U+FFFD), or
    JSON of another shape, of which at least the record's id and the status can be told."""
    row, line = read_again(line, _loose_line)
    if row is not None:
        return row, line
    try:
        bare = msgspec.json.decode(line, type=_BareLine)
    except msgspec.ValidationError:
        raise ValueError("the line has no custom_id that is a string") from None
    fields = bare.response if isinstance(bare.response, dict) else {}
    status = fields.get("status_code")
    failed_status = status if isinstance(status, int) and not 200 <= status < 300 else None
    error = {"code": "" if failed_status is not None else UNREADABLE, "message": "not the documented shape of a result"}
    return _failed(bare.custom_id, error, failed_status, None, _text(fields.get("request_id")))
