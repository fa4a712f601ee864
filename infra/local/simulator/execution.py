"""Runs the requests of one job, a few at a time, into result lines, whose looks are the provider's dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import orjson

from infra.local.simulator.bill import priced
from infra.local.simulator.dice import Dice
from infra.local.simulator.faults import Faults
from infra.local.simulator.journal import Tokens
from infra.local.simulator.result_lines import ResultLines

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answers: an HTTP-like status, a body, and what is billed for it."""

    status: int
    body: Json
    tokens: Tokens = field(default_factory=Tokens)

    @property
    def failed(self) -> bool:
        return self.status != 200 or bool(self.body.get("error"))


@dataclass(slots=True)
class Counts:
    total: int = 0
    completed: int = 0
    failed: int = 0


class Dialect(Protocol):
    """How one provider's lines look. `id_field` names the record on the wire."""

    provider: str
    model: str
    """As answered, which is as billed."""
    id_field: str
    body_field: str
    empty_counts_as_done: frozenset[str]
    """Faults whose empty row the provider counts as completed."""

    def reply(self, body: Json, *, digest: bytes, moment: float, fault: str, variant: int = 0) -> Reply: ...

    def line(self, record_id: str, reply: Reply, *, salt: bytes = b"") -> Json: ...

    def empty_line(self, record_id: str, fault: str) -> Json:
        """The row of `status_zero` and `null_response`."""

    def bend(self, line: Json, fault: str) -> None:
        """Change a good line as `body_as_string` and `no_error_key` do."""


def canonical_bytes(body: Any) -> bytes:
    """The same content gives the same bytes, in any order of its keys. Raises `orjson.JSONEncodeError` if too deep."""
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)


def digest_of(canonical_body: bytes) -> bytes:
    return blake2b(canonical_body, digest_size=16).digest()


class Execution:
    """Takes the requests in a shuffled order; how far it has come decides what a cancel or an expiry leaves behind.

    Bills what was answered with status 200: once per record, and twice for `duplicate_different`, which ran twice. Rows
    that are `missing`, `status_zero` or `null_response` cost nothing; a missing one does not count at all.
    With `one_file`, errors lie among the answers.
    """

    def __init__(
        self,
        data: bytes,
        spans: list[tuple[int, int]],
        *,
        dialect: Dialect,
        seed: int,
        faults: Faults,
        every_record: str = "",
        one_file: bool = False,
    ) -> None:
        self._data = memoryview(data)
        self._order = spans.copy()
        Dice(blake2b(data, key=str(seed).encode()[:64], digest_size=8).digest()).shuffle(self._order)
        self._dialect = dialect
        self._faults = faults
        self._every_record = every_record
        self._output = ResultLines(dialect.id_field)
        self._errors = self._output if one_file else ResultLines(dialect.id_field)
        self._one_file = one_file
        self.done = 0
        self.counts = Counts(total=len(spans))
        self.tokens = Tokens()

    @property
    def total(self) -> int:
        return len(self._order)

    def run_until(self, position: int, moment: float) -> None:
        """Answer requests until `position` of them are done; `moment` is the virtual time written into the answers."""
        for start, end in self._order[self.done : min(position, self.total)]:
            self._answer(orjson.loads(self._data[start:end]), moment)
            self.done += 1

    def files(self) -> tuple[bytes, bytes]:
        """The bytes of the output and the error file; empty means that there is no such file."""
        return self._output.body(), b"" if self._one_file else self._errors.body()

    def _answer(self, request: Json, moment: float) -> None:
        record_id: str = request[self._dialect.id_field]
        body: Json = request[self._dialect.body_field]
        content = canonical_bytes(body)
        digest = digest_of(content)
        fault = self._every_record or self._faults.record(self._dialect.provider, digest, content)
        if fault == "missing":
            return
        if fault in ("status_zero", "null_response"):
            self._errors.add(self._dialect.empty_line(record_id, fault))
            if fault in self._dialect.empty_counts_as_done:
                self.counts.completed += 1
            else:
                self.counts.failed += 1
            return
        reply = self._dialect.reply(body, digest=digest, moment=moment, fault=fault)
        line = self._dialect.line(record_id, reply)
        if reply.failed:
            self.counts.failed += 1
            self._errors.add(line)
            return
        self.counts.completed += 1
        self._bill(reply.tokens)
        self._write(line, fault, record_id, body, digest, moment)

    def _bill(self, tokens: Tokens) -> None:
        self.tokens.add(priced(self._dialect.provider, self._dialect.model, "batch", tokens))

    def _write(self, line: Json, fault: str, record_id: str, body: Json, digest: bytes, moment: float) -> None:
        dialect = self._dialect
        dialect.bend(line, fault)
        if not self._output.add_with(fault, line, "unknown-" + digest.hex()[:16]):
            return
        if fault == "duplicate_different":
            other = dialect.reply(body, digest=digest, moment=moment, fault="", variant=1)
            self._bill(other.tokens)
            self._output.add(dialect.line(record_id, other, salt=b"again"))
        elif fault == "success_and_error":
            error = dialect.reply(body, digest=digest, moment=moment, fault="error_500")
            self._errors.add(dialect.line(record_id, error, salt=b"error"))
