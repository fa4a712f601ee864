"""Sweep: what the providers have of ours against what the ledger knows, and jobs that nobody works on any more.

Nothing here creates a provider job. Without `cancel`, no provider job is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tallybatch.contracts import FailInput, SweepReply, SweepRequest
from tallybatch.domain.errors import TallybatchError
from tallybatch.domain.lifecycle import JOB_FINAL, JobState, SubmissionState
from tallybatch.domain.quotas import ADMISSION
from tallybatch.domain.rows import Job
from tallybatch.ports import Clock, Events, Executions, Ledger, Objects, ProviderApi
from tallybatch.steps import budget, fail_job, provider_files, quota_sweep
from tallybatch.steps.provider_sweep import Findings, ProviderSweep
from tallybatch.steps.reopening import is_stopped, start_again
from tallybatch.steps.submit_shard import place_of

UNTOUCHED_S = 900
"""A job whose row has changed within this time is left alone: its execution may be about to start."""
MAX_RUNS = 20
"""A job that was started so often needs a person, not another start."""
DELETE_FOR_S = 300
"""What is left after this time is deleted by the next sweep."""
_DAY_S = 86_400
_UNKNOWN = frozenset({SubmissionState.SUBMITTING, SubmissionState.SUBMIT_UNKNOWN})


@dataclass(frozen=True, slots=True)
class Ports:
    ledger: Ledger
    providers: Mapping[str, ProviderApi]
    """Every provider that can have jobs of ours, by name."""
    events: Events
    executions: Executions
    clock: Clock
    objects: Objects
    """The pipeline's own bucket."""
    keep_files_s: float = -1
    """How long after a job's certificate its files stay at the provider; below 0: they are left there."""


def run(request: SweepRequest, ports: Ports) -> SweepReply:
    """Providers first: a job that is adopted is one that a restarted execution need not look for."""
    since = ports.clock.now() - request.lookback_hours * 3600
    found = Findings()
    for _, provider in sorted(ports.providers.items()):
        sweep = ProviderSweep(provider, ports.ledger, ports.objects, ports.events, ports.clock, found)
        sweep.run(since=since, cancel=request.cancel)
    restarted: list[str] = []
    stale: list[str] = []
    for job in _jobs(since, ports.ledger):
        _end_if_given_up(job, ports, found)
        if job.state in JOB_FINAL:
            budget.end(job, ports.ledger, ports.clock)
        if started := _restarted(job, ports):
            restarted.append(started)
        elif _is_given_up(job):
            stale.extend(_unknown_submissions(job, ports.ledger))
    return SweepReply(
        checked=found.checked,
        known=found.known,
        orphans=found.orphans,
        adopted=found.adopted,
        cancelled=found.cancelled,
        restarted=restarted,
        stale=stale,
        released=quota_sweep.run(ports.ledger, ports.providers, ports.clock, found),
        deleted_files=_delete_files(since, ports, found),
        gaps=found.gaps,
    )


def _jobs(since: float, ledger: Ledger) -> Iterator[Job]:
    """Those created since then, and older ones that are at work: resumed, decided about, or dropped anew."""
    seen = set()
    for job in ledger.jobs(since=since):
        seen.add(job.job_key)
        yield job
    for hold in ledger.quota_holds(ADMISSION):
        if hold.job_key not in seen and (older := ledger.job(hold.job_key)) is not None:
            yield older


def _end_if_given_up(job: Job, ports: Ports, found: Findings) -> None:
    """A job that nobody will start again ends FAILED: what it holds is given back, and a person can resume it."""
    if job.run < MAX_RUNS or not _is_abandoned(job, ports):
        return
    told = {"Error": "GivenUp", "Cause": f"its execution was started {job.run} times and never came to an end"}
    request = FailInput(tenant=job.tenant, job_key=job.job_key, attempt=job.attempt, error=told)
    try:
        fail_job.run(request, fail_job.Ports(ports.objects, ports.ledger, ports.events, ports.clock))
    except TallybatchError as error:
        found.note(job.provider, str(error))


def _delete_files(since: float, ports: Ports, found: Findings) -> int:
    """Of jobs that are due. A provider that does not answer is asked again by the next sweep."""
    if ports.keep_files_s < 0:
        return 0
    began = ports.clock.now()
    deleting = provider_files.Ports(ports.objects, ports.ledger, ports.providers, ports.clock)
    deleted = 0
    away: set[str] = set()
    for job in ports.ledger.jobs(since=since - ports.keep_files_s - _DAY_S):
        if job.provider in away or not provider_files.is_due(job, began, ports.keep_files_s):
            continue
        if ports.clock.now() > began + DELETE_FOR_S:
            break
        try:
            deleted += provider_files.run(job, deleting)
        except TallybatchError as error:
            away.add(job.provider)
            found.note(job.provider, str(error))
    return deleted


def _restarted(job: Job, ports: Ports) -> str:
    """The name of the execution that was started for a job that is stopped, "" for a job that is well or was left
    alone."""
    if job.run >= MAX_RUNS or not _is_abandoned(job, ports):
        return ""
    again = start_again(job, ports.objects.bucket, ports.ledger, ports.executions, ports.clock)
    return again.execution_name if again is not None else ""


def _is_abandoned(job: Job, ports: Ports) -> bool:
    """Stopped, and untouched for long enough that nobody is about to start it."""
    return job.updated_at <= ports.clock.now() - UNTOUCHED_S and is_stopped(job, ports.executions)


def _is_given_up(job: Job) -> bool:
    """Whether no execution works on the job, nor will."""
    return (job.state in JOB_FINAL and job.state is not JobState.COMPLETED) or job.run >= MAX_RUNS


def _unknown_submissions(job: Job, ledger: Ledger) -> Iterator[str]:
    """A job may exist at the provider for each of these, and would be found by the next sweep or the next run."""
    rows = ledger.submissions(job.job_key)
    return (place_of(row) for row in rows if row.state in _UNKNOWN and not row.provider_job_id)
