"""The provider's batch object, read into `ports.ProviderJob`.

Source of fields and states: SDK 3.57 types/batch.py and the vendor's Batch guide. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tallybatch.adapters.providers.common.failures import scrubbed
from tallybatch.adapters.providers.common.walk import ListPage, read_items
from tallybatch.adapters.providers.openai.codes import QUOTA_CODES, job_failure
from tallybatch.domain.outcomes import OutcomeClass, Usage
from tallybatch.ports import JobError, ProviderJob, ProviderState

MARKER = "tallybatch_submission"
"""Key in the batch's `metadata` that carries the submission_key."""

STATES: Mapping[str, ProviderState] = {
    "validating": ProviderState.SUBMITTED,
    "in_progress": ProviderState.RUNNING,
    "finalizing": ProviderState.FINALIZING,
    "cancelling": ProviderState.CANCELLING,
    "completed": ProviderState.DONE,
    "cancelled": ProviderState.CANCELLED,
    "expired": ProviderState.EXPIRED,
    "failed": ProviderState.FAILED,
}


class _Batch(msgspec.Struct):
    id: str
    object: str = "batch"
    status: str = ""
    created_at: float | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    metadata: dict[str, Any] | None = None
    request_counts: dict[str, Any] | None = None
    errors: Any = None
    usage: Any = None


class _Page(msgspec.Struct):
    data: list[msgspec.Raw] = []
    has_more: bool = False
    last_id: str | None = None


_batch = msgspec.json.Decoder(_Batch, strict=False).decode
_page = msgspec.json.Decoder(_Page).decode


def read_job(raw: bytes) -> ProviderJob:
    """Raises `ValueError` if `raw` is no batch object. A status we do not know is UNKNOWN, which is not terminal."""
    batch = _batch(raw)
    if not batch.id or batch.object != "batch":
        raise ValueError("not a batch object")
    errors = _errors(batch.errors)
    channels = {"output": batch.output_file_id or "", "error": batch.error_file_id or ""}
    channels = {name: file_id for name, file_id in channels.items() if file_id}
    state = STATES.get(batch.status, ProviderState.UNKNOWN)
    marker = (batch.metadata or {}).get(MARKER)
    codes = {error.code for error in errors}
    without_results = state is ProviderState.FAILED and not channels
    quota_refused = without_results and not QUOTA_CODES.isdisjoint(codes)
    failure = job_failure(codes) if without_results and not quota_refused else None
    return ProviderJob(
        id=batch.id,
        state=state,
        raw_state=batch.status,
        marker=marker if isinstance(marker, str) else "",
        raw=raw,
        created_at=batch.created_at or 0,
        channels=channels,
        counts=_counts(batch.request_counts),
        errors=errors,
        quota_refused=quota_refused,
        failure=failure,
        untried=failure is OutcomeClass.RETRYABLE,
        usage=_usage(batch.usage),
    )


def read_page(raw: bytes) -> ListPage:
    """One page of the job list; its cursor is the id of its last job. Raises `ValueError`."""
    page = _page(raw)
    jobs, readable = read_items(map(bytes, page.data), read_job)
    return ListPage(tuple(jobs), (jobs[-1].id if jobs else "") or page.last_id or "", page.has_more, readable)


def _errors(errors: Any) -> tuple[JobError, ...]:
    data = errors.get("data") if isinstance(errors, dict) else errors
    rows = [row for row in data if isinstance(row, dict)] if isinstance(data, list) else []
    return tuple(
        JobError(
            code=str(row.get("code") or ""),
            message=scrubbed(str(row.get("message") or "")),
            line=row["line"] if isinstance(row.get("line"), int) else 0,
        )
        for row in rows
    )


def _usage(usage: Any) -> Usage | None:
    """Of the whole batch (SDK types/batch_usage.py); batches made before September 2025 do not tell it."""
    if not isinstance(usage, dict):
        return None
    told = (
        usage.get("input_tokens"),
        _detail(usage, "input_tokens_details", "cached_tokens"),
        usage.get("output_tokens"),
        _detail(usage, "output_tokens_details", "reasoning_tokens"),
    )
    return Usage(*(value if isinstance(value, int) else 0 for value in told))


def _detail(usage: dict[str, Any], group: str, name: str) -> Any:
    details = usage.get(group)
    return details.get(name) if isinstance(details, dict) else None


def _counts(counts: dict[str, Any] | None) -> dict[str, int]:
    return {
        name: value for name in ("total", "completed", "failed") if isinstance(value := (counts or {}).get(name), int)
    }
