"""Accepted is more than succeeded: the record-level checks an answer passes before it is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Verdict(NamedTuple):
    """`output` is the accepted answer as JSON bytes; `reason` is "" for an accepted answer and never quotes it."""

    output: bytes
    reason: str = ""


class AnswerCheck:
    """JSON syntax, then JSON Schema; without a schema any text is an answer."""

    def __init__(self, schema: Mapping[str, Any] | None, *, embeddings: bool = False) -> None:
        self._parse = schema is not None or embeddings
        self._validator = jsonschema_rs.validator_for(dict(schema)) if schema is not None else None

    def check(self, answer: str) -> Verdict:
        if not self._parse:
            return Verdict(_encode(answer))
        data = answer.encode()
        try:
            value = _decode(data)
        except (msgspec.DecodeError, RecursionError):
            return Verdict(b"", "the answer is not JSON")
        try:
            if self._validator is not None and not self._validator.is_valid(value):
                return Verdict(b"", self._schema_reasons(value))
            return Verdict(_encode(value))
        except (ValueError, RecursionError):
            return Verdict(b"", "the answer is nested too deeply to be checked")

    def _schema_reasons(self, value: Any) -> str:
        assert self._validator is not None  # noqa: S101 - for the type checker
        found = [
            f"/{'/'.join(str(step) for step in error.instance_path)} breaks /{'/'.join(map(str, error.schema_path))}"
            for error in self._validator.iter_errors(value)
        ]
        return "the answer does not fit the schema: " + "; ".join(found[:5])
