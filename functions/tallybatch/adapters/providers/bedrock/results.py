"""Lines of `.out` objects, read into one shape. `modelInput` is echoed and passed over; `error` replaces `modelOutput`.

Which shape `modelOutput` has is seen in the line itself: Converse (Nova's own is the same), Claude, Titan, Cohere.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tallybatch.adapters.providers.bedrock.codes import STOP_REASONS, error_class
from tallybatch.adapters.providers.common.texts import MAX_MESSAGE_CHARS, read_again
from tallybatch.adapters.providers.common.vectors import checked
from tallybatch.domain.outcomes import OutcomeClass, RecordResult, Usage

UNREADABLE = "unreadable_result"
NO_ANSWER = "no_answer"

_NO_USAGE = Usage()


class _Usage(msgspec.Struct, gc=False):
    """Converse says inputTokens, Nova's own body also cacheReadInputTokenCount, Claude input_tokens."""

    inputTokens: int | None = None  # noqa: N815 - the wire's names
    outputTokens: int | None = None  # noqa: N815
    cacheReadInputTokens: int | None = None  # noqa: N815
    cacheWriteInputTokens: int | None = None  # noqa: N815
    cacheReadInputTokenCount: int | None = None  # noqa: N815
    cacheWriteInputTokenCount: int | None = None  # noqa: N815
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Block(msgspec.Struct):
    """Of a message. Claude's have a type; Converse's have the one field that tells what they are."""

    type: str = ""
    text: str | None = None
    toolUse: Any = None  # noqa: N815
    name: str | None = None
    id: str | None = None
    input: Any = None


class _Message(msgspec.Struct):
    content: list[_Block] | None = None


class _Wrapped(msgspec.Struct):
    message: _Message | None = None


class _Output(msgspec.Struct):
    output: _Wrapped | None = None
    stopReason: str | None = None  # noqa: N815
    content: list[_Block] | None = None
    stop_reason: str | None = None
    model: str | None = None
    id: str | None = None
    usage: _Usage | None = None
    embedding: list[float] | None = None
    embeddingsByType: dict[str, Any] | None = None  # noqa: N815
    inputTextTokenCount: int | None = None  # noqa: N815
    embeddings: list[list[float]] | dict[str, list[list[float]]] | None = None


class _Line(msgspec.Struct):
    recordId: str  # noqa: N815
    modelOutput: _Output | str | None = None  # noqa: N815
    error: Any = None


class _BareLine(msgspec.Struct):
    """What is left to read when a line is JSON but not the documented shape."""

    recordId: str  # noqa: N815
    error: Any = None


_line = msgspec.json.Decoder(_Line).decode
_loose_line = msgspec.json.Decoder(_Line, strict=False).decode
_bare_line = msgspec.json.Decoder(_BareLine).decode
_output = msgspec.json.Decoder(_Output, strict=False).decode
_encode = msgspec.json.Encoder().encode

_Reading = tuple[OutcomeClass, str | None, str, str]
"""Outcome, answer, code, finish reason."""


