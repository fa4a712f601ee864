"""Lines of Gemini result files, read into one shape.

A record succeeded iff there is no error, the prompt was not blocked, and a candidate with an answer ended by itself; a
job's SUCCEEDED says nothing about its records (googleapis/python-genai#2693). Only the line's `key` says whose it is:
order was reported broken (googleapis/python-genai#1909).
"""

from __future__ import annotations

from typing import Any

import msgspec

from tallybatch.adapters.providers.common.texts import MAX_MESSAGE_CHARS, read_again
from tallybatch.adapters.providers.common.vectors import checked, encode
from tallybatch.adapters.providers.gemini.codes import FINISH_REASONS, classify, code_name
from tallybatch.domain.outcomes import OutcomeClass, RecordResult, Usage

UNREADABLE = "unreadable_result"
NO_ANSWER = "no_answer"
NO_RESPONSE = "no_response"

_NO_USAGE = Usage()


class _Usage(msgspec.Struct, rename="camel", gc=False):
    """Counters are left out when they are zero."""

    prompt_token_count: int | None = 0
    tool_use_prompt_token_count: int | None = 0
    cached_content_token_count: int | None = 0
    candidates_token_count: int | None = 0
    thoughts_token_count: int | None = 0


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = False
    function_call: msgspec.Raw = msgspec.Raw()


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Feedback(msgspec.Struct, rename="camel", gc=False):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Embedding(msgspec.Struct):
    values: list[float] | None = None


class _Response(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    response_id: str | None = None
    embedding: _Embedding | None = None
    token_count: int | None = 0
    error: Any = None


class _Metadata(msgspec.Struct, gc=False):
    key: str = ""


class _Line(msgspec.Struct):
    """`error` or `status` hold a google.rpc.Status; in a bare one its members are the line's own."""

    key: str = ""
    response: _Response | str | None = None
    error: Any = None
    status: Any = None
    code: int | None = None
    message: str | None = None
    metadata: _Metadata | None = None


class _BareLine(msgspec.Struct):
    """What is left to read when a line is JSON but not the documented shape."""

    key: str


_line = msgspec.json.Decoder(_Line, strict=False).decode
_response = msgspec.json.Decoder(_Response, strict=False).decode


def parse(line: bytes) -> RecordResult:
    """Read one line. Raises `ValueError`, without quoting the line, if it is no JSON or names no record."""
    try:
        row = _line(line)
    except (ValueError, RecursionError):
        again = _second_reading(line)
        if isinstance(again, RecordResult):
            return again
        row = again
    record_id = row.key or (row.metadata.key if row.metadata is not None else "")
    if not record_id:
        raise ValueError("the line has no key")
    response = _response_of(row.response)
    error = row.error or _bare_status(row) or (response.error if response is not None else None)
    if error:
        return _failed(record_id, error, response)
    if response is None:
        return _failed(record_id, {"status": UNREADABLE if row.response else NO_RESPONSE}, None)
    outcome, answer, code, message, finish = _read(response)
    return RecordResult(
        record_id,
        outcome,
        answer,
        code,
        message[:MAX_MESSAGE_CHARS],
        finish,
        _model(response),
        response.response_id or "",
        _usage(response),
        outcome is OutcomeClass.RETRYABLE and code != NO_ANSWER and code not in FINISH_REASONS,
    )


_Reading = tuple[OutcomeClass, str | None, str, str, str]
"""Outcome, answer, code, message, finish reason."""


def _read(response: _Response) -> _Reading:
    if response.embedding is not None:
        try:
            return OutcomeClass.SUCCEEDED, encode(checked(response.embedding.values)).decode(), "", "", ""
        except ValueError as flaw:
            return OutcomeClass.RETRYABLE, None, NO_ANSWER, str(flaw), ""
    blocked = response.prompt_feedback
    if blocked is not None and blocked.block_reason:
        return OutcomeClass.REFUSED, None, blocked.block_reason, blocked.block_reason_message or "", ""
    if not response.candidates:
        return OutcomeClass.RETRYABLE, None, NO_ANSWER, "", ""
    candidate = response.candidates[0]
    finish = candidate.finish_reason or ""
    outcome = FINISH_REASONS.get(finish, OutcomeClass.RETRYABLE)
    answer = _answer(candidate.content)
    if outcome is OutcomeClass.SUCCEEDED and answer is None:
        return OutcomeClass.RETRYABLE, None, NO_ANSWER, "", finish
    if outcome is OutcomeClass.SUCCEEDED:
        return outcome, answer, "", "", finish
    kept = answer if outcome is OutcomeClass.TRUNCATED else None
    return outcome, kept, finish, candidate.finish_message or "", finish


def _answer(content: _Content | None) -> str | None:
    """The text without the model's thoughts; for a native request with tools, the JSON array of the calls."""
    parts = (content.parts if content is not None else None) or []
    text = "".join([part.text for part in parts if part.text and not part.thought])
    if text:
        return text
    calls = [part.function_call for part in parts if len(part.function_call) > len(b"null")]
    return encode(calls).decode() if calls else None


def _usage(response: _Response) -> Usage:
    """`input` includes cached tokens, as Gemini counts them; `output` is what is billed, candidates and thoughts."""
    usage = response.usage_metadata
    if usage is None:
        return Usage(input=response.token_count or 0) if response.token_count else _NO_USAGE
    thoughts = usage.thoughts_token_count or 0
    return Usage(
        (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        usage.cached_content_token_count or 0,
        (usage.candidates_token_count or 0) + thoughts,
        thoughts,
    )


def _model(response: _Response) -> str:
    return (response.model_version or "").removeprefix("models/")


def _bare_status(row: _Line) -> Any:
    if row.status and not isinstance(row.status, str):
        return row.status
    if row.response is None and (row.code or row.message or row.status):
        return {"code": row.code, "message": row.message, "status": row.status}
    return None


def _failed(record_id: str, error: Any, response: _Response | None) -> RecordResult:
    """`error` is a google.rpc.Status, or a bare text."""
    fields = error if isinstance(error, dict) else {"message": error}
    number, status, message = fields.get("code"), fields.get("status"), fields.get("message")
    code = int(number) if isinstance(number, int | str) and str(number).isdecimal() else 0
    name = code_name(code, status if isinstance(status, str) else "")
    outcome = classify(code, name)
    return RecordResult(
        record_id,
        outcome or OutcomeClass.RETRYABLE,
        code=name or (f"code_{code}" if code else UNREADABLE),
        message=("" if message is None else str(message))[:MAX_MESSAGE_CHARS],
        model_version=_model(response) if response is not None else "",
        request_id=(response.response_id or "") if response is not None else "",
        usage=_usage(response) if response is not None else _NO_USAGE,
        unknown_code=outcome is None and bool(name or code) and name not in (UNREADABLE, NO_RESPONSE),
    )


def _response_of(value: _Response | str | None) -> _Response | None:
    """A response, also one that came as a string of JSON; None if it is none."""
    if not isinstance(value, str):
        return value
    try:
        return _response(value)
    except (ValueError, RecursionError):
        return None


def _second_reading(line: bytes) -> _Line | RecordResult:
    """A line the first reading refused: a byte order mark, a lone surrogate (read as U+FFFD), or JSON of another shape,
    of which at least the record's id can be told."""
    row, line = read_again(line, _line)
    if row is not None:
        return row
    try:
        bare = msgspec.json.decode(line, type=_BareLine)
    except msgspec.ValidationError:
        raise ValueError("the line has no key that is a string") from None
    return _failed(bare.key, {"status": UNREADABLE, "message": "not the documented shape of a result"}, None)
