"""Runs the requests of one batch, a few at a time, into the lines of an output and an error file."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import orjson

from infra.local.simulator.dice import Dice
from infra.local.simulator.faults import Faults
from infra.local.simulator.journal import Tokens
from infra.local.simulator.openai.bodies import Reply, reply_to
from infra.local.simulator.openai.model import Counts, Json
from infra.local.simulator.openai.requests import canonical, digest_of
from infra.local.simulator.result_lines import ResultLines

PROVIDER = "openai"


class Execution:
    """Takes the requests in a shuffled order; how far it has come decides what a cancel or an expiry leaves behind.

    Bills what was answered with HTTP 200: once per record, and twice for `duplicate_different`, which ran twice. Rows
    that are `missing`, `status_zero` or `null_response` cost nothing. A row with status 0 counts as completed, as
    seen in the wild (tidyverse/ellmer#830); a missing one does not count at all.
    """

    def __init__(
        self,
        data: bytes,
        spans: list[tuple[int, int]],
        *,
        batch_id: str,
        endpoint: str,
        model: str,
        seed: int,
        faults: Faults,
        every_record: str = "",
    ) -> None:
        self._data = memoryview(data)
        self._order = spans.copy()
        Dice(blake2b(data, key=str(seed).encode()[:64], digest_size=8).digest()).shuffle(self._order)
        self._batch_key = batch_id.encode()
        self._endpoint = endpoint
        self._model = model
        self._faults = faults
        self._every_record = every_record
        self._output = ResultLines("custom_id")
        self._errors = ResultLines("custom_id")
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

    def abandon(self, code: str, message: str) -> None:
        """Write the rows that were not reached into the error file."""
        for start, end in self._order[self.done :]:
            custom_id = orjson.loads(self._data[start:end])["custom_id"]
            line = self._line(custom_id, None, error={"code": code, "message": message})
            self._errors.add(line)

    def files(self) -> tuple[bytes, bytes]:
        """The bytes of the output and the error file; empty means that there is no such file."""
        return self._output.body(), self._errors.body()

    def _answer(self, request: Json, moment: float) -> None:
        custom_id: str = request["custom_id"]
        body: Json = request["body"]
        content = canonical(body)
        digest = digest_of(content)
        fault = self._every_record or self._faults.record(PROVIDER, digest, content)
        if fault == "missing":
            return
        if fault in ("status_zero", "null_response"):
            empty = {"status_code": 0, "request_id": "", "body": {}} if fault == "status_zero" else None
            self._errors.add(self._line(custom_id, None, response=empty))
            if fault == "status_zero":
                self.counts.completed += 1
            else:
                self.counts.failed += 1
            return
        reply = self._reply(body, digest, moment, fault)
        line = self._line(custom_id, reply)
        if reply.status != 200 or reply.body.get("error"):
            self.counts.failed += 1
            self._errors.add(line)
            return
        self.counts.completed += 1
        self.tokens.add(reply.tokens)
        self._write(line, fault, custom_id, body, digest, moment)

    def _write(self, line: Json, fault: str, custom_id: str, body: Json, digest: bytes, moment: float) -> None:
        if fault == "body_as_string":
            line["response"]["body"] = orjson.dumps(line["response"]["body"]).decode()
        elif fault == "no_error_key":
            del line["error"]
        if not self._output.add_with(fault, line, "unknown-" + digest.hex()[:16]):
            return
        if fault == "duplicate_different":
            other = self._reply(body, digest, moment, "", variant=1)
            self.tokens.add(other.tokens)
            self._output.add(self._line(custom_id, other, salt=b"again"))
        elif fault == "success_and_error":
            error = self._reply(body, digest, moment, "error_500")
            self._errors.add(self._line(custom_id, error, salt=b"error"))

    def _reply(self, body: Json, digest: bytes, moment: float, fault: str, *, variant: int = 0) -> Reply:
        return reply_to(
            self._endpoint, body, digest=digest, model=self._model, moment=moment, fault=fault, variant=variant
        )

    def _line(
        self, custom_id: str, reply: Reply | None, *, response: Any = None, error: Json | None = None, salt: bytes = b""
    ) -> Json:
        key = blake2b(self._batch_key + salt + custom_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        if reply is not None:
            response = {"status_code": reply.status, "request_id": f"req_{key}", "body": reply.body}
        return {"id": f"batch_req_{key}", "custom_id": custom_id, "response": response, "error": error}