class Reader:
    """Reads result lines of a job on `model`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._versions: dict[str, str] = {}

    def parse(self, line: bytes) -> RecordResult:
        """Raises `ValueError`, without quoting the line, if it is no JSON or names no record."""
        try:
            row = _line(line)
        except (ValueError, RecursionError):
            again = _second_reading(line)
            if isinstance(again, RecordResult):
                return again
            row = again
        if not row.recordId:
            raise ValueError("the line's recordId is empty")
        output = row.modelOutput
        if isinstance(output, str):
            try:
                output = _output(output)
            except (ValueError, RecursionError):
                return _failed(row.recordId, {"errorCode": UNREADABLE})
        if row.error or output is None:
            return _failed(row.recordId, row.error or {"errorCode": NO_ANSWER})
        outcome, answer, code, finish = _read(output)
        return RecordResult(
            row.recordId,
            outcome,
            answer=answer,
            code=code,
            finish_reason=finish,
            model_version=self._version(output.model or ""),
            request_id=output.id or "",
            usage=_usage(output),
        )

    def _version(self, told: str) -> str:
        """The job's model where the body tells the same by its maker's name, else what it tells, if anything."""
        if told and told not in self._versions:
            same = re.search(rf"(^|[./]){re.escape(told)}(-v\d|:|$)", self._model)
            self._versions[told] = self._model if same else told
        return self._versions[told] if told else ""


def _read(output: _Output) -> _Reading:
    if output.embedding is not None or output.embeddings is not None or output.embeddingsByType is not None:
        return _vectors(output)
    wrapped = output.output.message if output.output is not None else None
    blocks = output.content if output.content is not None else wrapped.content if wrapped is not None else None
    finish = output.stopReason or output.stop_reason or ""
    answer = "".join([block.text for block in blocks or () if block.text]) or _tool_calls(blocks or [])
    outcome = STOP_REASONS.get(finish, OutcomeClass.SUCCEEDED)
    if outcome is OutcomeClass.SUCCEEDED and answer is None:
        return OutcomeClass.RETRYABLE, None, NO_ANSWER, finish
    if outcome is OutcomeClass.SUCCEEDED:
        return outcome, answer, "", finish
    return outcome, answer if outcome is OutcomeClass.TRUNCATED else None, finish, finish


def _tool_calls(blocks: list[_Block]) -> str | None:
    """For a native request with tools: the JSON array of the calls, as the model made them."""
    calls = [block.toolUse for block in blocks if block.toolUse is not None]
    calls += [
        {"id": block.id, "name": block.name, "input": block.input} for block in blocks if block.type == "tool_use"
    ]
    return _encode(calls).decode() if calls else None


def _vectors(output: _Output) -> _Reading:
    """One vector as an array of floats, several (Cohere, native requests) as an array of those."""
    try:
        found = output.embeddings
        if isinstance(found, dict):
            found = found.get("float")
        if output.embedding is not None:
            found = [output.embedding]
        if found is None and output.embeddingsByType:
            found = [output.embeddingsByType.get("float")]  # type: ignore[list-item]
        vectors = [checked(vector) for vector in found or ()]
    except (ValueError, TypeError):
        return OutcomeClass.RETRYABLE, None, NO_ANSWER, ""
    if not vectors:
        return OutcomeClass.RETRYABLE, None, NO_ANSWER, ""
    return OutcomeClass.SUCCEEDED, _encode(vectors[0] if len(vectors) == 1 else vectors).decode(), "", ""


def _usage(output: _Output) -> Usage:
    """Cache reads and writes are counted beside the input here, and are part of it in ours. Titan counts its input
    only; Cohere counts nothing."""
    usage = output.usage
    if usage is None:
        return Usage(output.inputTextTokenCount) if output.inputTextTokenCount else _NO_USAGE
    read = usage.cacheReadInputTokens or usage.cacheReadInputTokenCount or usage.cache_read_input_tokens or 0
    written = usage.cacheWriteInputTokens or usage.cacheWriteInputTokenCount or usage.cache_creation_input_tokens or 0
    fresh = usage.inputTokens or usage.input_tokens or 0
    return Usage(fresh + read + written, read, usage.outputTokens or usage.output_tokens or 0, 0, written)


def _failed(record_id: str, error: Any) -> RecordResult:
    """`error` is `{"errorCode", "errorMessage"}`, or in some copies a bare text."""
    fields = error if isinstance(error, dict) else {"errorMessage": error}
    code = _text(fields.get("errorCode"))
    outcome = error_class(code)
    return RecordResult(
        record_id,
        outcome or OutcomeClass.RETRYABLE,
        code=code or UNREADABLE,
        message=_text(fields.get("errorMessage"))[:MAX_MESSAGE_CHARS],
        unknown_code=outcome is None and code not in ("", UNREADABLE, NO_ANSWER),
    )


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


def _second_reading(line: bytes) -> _Line | RecordResult:
    """A line the strict reader refused: numbers as strings, a byte order mark, a lone surrogate (read as U+FFFD), or
    JSON of another shape, of which at least the record's id can be told."""
    row, line = read_again(line, _loose_line)
    if row is not None:
        return row
    try:
        bare = _bare_line(line)
    except msgspec.ValidationError:
        raise ValueError("the line has no recordId that is a string") from None
    return _failed(bare.recordId, bare.error or {"errorCode": UNREADABLE})
