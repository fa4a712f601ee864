"""Submit at most once: what may be done next for a submission, decided from its ledger row alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from tallybatch.domain.identity import submission_key
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.rows import Evidence, Submission

_S = SubmissionState

Change = Callable[[Submission], Submission | None]
"""A pure change of a row; None leaves it as it is."""

SEARCH_MARGIN_S = 600
"""How much older than a claim a provider's job may look, for clocks that differ."""

_QUOTA_WAIT_S = 60
_QUOTA_WAIT_MAX_S = 1800

CREATE_TIMEOUT_S = 60
"""How long a create call may be under way before its caller gives up on an answer."""


class Next(Enum):
    CLAIM = "claim"
    """Nobody has claimed this generation: claim it by a conditional write, then create."""
    RESOLVE = "resolve"
    """Somebody may have created: look for the marker, never create."""
    WAIT = "wait"
    DONE = "done"
    """A provider job is bound, or there is nothing to submit, or the provider has refused for good."""


@dataclass(frozen=True, slots=True)
class SubmitRules:
    """`settle_window_s`: how long after the last moment at which a lost create could have been carried out the marker
    must stay absent from the provider's list before absence counts as proven."""

    settle_window_s: float
    create_within_s: float


def next_step(row: Submission | None, now: float) -> Next:
    if row is None:
        return Next.CLAIM
    if row.state is _S.QUOTA_REFUSED:
        return Next.WAIT if now < row.not_before else Next.CLAIM
    if row.state in (_S.SUBMITTING, _S.SUBMIT_UNKNOWN):
        return Next.RESOLVE
    return Next.DONE


def claim(row: Submission, *, owner: str, now: float, rules: SubmitRules) -> Submission:
    """The row with which `owner` takes the exclusive right to send create, once."""
    return replace(
        row,
        state=_S.SUBMITTING,
        owner=owner,
        first_claimed_at=row.first_claimed_at or now,
        claimed_at=now,
        create_by=now + rules.create_within_s,
        updated_at=now,
        unknown_since=0,
        evidence=(),
    )


def generation_key(row: Submission, generation: int) -> str:
    """The marker of one generation of a submission."""
    return submission_key(
        job_key=row.job_key,
        shard_sha256=row.shard_sha256,
        attempt=row.attempt,
        generation=generation,
        home=row.home,
    )


def next_generation(row: Submission, now: float) -> Submission:
    """The row of the generation after a proven absence or a refusal; its marker is a new one."""
    generation = row.generation + 1
    marker = generation_key(row, generation)
    earlier = (*row.earlier_jobs, row.provider_job_id) if row.provider_job_id else row.earlier_jobs
    proof = [look for look in row.evidence if look.complete][-1:] if row.state is _S.SUBMIT_UNKNOWN else []
    return replace(
        row,
        generation=generation,
        submission_key=marker,
        provider_job_id="",
        provider_state="",
        earlier_jobs=earlier,
        earlier_files=(*row.earlier_files, row.file_id) if row.file_id else row.earlier_files,
        file_id="",
        refusal="",
        untried=False,
        absences=(*row.absences, *proof),
        updated_at=now,
    )


def bind(
    row: Submission,
    provider_job_id: str,
    now: float,
    *,
    ghosts: tuple[str, ...] = (),
    generation: int | None = None,
) -> Submission | None:
    """Tie the provider's job of `generation` (default: the row's own) to the row. If the row has a job already, or has
    gone on to another generation, the job is noted as a ghost instead. None if the row knows all this already."""
    if row.provider_job_id == provider_job_id and not set(ghosts) - set(row.ghosts):
        return None
    if row.provider_job_id or generation not in (None, row.generation):
        known = {row.provider_job_id, *row.ghosts, *row.earlier_jobs}
        new = tuple(job for job in (provider_job_id, *ghosts) if job not in known)
        return replace(row, ghosts=row.ghosts + new, updated_at=now) if new else None
    return replace(
        row,
        state=_S.SUBMITTED,
        provider_job_id=provider_job_id,
        refusal="",
        submitted_at=now,
        updated_at=now,
        ghosts=row.ghosts + ghosts,
    )


_WAITS_FOR_A_JOB = frozenset({_S.SUBMITTING, _S.SUBMIT_UNKNOWN, _S.QUOTA_REFUSED})


def settle(row: Submission, provider_job_id: str, marker: str, now: float) -> Submission | None:
    """The row after a job was met at its provider: bound if the marker's generation waits for one, else a ghost. None
    if the row knows it."""
    if provider_job_id in jobs_of(row):
        return None
    waits = row.submission_key == marker and not row.provider_job_id and row.state in _WAITS_FOR_A_JOB
    return bind(row, provider_job_id, now, generation=row.generation if waits else row.generation - 1)


def jobs_of(row: Submission) -> frozenset[str]:
    """Every provider job that the row knows."""
    return frozenset({row.provider_job_id, *row.earlier_jobs, *row.ghosts} - {""})


def quota_wait_s(row: Submission) -> float:
    """Pause after a refusal for lack of quota that names none itself: doubled with each, up to half an hour."""
    doubled: int = _QUOTA_WAIT_S * 2**row.quota_refusals
    return min(doubled, _QUOTA_WAIT_MAX_S)


def note_absence(row: Submission, evidence: Evidence) -> Submission:
    """The row after a look that did not find the marker."""
    return replace(
        row,
        state=_S.SUBMIT_UNKNOWN,
        unknown_since=row.unknown_since or evidence.at,
        evidence=(*row.evidence[-19:], evidence),
        updated_at=evidence.at,
    )


def absence_is_proven(row: Submission, now: float, rules: SubmitRules) -> bool:
    """Whether a complete look was made after the settle window of the last possible create had passed."""
    settled_at = row.create_by + CREATE_TIMEOUT_S + rules.settle_window_s
    return now >= settled_at and any(look.complete and look.at >= settled_at for look in row.evidence)
