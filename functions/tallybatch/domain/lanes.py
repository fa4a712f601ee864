"""How records reach their provider: in a job, or one by one; what becomes of too few, and what a near deadline does."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.rows import ON_DEMAND, ON_DEMAND_JOB, Lane, Submission
from tallybatch.domain.spec import Spec

PIECE_RECORDS = 25
"""Records of one on-demand shard at most: the Map over shards is what makes calls concurrent, and a shard that is lost
has few of them."""
TOO_FEW = OutcomeClass.TOO_FEW.value
"""Code of records that are kept because they are too few."""
RESCUE = "rescue"
"""Code of records that were left for the on-demand lane because the deadline is near."""
KEPT_BACK = {
    TOO_FEW: "not sent: fewer records than the provider takes in one job",
    RESCUE: "not sent in a job: the deadline is near",
}
"""Reasons by code."""
_RESCUE_PAUSE_S = 30
_RESCUE_SHARE = 8


def lane_for(spec: Spec, *, records: int, least: int, rescue: bool) -> Lane:
    """`least`: records that a provider job must have; `rescue`: the deadline is so near that no job is waited for."""
    too_few = records < least and spec.retry.small_set == ON_DEMAND
    return ON_DEMAND if spec.lane == ON_DEMAND or rescue or too_few else "batch"


def rescue_at(spec: Spec, deadline_at: float) -> int:
    """Unix seconds from which on nothing is left to provider jobs; 0 is never."""
    rescue = spec.retry.deadline_rescue
    return int(deadline_at - rescue.total_seconds()) if rescue is not None and 0 < deadline_at < math.inf else 0


def pause_s(wait_s: int, spec: Spec, *, now: float, deadline_at: float) -> int:
    """The pause before the next attempt, cut short where a rescue is due. Within the rescue's time it is a share of
    what is left, so that the rounds of a job that waits for others stay few."""
    at = rescue_at(spec, deadline_at)
    if not at:
        return wait_s
    if now < at:
        return min(wait_s, max(1, round(at - now)))
    return min(wait_s, max(_RESCUE_PAUSE_S, round((deadline_at - now) / _RESCUE_SHARE)))


def opened(row: Submission, now: float) -> Submission:
    """The row of a submission whose records are asked one by one; nothing has been sent yet."""
    return replace(
        row,
        state=SubmissionState.SUBMITTED,
        lane=ON_DEMAND,
        provider_job_id=ON_DEMAND_JOB,
        first_claimed_at=row.first_claimed_at or now,
        submitted_at=now,
        updated_at=now,
    )


def kept_back(row: Submission, now: float, *, code: str, outcome: OutcomeClass) -> Submission:
    """The row of a submission whose records are not sent: each has this outcome, and no try is used up."""
    return replace(
        row,
        state=SubmissionState.EMPTY,
        refusal="",
        refusal_code=code,
        refusal_class=outcome.value,
        untried=True,
        input_records=0,
        updated_at=now,
    )
