"""Files, batches and errors as the OpenAI API shows them [openai SDK types/batch.py, types/file_object.py]."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from infra.local.simulator.execution import Counts, Json
from infra.local.simulator.faults import JobPlan
from infra.local.simulator.journal import MARKER_KEY, Tokens

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
ENDPOINTS = (CHAT, RESPONSES, EMBEDDINGS)
TERMINAL = frozenset({"completed", "failed", "expired", "cancelled"})


class ApiError(Exception):
    """An HTTP error in OpenAI's shape."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body = error_body(message, kind=kind, param=param, code=code)


def error_body(message: str, *, kind: str, param: str | None = None, code: str | None = None) -> Json:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def new_id(prefix: str) -> str:
    """Unlike the answers, ids differ between runs: a ledger may outlive the simulator."""
    return prefix + uuid.uuid4().hex[:24]


@dataclass(slots=True)
class StoredFile:
    id: str
    filename: str
    purpose: str
    data: bytes
    created_at: float
    expires_at: float | None
    readable_from: float = 0
    """Virtual moment before which the content answers 404."""

    def to_json(self) -> Json:
        return {
            "id": self.id,
            "object": "file",
            "bytes": len(self.data),
            "created_at": int(self.created_at),
            "expires_at": None if self.expires_at is None else int(self.expires_at),
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


@dataclass(slots=True)
class Batch:
    """`moments` holds the `*_at` fields that are set; `plan` is the fate that the scenario gave this job."""

    id: str
    endpoint: str
    input_file_id: str
    metadata: dict[str, str] | None
    created_at: float
    expires_at: float
    output_files_live_s: float
    plan: JobPlan
    status: str = "validating"
    model: str | None = None
    errors: list[Json] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    counts: Counts = field(default_factory=Counts)
    tokens: Tokens = field(default_factory=Tokens)
    moments: dict[str, float] = field(default_factory=dict)
    shown_status: str = ""
    """What GET says instead of `status`, for scenarios with odd states."""
    listed_from: float = 0
    gone: bool = False

    @property
    def marker(self) -> str:
        return (self.metadata or {}).get(MARKER_KEY, "")

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    def enter(self, status: str, moment: float) -> None:
        self.status = status
        self.moments[f"{status}_at"] = moment

    def to_json(self) -> Json:
        counts = {"total": self.counts.total, "completed": self.counts.completed, "failed": self.counts.failed}
        if "wrong_counts" in self.plan.faults and self.terminal:
            counts = {"total": counts["total"] + 3, "completed": counts["total"] + 2, "failed": counts["failed"] + 1}
        absent = "" if "empty_string_ids" in self.plan.faults and self.terminal else None
        stamps = ("in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at")
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "model": self.model,
            "errors": None if self.errors is None else {"object": "list", "data": self.errors},
            "input_file_id": self.input_file_id,
            "completion_window": "24h",
            "status": self.shown_status or self.status,
            "output_file_id": self.output_file_id or absent,
            "error_file_id": self.error_file_id or absent,
            "created_at": int(self.created_at),
            "expires_at": int(self.expires_at),
            **{name: _seconds(self.moments.get(name)) for name in (*stamps, "cancelled_at")},
            "request_counts": counts,
            "usage": self._usage(),
            "metadata": self.metadata,
        }

    def _usage(self) -> Json:
        return {
            "input_tokens": self.tokens.input,
            "input_tokens_details": {"cached_tokens": self.tokens.cached_input},
            "output_tokens": self.tokens.output,
            "output_tokens_details": {"reasoning_tokens": self.tokens.reasoning},
            "total_tokens": self.tokens.input + self.tokens.output,
        }


def _seconds(moment: float | None) -> int | None:
    return None if moment is None else int(moment)
