"""Request lines: a shard record plus the spec's prompt, in the provider's format."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from tallybatch.domain.input_lines import LineRefused
from tallybatch.domain.records import ShardRecord, encode_sorted
from tallybatch.domain.spec import Spec
from tallybatch.domain.templates import Template
from tallybatch.ports import Formats, ProviderFormat

OUTPUT_CAP = "max_output_tokens"
_SAMPLE_ID = "0" * 32
_TEXT_NAMES = frozenset({"text", "content", "input", "instructions", "inputText"})
_decode = msgspec.json.Decoder(dict[str, Any]).decode


FEEDBACK = (
    "\n\nAn earlier answer to this was not accepted: {reason}.\nAnswer again, and correct that. Give only the answer."
)
"""Put after the user's prompt of a record whose last answer failed its checks, where the spec has `retry.feedback`."""


class Requests:
    """Renders the request line of a record; `measure` gives its size in bytes, newline included."""

    def __init__(self, spec: Spec, formats: Formats) -> None:
        self.format = formats(spec)
        self._spec, self._formats = spec, formats
        self._raised: dict[int, ProviderFormat] = {}
        self._system = (spec.prompt.system or "") if spec.prompt else ""
        self._template = Template(spec.prompt.user) if spec.prompt else None

    def render(self, record_id: str, values: dict[str, Any]) -> bytes:
        """Without the newline. Raises `LineRefused` when the template cannot be filled."""
        if self._template is None:
            return self.format.native_line(record_id, values)
        return self.format.request_line(record_id, system=self._system, user=self._user(values))

    def _user(self, values: dict[str, Any]) -> str:
        assert self._template is not None  # noqa: S101 - asked for formats with a prompt only
        try:
            return self._template.render(values)
        except ValueError as error:
            raise LineRefused("template", f"the prompt cannot be filled: {error}") from None

    def measure(self, values: dict[str, Any]) -> int:
        if self._template is None:
            return len(self.format.native_line(_SAMPLE_ID, values)) + 1
        return self.format.request_bytes(system=self._system, user=self._user(values)) + 1

    @property
    def syntax_bytes(self) -> int:
        """Of a request line that are no text a model reads, newline included; 0 for a native file, whose lines are
        taken for text throughout."""
        if self._template is None:
            return 0
        line = self.format.request_line(_SAMPLE_ID, system=self._system, user="x")
        return len(line) + 1 - _text_bytes(_decode(line))

    def around(self, fields: Collection[str]) -> int | None:
        """Bytes of a request line beyond the canonical JSON of its fields, where the prompt is text around each of
        them: then a record of strings need not be rendered to be measured. None for any other prompt."""
        if self._template is None or self._template.each_once != frozenset(fields):
            return None
        empty = dict.fromkeys(fields, "")
        return self.measure(empty) - len(encode_sorted(empty))

    def line(self, record: ShardRecord) -> bytes:
        """The request of a shard's record, newline included: from the spec and the record's line alone, so that it can
        be made again byte for byte."""
        values = _decode(record.input)
        if self._template is None or not (record.output_cap or record.feedback):
            return self.render(record.record_id, values) + b"\n"
        user = self._user(values) + (FEEDBACK.format(reason=record.feedback) if record.feedback else "")
        capped = self._with_cap(record.output_cap)
        return capped.request_line(record.record_id, system=self._system, user=user) + b"\n"

    def _with_cap(self, output_cap: int) -> ProviderFormat:
        """The spec's format with another cap on the answer's tokens; the record's identity stays the spec's."""
        if not output_cap:
            return self.format
        if output_cap not in self._raised:
            generation = {**self._spec.generation, OUTPUT_CAP: output_cap}
            self._raised[output_cap] = self._formats(self._spec.model_copy(update={"generation": generation}))
        return self._raised[output_cap]


def _text_bytes(node: Any) -> int:
    """Of what is said in a request: the strings under the names that all providers' dialects have for text."""
    if isinstance(node, list):
        return sum(map(_text_bytes, node))
    if not isinstance(node, dict):
        return 0
    said = sum(len(value.encode()) for name, value in node.items() if name in _TEXT_NAMES and isinstance(value, str))
    said += sum(len(value.encode()) for value in node.get("texts", ()) if isinstance(value, str))
    return said + sum(map(_text_bytes, node.values()))
