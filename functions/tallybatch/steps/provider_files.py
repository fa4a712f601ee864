"""Sweep: a job's files at its provider are deleted once its certificate has stood for a while, and that is recorded.

Only of COMPLETED jobs: all that they were paid for lies in our bucket, under the certificate. Of a submission that was
never reconciled nothing is deleted, for its results are nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from tallybatch.domain import submitting
from tallybatch.domain.errors import Conflict, ProviderRefused
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.retention import retention_tag
from tallybatch.domain.rows import Job, Submission
from tallybatch.ports import Clock, Ledger, Objects, ProviderApi
from tallybatch.steps.transitions import change_job

INPUT = "input"
_UNUSED = frozenset({SubmissionState.EMPTY, SubmissionState.REFUSED})


class DeletedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file at a provider. `outcome` is `deleted`; `absent`: the provider says that it has no such file; `refused`:
    it would not, for the reason `why`. `channel` is `input`, `output`, `error`, or `job`
    for a job that was deleted with its results; `at` is Unix seconds."""

    submission_key: str
    file: str
    channel: str
    outcome: str
    at: float
    provider_job_id: str = ""
    why: str = ""
    provider: str = ""
    """Where it is not the job's own."""


class Deletions(msgspec.Struct, frozen=True):
    """What is stored at `JobKeys.deletions`: the proof."""

    job_key: str
    provider: str
    certificate: str
    files: tuple[DeletedFile, ...]


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    providers: Mapping[str, ProviderApi]
    clock: Clock


def is_due(job: Job, now: float, keep_s: float) -> bool:
    """`keep_s` below zero: never."""
    sealed = job.state is JobState.COMPLETED and bool(job.certificate) and not job.provider_files_deleted_at
    return sealed and keep_s >= 0 and now >= job.updated_at + keep_s


def run(job: Job, ports: Ports) -> int:
    """Delete and record; returns how many files were deleted now. Repeated after a crash, it finds `absent` what it had
    deleted before. Raises `ProviderUnavailable` when the provider cannot tell: then nothing is recorded yet."""
    files: list[DeletedFile] = []
    for row in ports.ledger.submissions(job.job_key):
        provider = ports.providers[row.provider]
        if provider.keeps_files:
            elsewhere = "" if row.provider == job.provider else row.provider
            files += (replace(file, provider=elsewhere) for file in _delete_all(row, provider, ports.clock))
    keys = JobKeys(job.tenant, job.job_key)
    if files:
        found = Deletions(job.job_key, job.provider, job.certificate, tuple(files))
        body = msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"
        with suppress(Conflict):
            tag = retention_tag("results")
            ports.objects.put_once(keys.deletions, body, content_type="application/json", retention=tag)
    uri = ports.objects.uri(keys.deletions) if files else ""
    now = ports.clock.now()
    change_job(
        ports.ledger,
        job.job_key,
        lambda row: (
            None if row.provider_files_deleted_at else replace(row, provider_files_deleted_at=now, deletions=uri)
        ),
    )
    return sum(file.outcome == "deleted" for file in files)


def _delete_all(row: Submission, provider: ProviderApi, clock: Clock) -> Iterator[DeletedFile]:
    for file, channel, job_id in _files(row, provider):
        outcome, why = "", ""
        try:
            outcome = "deleted" if provider.delete_file(file) else "absent"
        except ProviderRefused as refused:
            outcome, why = "refused", refused.why
        yield DeletedFile(row.submission_key, file, channel, outcome, clock.now(), job_id, why)


def _files(row: Submission, provider: ProviderApi) -> Iterator[tuple[str, str, str]]:
    """(file, channel, provider job) of everything that the provider has of a submission: results first, so that what a
    crash leaves is found again by way of the job."""
    if row.state is SubmissionState.RECONCILED:
        for job_id in sorted(submitting.jobs_of(row)):
            for channel, file in sorted(provider.result_files(provider.get(job_id)).items()):
                yield file, channel, job_id
    elif row.state not in _UNUSED:
        return
    for file in dict.fromkeys((*row.earlier_files, row.file_id)):
        if file:
            yield file, INPUT, ""
