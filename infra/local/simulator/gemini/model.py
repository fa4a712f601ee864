"""Files, batches and errors as the Gemini API shows them: int64 as strings, zeros and empty fields left out."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from infra.local.simulator.execution import Counts, Json
from infra.local.simulator.faults import JobPlan
from infra.local.simulator.journal import Tokens

PROVIDER = "gemini"
GENERATE = "batchGenerateContent"
EMBED = "asyncBatchEmbedContent"
TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"})

RPC_OF_HTTP = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"} | {
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
RPC_NUMBERS = {
    "CANCELLED": 1,
    "UNKNOWN": 2,
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "UNAUTHENTICATED": 16,
}
"""google.rpc.Code."""

_TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main."


class ApiError(Exception):
    """An HTTP error in Google's shape. `status` is a name of google.rpc.Code; by default that of the HTTP code."""

    def __init__(self, code: int, message: str, *, status: str = "", details: list[Json] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.body = error_body(code, message, status=status, details=details)


def error_body(code: int, message: str, *, status: str = "", details: list[Json] | None = None) -> Json:
    error: Json = {"code": code, "message": message, "status": status or RPC_OF_HTTP.get(code, "UNKNOWN")}
    return {"error": {**error, "details": details} if details else error}


def new_id(length: int) -> str:
    """Unlike the answers, ids differ between runs: a ledger may outlive the simulator."""
    return (uuid.uuid4().hex + uuid.uuid4().hex)[:length]


def rfc3339(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(slots=True)
class StoredFile:
    """`generated`: a result file, which can be downloaded; an uploaded one cannot."""

    name: str
    display_name: str
    mime_type: str
    data: bytes
    created_at: float
    expires_at: float | None
    generated: bool = False
    readable_from: float = 0
    """Virtual moment before which the content answers 404."""

    def to_json(self) -> Json:
        shown: Json = {
            "name": self.name,
            "displayName": self.display_name,
            "mimeType": self.mime_type,
            "sizeBytes": str(len(self.data)),
            "createTime": rfc3339(self.created_at),
            "updateTime": rfc3339(self.created_at),
            "uri": f"https://generativelanguage.googleapis.com/v1beta/{self.name}",
            "state": "ACTIVE",
            "source": "GENERATED" if self.generated else "UPLOADED",
        }
        if self.expires_at is not None:
            shown["expirationTime"] = rfc3339(self.expires_at)
        return without_zeros(shown)


@dataclass(slots=True)
class Batch:
    """`input_file` "" is a batch of inline requests. `plan` is the fate that the scenario gave this job."""

    name: str
    method: str
    model: str
    marker: str
    input_file: str
    created_at: float
    plan: JobPlan
    state: str = "PENDING"
    shown_state: str = ""
    """What GET says instead of `state`, for scenarios with odd states."""
    updated_at: float = 0
    ended_at: float = 0
    running_at: float = 0
    output_file: str | None = None
    inline_output: list[Json] | None = None
    error: Json | None = None
    counts: Counts = field(default_factory=Counts)
    tokens: Tokens = field(default_factory=Tokens)
    queued_tokens: int = 0
    listed_from: float = 0
    gone: bool = False

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    def enter(self, state: str, moment: float) -> None:
        self.state, self.updated_at = state, moment
        if self.terminal:
            self.ended_at = moment

    def to_json(self, *, inline: bool = True) -> Json:
        """The operation. Lists leave out inline results."""
        kind = "EmbedContentBatch" if self.method == EMBED else "GenerateContentBatch"
        output = self._output(inline=inline)
        metadata = without_zeros(
            {
                "@type": f"{_TYPE}{kind}",
                "model": f"models/{self.model}",
                "displayName": self.marker,
                "inputConfig": {"fileName": self.input_file} if self.input_file else None,
                "output": output,
                "createTime": rfc3339(self.created_at),
                "endTime": rfc3339(self.ended_at) if self.terminal else None,
                "updateTime": rfc3339(self.updated_at or self.created_at),
                "batchStats": self._stats(),
                "state": f"BATCH_STATE_{self.shown_state or self.state}",
                "name": self.name,
            }
        )
        shown: Json = {"name": self.name, "metadata": metadata}
        if self.terminal:
            shown["done"] = True
            if self.error is not None:
                shown["error"] = self.error
            elif output is not None:
                shown["response"] = {"@type": f"{_TYPE}{kind}Output", **output}
        return shown

    def _output(self, *, inline: bool) -> Json | None:
        if self.output_file is not None:
            return {"responsesFile": self.output_file}
        if self.inline_output is not None and inline:
            return {"inlinedResponses": {"inlinedResponses": self.inline_output}}
        return None

    def _stats(self) -> Json:
        total, done, failed = self.counts.total, self.counts.completed, self.counts.failed
        if "wrong_counts" in self.plan.faults and self.terminal:
            total, done, failed = total + 3, total + 2, failed + 1
        pending = max(0, total - done - failed)
        numbers = {"requestCount": total, "successfulRequestCount": done, "failedRequestCount": failed}
        numbers["pendingRequestCount"] = 0 if self.terminal else pending
        return {name: str(number) for name, number in numbers.items() if number}


def without_zeros(fields: dict[str, Any]) -> Json:
    return {name: value for name, value in fields.items() if value not in (None, "", 0, {}, [])}
