"""The service's job object, read into `ports.ProviderJob` from the reply's own bytes: an older SDK drops new members.

Source of members and states: botocore bedrock 2023-04-20 (GetModelInvocationJobResponse, ModelInvocationJobStatus).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from tallybatch.adapters.providers.bedrock.codes import ACCESS_DENIED, job_failure
from tallybatch.adapters.providers.common.failures import scrubbed
from tallybatch.domain.outcomes import OutcomeClass, Usage
from tallybatch.ports import JobError, ProviderJob, ProviderState

STATES: Mapping[str, ProviderState] = {
    "Submitted": ProviderState.SUBMITTED,
    "Validating": ProviderState.SUBMITTED,
    "Scheduled": ProviderState.QUEUED,
    "InProgress": ProviderState.RUNNING,
    "Stopping": ProviderState.CANCELLING,
    "Completed": ProviderState.DONE,
    "PartiallyCompleted": ProviderState.DONE,
    "Stopped": ProviderState.CANCELLED,
    "Expired": ProviderState.EXPIRED,
    "Failed": ProviderState.FAILED,
}

_COUNTS = {"total": "totalRecordCount", "completed": "successRecordCount", "failed": "errorRecordCount"}


class _S3Output(msgspec.Struct):
    s3Uri: str = ""  # noqa: N815 - the wire's names


class _OutputConfig(msgspec.Struct):
    s3OutputDataConfig: _S3Output | None = None  # noqa: N815


class _Job(msgspec.Struct):
    jobArn: str  # noqa: N815
    jobName: str | None = None  # noqa: N815
    clientRequestToken: str | None = None  # noqa: N815
    status: str | None = None
    message: str | None = None
    submitTime: str | None = None  # noqa: N815
    outputDataConfig: _OutputConfig | None = None  # noqa: N815
    totalRecordCount: int | None = None  # noqa: N815
    successRecordCount: int | None = None  # noqa: N815
    errorRecordCount: int | None = None  # noqa: N815


class _Manifest(msgspec.Struct):
    totalRecordCount: int = 0  # noqa: N815
    successRecordCount: int = 0  # noqa: N815
    errorRecordCount: int = 0  # noqa: N815
    inputTokenCount: int | None = None  # noqa: N815
    outputTokenCount: int | None = None  # noqa: N815


class Page(msgspec.Struct):
    invocationJobSummaries: list[msgspec.Raw] = []  # noqa: N815
    nextToken: str | None = None  # noqa: N815


_job = msgspec.json.Decoder(_Job, strict=False).decode
_manifest = msgspec.json.Decoder(_Manifest, strict=False).decode
read_page = msgspec.json.Decoder(Page).decode
"""One page of the job list; each summary stays as the bytes received. Raises `ValueError`."""


class Read(msgspec.Struct, frozen=True):
    """`output_uri` is below what create was told: the prefix of this very job, with a final slash. `job` has no
    channels yet: those are listed in S3."""

    job: ProviderJob
    name: str
    output_uri: str


def read_job(raw: bytes) -> Read:
    """Raises `ValueError` if `raw` is no job. A status we do not know is UNKNOWN, which is not terminal."""
    found = _job(raw)
    if not found.jobArn:
        raise ValueError("not a job object")
    status = found.status or ""
    state = STATES.get(status, ProviderState.UNKNOWN)
    errors: tuple[JobError, ...] = ()
    failure = None
    if state is ProviderState.FAILED:
        message = found.message or ""
        code, failure = job_failure(message)
        errors = (JobError(code, scrubbed(message)),)
    job = ProviderJob(
        id=found.jobArn,
        state=state,
        raw_state=status,
        marker=found.clientRequestToken or "",
        raw=raw,
        created_at=_seconds(found.submitTime),
        counts=_counts(found),
        errors=errors,
        failure=failure,
        untried=failure is OutcomeClass.RETRYABLE and errors[0].code == ACCESS_DENIED,
    )
    told = found.outputDataConfig.s3OutputDataConfig if found.outputDataConfig else None
    base = told.s3Uri.rstrip("/") if told else ""
    return Read(job, found.jobName or "", f"{base}/{found.jobArn.rpartition('/')[2]}/" if base else "")


def with_manifest(job: ProviderJob, manifest: bytes) -> ProviderJob:
    """The job with the larger of its own counts and those of `manifest.json.out`: Get may tell zeros, or none. The
    manifest alone tells tokens (user guide, "View the results of a batch inference job")."""
    try:
        found = _manifest(manifest)
    except (ValueError, RecursionError):
        return job
    told = _counts(found)
    counts = {name: max(job.counts.get(name, 0), told.get(name, 0)) for name in {*job.counts, *told}}
    return replace(job, counts=counts, usage=_usage(found))


def _usage(found: _Manifest) -> Usage | None:
    if found.inputTokenCount is None and found.outputTokenCount is None:
        return None
    return Usage(input=found.inputTokenCount or 0, output=found.outputTokenCount or 0)


def _counts(found: _Job | _Manifest) -> dict[str, int]:
    return {name: value for name, member in _COUNTS.items() if (value := getattr(found, member)) is not None}


def _seconds(moment: str | None) -> float:
    """Unix seconds of an ISO 8601 moment, 0 if there is none."""
    try:
        told = datetime.fromisoformat(moment or "")
    except ValueError:
        return 0
    return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
