"""How OpenAI's result lines look, and the rows of a batch that ended before they were reached."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import orjson

from infra.local.simulator.execution import Execution, Json, Reply
from infra.local.simulator.faults import Faults
from infra.local.simulator.openai.bodies import reply_to

PROVIDER = "openai"


class OpenAILines:
    """See `execution.Dialect`. A row with status 0 counts as completed, as seen in the wild (tidyverse/ellmer#830)."""

    provider = PROVIDER
    id_field = "custom_id"
    body_field = "body"
    empty_counts_as_done = frozenset({"status_zero"})

    def __init__(self, batch_id: str, endpoint: str, model: str) -> None:
        self._batch_key = batch_id.encode()
        self._endpoint = endpoint
        self.model = model

    def reply(self, body: Json, *, digest: bytes, moment: float, fault: str, variant: int = 0) -> Reply:
        return reply_to(
            self._endpoint, body, digest=digest, model=self.model, moment=moment, fault=fault, variant=variant
        )

    def line(self, record_id: str, reply: Reply, *, salt: bytes = b"") -> Json:
        key = self._key(record_id, salt)
        response = {"status_code": reply.status, "request_id": f"req_{key}", "body": reply.body}
        return self._row(record_id, key, response, None)

    def empty_line(self, record_id: str, fault: str) -> Json:
        response = {"status_code": 0, "request_id": "", "body": {}} if fault == "status_zero" else None
        return self._row(record_id, self._key(record_id), response, None)

    def error_line(self, record_id: str, error: Json) -> Json:
        return self._row(record_id, self._key(record_id), None, error)

    def bend(self, line: Json, fault: str) -> None:
        if fault == "body_as_string":
            line["response"]["body"] = orjson.dumps(line["response"]["body"]).decode()
        elif fault == "no_error_key":
            del line["error"]

    def _key(self, record_id: str, salt: bytes = b"") -> str:
        return blake2b(self._batch_key + salt + record_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()

    def _row(self, record_id: str, key: str, response: Any, error: Json | None) -> Json:
        return {"id": f"batch_req_{key}", "custom_id": record_id, "response": response, "error": error}


class OpenAIExecution(Execution):
    """An execution that can leave rows behind: they go into the error file."""

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
        self._lines = OpenAILines(batch_id, endpoint, model)
        super().__init__(data, spans, dialect=self._lines, seed=seed, faults=faults, every_record=every_record)

    def abandon(self, code: str, message: str) -> None:
        """Write the rows that were not reached into the error file."""
        for start, end in self._order[self.done :]:
            custom_id = orjson.loads(self._data[start:end])["custom_id"]
            line = self._lines.error_line(custom_id, {"code": code, "message": message})
            self._errors.add(line)
