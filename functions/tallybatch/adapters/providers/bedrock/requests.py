"""Lines of a Bedrock batch input file: `recordId` and `modelInput`, whose body `bodies` knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tallybatch.adapters.providers.bedrock import results
from tallybatch.adapters.providers.bedrock.bodies import body_problem, dialect_of, schema_instruction
from tallybatch.adapters.providers.common.texts import one_line, splits_lines
from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.outcomes import RecordResult

MAX_RECORD_ID_CHARS = 512
"""Our own bound for an id that becomes a business key; on the wire goes ours, of 32 characters."""

_HEAD = b'{"recordId":'
_INPUT = b',"modelInput":'
_SAMPLE_ID = "0" * 32
_encode = msgspec.json.Encoder().encode


class BedrockFormat:
    """`ports.ProviderFormat` for one model, invocation type and generation setting. Pure; loads no SDK.

    A `schema` is asked for in words at the end of the system prompt (`bodies.schema_instruction`).
    Raises `BadInput` for settings that cannot work.
    """

    name = "bedrock"

    def __init__(
        self,
        model: str,
        endpoint: str = "Converse",
        generation: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.endpoint = endpoint
        self._dialect = dialect_of(model, endpoint, generation or {})
        if schema is not None and self._dialect.embeds:
            raise BadInput("an embedding has no output schema", [Problem("leave it out", key="output.schema")])
        self._instruction = schema_instruction(schema) if schema is not None else ""
        self._parse = results.Reader(model).parse
        self._prefix: tuple[str, bytes] | None = None

    def request_line(self, record_id: str, *, system: str, user: str) -> bytes:
        """One line, without the newline. Raises `ValueError` for text that is not Unicode (a lone surrogate)."""
        try:
            line = b"".join((_HEAD, _encode(record_id), self._begin(system), _encode(user), self._dialect.end, b"}"))
        except UnicodeEncodeError:
            raise ValueError(f"record {record_id!a}: its prompt holds a lone surrogate, no legal Unicode") from None
        return one_line(line) if splits_lines(user) else line

    def request_bytes(self, *, system: str, user: str) -> int:
        return len(self.request_line(_SAMPLE_ID, system=system, user=user))

    def native_line(self, record_id: str, request: Mapping[str, Any]) -> bytes:
        """One line for a native request: its `modelInput` as it is, our id instead of its own."""
        return one_line(b"".join((_HEAD, _encode(record_id), _INPUT, _encode(request["modelInput"]), b"}")))

    def native_problem(self, line: Mapping[str, Any]) -> str:
        record_id = line.get("recordId")
        if not isinstance(record_id, str) or not 1 <= len(record_id) <= MAX_RECORD_ID_CHARS:
            return f"recordId must be a string of 1 to {MAX_RECORD_ID_CHARS} characters"
        body = line.get("modelInput")
        if not isinstance(body, Mapping):
            return "modelInput must be an object"
        return body_problem(body, self.endpoint, self._dialect.family)

    def parse(self, line: bytes) -> RecordResult:
        """One line of an `.out` object; see `results.Reader`."""
        return self._parse(line)

    def _begin(self, system: str) -> bytes:
        prefix = self._prefix
        if prefix is None or prefix[0] != system:
            whole = "\n\n".join(part for part in (system, self._instruction) if part)
            prefix = self._prefix = (system, _INPUT + self._dialect.begin(whole))
        return prefix[1]
