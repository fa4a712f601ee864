"""Runs the records of one job, a few at a time, into the lines of `.out` objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from infra.local.simulator.bedrock.bodies import Reply, reply_to
from infra.local.simulator.bedrock.model import PROVIDER, Counts, Job, Json
from infra.local.simulator.bill import priced
from infra.local.simulator.dice import Dice
from infra.local.simulator.faults import Faults
from infra.local.simulator.journal import Tokens
from infra.local.simulator.result_lines import ResultLines


@dataclass(frozen=True, slots=True)
class InputFile:
    """`name` is the key below the input prefix; `records` are its lines, parsed."""

    name: str
    records: list[Json]


@dataclass(slots=True)
class Execution:
    """Takes the records of all files in a shuffled order; how far it has come decides what a stop leaves behind.

    Bills what was answered: once per record, and twice for `duplicate_different`, which ran twice. An error costs
    nothing; a `missing` record is in no line and in no count.
    """

    job: Job
    files: list[InputFile]
    faults: Faults
    every_record: str = ""
    done: int = 0
    counts: Counts = field(default_factory=Counts)
    tokens: Tokens = field(default_factory=Tokens)
    _order: list[tuple[int, int]] = field(default_factory=list)
    _lines: list[ResultLines] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = [(at, row) for at, file in enumerate(self.files) for row in range(len(file.records))]
        Dice(blake2b(self.job.input_uri.encode(), digest_size=8).digest()).shuffle(self._order)
        self._lines = [ResultLines("recordId") for _ in self.files]
        self.counts.total = len(self._order)

    @property
    def total(self) -> int:
        return len(self._order)

    def run_until(self, position: int) -> None:
        """Answer records until `position` of them are done."""
        for at, row in self._order[self.done : min(position, self.total)]:
            self._answer(self.files[at].records[row], self._lines[at])
            self.done += 1

    def outputs(self) -> list[tuple[str, bytes]]:
        """Names below the output prefix, and bodies."""
        return [(f"{file.name}.out", lines.body()) for file, lines in zip(self.files, self._lines, strict=True)]

    def _answer(self, record: Json, lines: ResultLines) -> None:
        body = record["modelInput"]
        content = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
        digest = blake2b(content, digest_size=16).digest()
        record_id = record.get("recordId") or f"R{digest.hex()[:10].upper()}"
        fault = self.every_record or self.faults.record(PROVIDER, digest, content)
        if fault == "missing":
            return
        head = {"recordId": record_id, "modelInput": body}
        reply = self._reply(body, digest, record_id, fault)
        if reply.failed or fault == "null_response":
            self.counts.failed += 1
            lines.add(head | (reply.part if reply.failed else {"modelOutput": None}))
            return
        self.counts.succeeded += 1
        self._bill(reply.tokens)
        part: dict[str, Any] = dict(reply.part)
        if fault == "body_as_string":
            part["modelOutput"] = orjson.dumps(part["modelOutput"]).decode()
        if not lines.add_with(fault, head | part, "unknown" + digest.hex()[:16]):
            return
        if fault == "duplicate_different":
            other = self._reply(body, digest, record_id + "again", "", variant=1)
            self._bill(other.tokens)
            lines.add(head | other.part)
        elif fault == "success_and_error":
            lines.add(head | self._reply(body, digest, record_id, "error_500").part)

    def _bill(self, tokens: Tokens) -> None:
        self.tokens.add(priced(PROVIDER, str(self.job.request["modelId"]), "batch", tokens))

    def _reply(self, body: Json, digest: bytes, salt: str, fault: str, *, variant: int = 0) -> Reply:
        key = blake2b((self.job.arn + salt).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        model = str(self.job.request["modelId"])
        return reply_to(model, self.job.invocation_type, body, digest=digest, key=key, fault=fault, variant=variant)
