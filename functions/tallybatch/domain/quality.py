"""Accepted is more than succeeded: the record-level checks an answer passes before it is accepted.

In order: JSON syntax, JSON Schema, rules, quotes. A reason names places and rules, never what stands there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import msgspec

from tallybatch.domain.outcomes import NO_OUTPUT
from tallybatch.domain.quality_quotes import Quotes
from tallybatch.domain.quality_rules import Rules
from tallybatch.domain.spec import Spec

FENCED = "fenced_json"
"""Note of an answer that came as a Markdown code block around its JSON."""
MOST_ERRORS = 100
"""Schema errors of one answer that are told by their places; more are counted."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL | re.IGNORECASE)
_NOT_JSON = "the answer is not JSON"


UNFIT = ("the answer is not JSON", "the answer is nested too deeply", "the answer does not fit the schema")
"""How the reasons begin that speak of syntax or schema; an answer with another one has passed both."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """`output` is the accepted answer as JSON bytes; `reason` is "" for an accepted answer and never quotes it."""

    output: bytes
    reason: str = ""
    notes: tuple[str, ...] = ()


class AnswerCheck:
    """Without a schema any text is an answer. `rules` and `quotes` are compiled here, once for all records."""

    def __init__(
        self,
        schema: Mapping[str, Any] | None,
        *,
        embeddings: bool = False,
        rules: Rules | None = None,
        quotes: Quotes | None = None,
    ) -> None:
        self._parse = schema is not None or embeddings
        self._schema = SchemaCheck(schema) if schema is not None else None
        self._rules, self._quotes = rules, quotes
        self._reads_input = quotes is not None or (rules is not None and rules.read_input)
        self.goes_further = rules is not None or quotes is not None
        """Whether there is more to check than syntax and schema."""

    @classmethod
    def of(cls, spec: Spec) -> AnswerCheck:
        quality = spec.quality
        return cls(
            spec.output.schema_,
            embeddings=spec.is_embedding,
            rules=Rules(quality.rules) if quality.rules else None,
            quotes=Quotes(quality.quotes) if quality.quotes else None,
        )

    def check(self, answer: str, given: msgspec.Raw = NO_OUTPUT) -> Verdict:
        """`given` is the record's input, as its shard line has it."""
        if not self._parse:
            reason = self._further(answer, given) if self.goes_further else ""
            return Verdict(b"", reason) if reason else Verdict(_encode(answer))
        notes: tuple[str, ...] = ()
        try:
            value = _decode(answer)
        except (msgspec.DecodeError, RecursionError):
            fenced = _FENCE.fullmatch(answer)
            if fenced is None:
                return Verdict(b"", _NOT_JSON)
            try:
                value, notes = _decode(fenced[1].encode()), (FENCED,)
            except (msgspec.DecodeError, RecursionError):
                return Verdict(b"", _NOT_JSON)
        try:
            if self._schema is not None and not self._schema.fits(value):
                return Verdict(b"", self._schema.reason(value), notes)
            if self.goes_further and (reason := self._further(value, given)):
                return Verdict(b"", reason, notes)
            return Verdict(_encode(value), "", notes)
        except (ValueError, RecursionError):
            return Verdict(b"", "the answer is nested too deeply to be checked", notes)

    def recheck(self, output: msgspec.Raw, given: msgspec.Raw) -> str:
        """Why an answer that was accepted under the same schema breaks these rules or quotes, "" if it does not."""
        return self._further(_decode(output), given) if self.goes_further else ""

    def _further(self, value: Any, given: msgspec.Raw) -> str:
        record = _decode(given) if self._reads_input else {}
        reasons = self._rules.broken(record, value) if self._rules is not None else []
        if self._quotes is not None:
            reasons += self._quotes.missing(record, value)
        return "; ".join(reasons)


class SchemaCheck:
    """JSON Schema with every error named by its place. Property names that the schema does not know came from the
    model, so `*` stands for them."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._validator = jsonschema_rs.validator_for(dict(schema))
        self.fits = self._validator.is_valid
        self._names = frozenset(_property_names(schema))

    def reason(self, value: Any) -> str:
        """Of a value that does not fit. Raises `ValueError` for one that is nested too deeply."""
        told: list[str] = []
        more = 0
        for error in self._validator.iter_errors(value):
            if len(told) == MOST_ERRORS:
                more += 1
                continue
            lacks = error.kind.property if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required) else ""
            what = f" (lacks {lacks!r})" if lacks else ""
            told.append(f"{self._place(error.instance_path)} breaks {_pointer(error.schema_path)}{what}")
        return "the answer does not fit the schema: " + "; ".join(told) + (f"; and {more} more" if more else "")

    def _place(self, path: list[str | int]) -> str:
        return _pointer([step if isinstance(step, int) or step in self._names else "*" for step in path])


def _pointer(path: list[str | int]) -> str:
    return f"/{'/'.join(map(str, path))}"


def _property_names(schema: Any) -> Iterator[str]:
    """Every name under a `properties` anywhere in the schema."""
    if isinstance(schema, Mapping):
        for key, inner in schema.items():
            if key == "properties" and isinstance(inner, Mapping):
                yield from inner
            yield from _property_names(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _property_names(inner)
