"""Request lines: a shard record plus the spec's prompt, in the provider's format."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from tallybatch.domain.input_lines import LineRefused
from tallybatch.domain.records import ShardRecord, encode_sorted
from tallybatch.domain.spec import Spec
from tallybatch.domain.templates import Template
from tallybatch.ports import ProviderFormat

_SAMPLE_ID = "0" * 32
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Requests:
    """Renders the request line of a record; `measure` gives its size in bytes, newline included."""

    def __init__(self, spec: Spec, provider_format: ProviderFormat) -> None:
        self.format = provider_format
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

    def around(self, fields: Collection[str]) -> int | None:
        """Bytes of a request line beyond the canonical JSON of its fields, where the prompt is text around each of
        them: then a record of strings need not be rendered to be measured. None for any other prompt."""
        if self._template is None or self._template.each_once != frozenset(fields):
            return None
        empty = dict.fromkeys(fields, "")
        return self.measure(empty) - len(encode_sorted(empty))

    def line(self, record: ShardRecord) -> bytes:
        """The request of a shard's record, newline included."""
        return self.render(record.record_id, _decode(record.input)) + b"\n"
