"""A provider job that was met by its marker: bound where its generation waits for one, else a ghost, never both."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tallybatch.domain.lifecycle import SubmissionState, submission_may_move
from tallybatch.domain.submitting import jobs_of, next_generation, settle
from tests.support import rows

NOW = 2_000.0
WAITING = {SubmissionState.SUBMITTING, SubmissionState.SUBMIT_UNKNOWN, SubmissionState.QUOTA_REFUSED}


@pytest.mark.parametrize("state", list(SubmissionState))
def test_given_a_row_without_a_job_when_its_own_generations_is_met_then_it_is_bound_only_while_the_row_waits(
    state: SubmissionState,
) -> None:
    row = rows.submission(state=state, provider_job_id="", ghosts=(), earlier_jobs=())
    settled = settle(row, "job-1", row.submission_key, NOW)
    assert settled is not None
    if state in WAITING:
        assert (settled.state, settled.provider_job_id, settled.ghosts) == (SubmissionState.SUBMITTED, "job-1", ())
        assert submission_may_move(state, settled.state)
    else:
        assert (settled.state, settled.provider_job_id, settled.ghosts) == (state, "", ("job-1",))
    assert settle(settled, "job-1", row.submission_key, NOW) is None


@pytest.mark.parametrize("state", list(SubmissionState))
def test_given_a_later_generation_when_an_older_ones_job_is_met_then_it_is_a_ghost(state: SubmissionState) -> None:
    first = rows.submission(provider_job_id="", ghosts=(), earlier_jobs=())
    second = replace(next_generation(first, NOW), state=state)
    settled = settle(second, "job-1", first.submission_key, NOW)
    assert settled == replace(second, ghosts=("job-1",), updated_at=NOW)


def test_given_a_bound_row_when_another_job_of_its_marker_is_met_then_it_is_a_ghost() -> None:
    row = rows.submission(state=SubmissionState.RUNNING, provider_job_id="job-1", ghosts=(), earlier_jobs=())
    settled = settle(row, "job-2", row.submission_key, NOW)
    assert settled is not None
    assert (settled.provider_job_id, settled.ghosts, settled.state) == ("job-1", ("job-2",), SubmissionState.RUNNING)
    assert jobs_of(settled) == {"job-1", "job-2"}


@pytest.mark.parametrize("known", ["job-1", "ghost-1", "earlier-1"])
def test_given_a_job_that_the_row_knows_when_met_again_then_nothing_changes(known: str) -> None:
    row = rows.submission(provider_job_id="job-1", ghosts=("ghost-1",), earlier_jobs=("earlier-1",))
    assert settle(row, known, row.submission_key, NOW) is None
