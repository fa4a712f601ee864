"""The provider's batch, an Operation, read into `ports.ProviderJob` from the raw reply.

The SDK's own reading drops `batchStats` and the operation's `error` (SDK 3.6 batches.py `_BatchJob_from_mldev`;
googleapis/python-genai#1323). On the wire int64 are strings, and what is zero or empty is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from tallybatch.adapters.providers.common.failures import scrubbed
from tallybatch.adapters.providers.common.walk import ListPage, read_items
from tallybatch.adapters.providers.gemini.codes import JOB_FAILURES, QUOTA_JOB_CODES, code_name
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.ports import JobError, ProviderJob, ProviderState

STATES: Mapping[str, ProviderState] = {
    "PENDING": ProviderState.SUBMITTED,
    "QUEUED": ProviderState.QUEUED,
    "RUNNING": ProviderState.RUNNING,
    "CANCELLING": ProviderState.CANCELLING,
    "SUCCEEDED": ProviderState.DONE,
    "PARTIALLY_SUCCEEDED": ProviderState.DONE,
    "FAILED": ProviderState.FAILED,
    "CANCELLED": ProviderState.CANCELLED,
    "EXPIRED": ProviderState.EXPIRED,
}
"""Without their prefix: the guide writes `JOB_STATE_`, the wire `BATCH_STATE_`."""


class _Stats(msgspec.Struct, rename="camel"):
    request_count: int = 0
    successful_request_count: int = 0
    failed_request_count: int = 0


class _Output(msgspec.Struct, rename="camel"):
    responses_file: str | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    display_name: str = ""
    state: str = ""
    create_time: str = ""
    output: _Output | None = None
    batch_stats: _Stats | None = None


class _Operation(msgspec.Struct):
    name: str
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    done: bool = False
    error: Any = None
    response: _Output | None = None


class _Page(msgspec.Struct, rename="camel"):
    operations: list[msgspec.Raw] = []
    next_page_token: str = ""


_operation = msgspec.json.Decoder(_Operation, strict=False).decode
_page = msgspec.json.Decoder(_Page).decode


def read_job(raw: bytes) -> ProviderJob:
    """Raises `ValueError` if `raw` is no batch. A state we do not know is UNKNOWN, which is not terminal."""
    batch = _operation(raw)
    if not batch.name.startswith("batches/"):
        raise ValueError("not a batch")
    about = batch.metadata
    outputs = (about.output, batch.response)
    file = next((output.responses_file for output in outputs if output is not None and output.responses_file), "")
    state = _state(batch, has_output=bool(file))
    errors = _errors(batch.error)
    counts = _counts(about.batch_stats)
    without_results = state is ProviderState.FAILED and not file
    codes = {error.code for error in errors}
    ran = counts.get("completed", 0) + counts.get("failed", 0) > 0
    quota_refused = without_results and not ran and not QUOTA_JOB_CODES.isdisjoint(codes)
    failure = next((JOB_FAILURES[code] for code in codes if code in JOB_FAILURES), None)
    return ProviderJob(
        id=batch.name,
        state=state,
        raw_state=about.state,
        marker=about.display_name,
        raw=raw,
        created_at=_unix(about.create_time),
        channels={"output": file} if file else {},
        counts=counts,
        errors=errors,
        quota_refused=quota_refused,
        failure=failure if without_results and not quota_refused else None,
        untried=failure is OutcomeClass.RETRYABLE and without_results,
    )


def read_page(raw: bytes) -> ListPage:
    """One page of the job list. Raises `ValueError`."""
    page = _page(raw)
    jobs, readable = read_items(map(bytes, page.operations), read_job)
    return ListPage(tuple(jobs), page.next_page_token, bool(page.next_page_token), readable)


def _state(batch: _Operation, *, has_output: bool) -> ProviderState:
    """By its name; an operation that is done without one by what it ended with."""
    word = batch.metadata.state.removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")
    known = STATES.get(word)
    if known is not None:
        return known
    if batch.done and word in ("", "UNSPECIFIED"):
        if batch.error:
            return ProviderState.FAILED
        return ProviderState.DONE if has_output else ProviderState.UNKNOWN
    return ProviderState.UNKNOWN


def _errors(error: Any) -> tuple[JobError, ...]:
    if not isinstance(error, dict) or not error:
        return ()
    number, status = error.get("code"), error.get("status")
    code = number if isinstance(number, int) else 0
    name = code_name(code, status if isinstance(status, str) else "") or (f"code_{code}" if code else "failed")
    return (JobError(code=name, message=scrubbed(str(error.get("message") or ""))),)


def _counts(stats: _Stats | None) -> dict[str, int]:
    if stats is None:
        return {}
    return {
        "total": stats.request_count,
        "completed": stats.successful_request_count,
        "failed": stats.failed_request_count,
    }


def _unix(text: str) -> float:
    """RFC 3339 to Unix seconds; 0 if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
