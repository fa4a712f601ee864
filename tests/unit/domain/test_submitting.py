"""Submit at most once: what may be done is decided from the row alone, and creating is the rarest answer."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from tallybatch.domain import submitting
from tallybatch.domain.identity import submission_key
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.rows import Evidence, Submission
from tallybatch.domain.submitting import CREATE_TIMEOUT_S, Next, SubmitRules
from tests.support.rows import hexdigest, submission

NOW = 1_700_000_000.0
RULES = SubmitRules(settle_window_s=900, create_within_s=60)

STEPS = {
    "SUBMITTING": Next.RESOLVE,
    "SUBMIT_UNKNOWN": Next.RESOLVE,
    "REFUSED": Next.DONE,
    "EMPTY": Next.DONE,
    "SUBMITTED": Next.DONE,
    "RUNNING": Next.DONE,
    "TERMINAL": Next.DONE,
    "COLLECTED": Next.DONE,
    "RECONCILED": Next.DONE,
}


@pytest.mark.parametrize("state", [state for state in SubmissionState if state is not SubmissionState.QUOTA_REFUSED])
@pytest.mark.parametrize("age_s", [0, 60, 3600, 10**9])
@pytest.mark.parametrize("owner", ["", "someone"])
@pytest.mark.parametrize("generation", [1, 7])
def test_given_any_row_when_asked_then_no_age_and_no_owner_turns_it_into_a_create(
    state: SubmissionState, age_s: float, owner: str, generation: int
) -> None:
    row = submission(state=state, owner=owner, generation=generation, claimed_at=NOW, create_by=NOW, updated_at=NOW)
    assert submitting.next_step(row, NOW + age_s) is STEPS[state.value]


def test_given_no_row_when_asked_then_it_may_be_claimed() -> None:
    assert submitting.next_step(None, NOW) is Next.CLAIM


@pytest.mark.parametrize(("at", "step"), [(-3600, Next.WAIT), (-0.001, Next.WAIT), (0, Next.CLAIM), (3600, Next.CLAIM)])
def test_given_a_quota_refusal_when_asked_then_it_waits_until_its_moment(at: float, step: Next) -> None:
    row = submission(state=SubmissionState.QUOTA_REFUSED, not_before=NOW)
    assert submitting.next_step(row, NOW + at) is step


def test_given_every_state_when_asked_then_each_has_its_answer() -> None:
    assert set(STEPS) | {"QUOTA_REFUSED"} == {state.value for state in SubmissionState}


def test_given_a_claim_when_made_then_the_right_to_create_ends_and_earlier_looks_count_no_more() -> None:
    row = submission(evidence=(look(1), look(2)), unknown_since=5, state=SubmissionState.SUBMIT_UNKNOWN)
    claimed = submitting.claim(row, owner="me", now=NOW, rules=RULES)
    assert (claimed.state, claimed.owner) == (SubmissionState.SUBMITTING, "me")
    assert (claimed.claimed_at, claimed.create_by, claimed.updated_at) == (NOW, NOW + 60, NOW)
    assert (claimed.evidence, claimed.unknown_since) == ((), 0)
    unchanged = ("job_key", "shard_id", "attempt", "generation", "submission_key", "version")
    assert [getattr(claimed, name) for name in unchanged] == [getattr(row, name) for name in unchanged]
    assert submitting.next_step(claimed, NOW) is Next.RESOLVE


def look(at: float, *, complete: bool = True) -> Evidence:
    return Evidence(at=at, jobs_seen=3, pages=1, complete=complete)


def claimed_row() -> Submission:
    return submitting.claim(submission(), owner="me", now=NOW, rules=RULES)


SETTLED = NOW + 60 + CREATE_TIMEOUT_S + 900
"""The last moment at which create may be sent, the time one call may take, and the provider's own window."""


@pytest.mark.parametrize(
    ("looks", "now", "proven"),
    [
        ([], SETTLED + 10_000, False),
        ([look(NOW)], SETTLED + 10_000, False),
        ([look(SETTLED - 0.001)], SETTLED + 10_000, False),
        ([look(SETTLED, complete=False)], SETTLED + 10_000, False),
        ([look(SETTLED - 1), look(SETTLED + 1, complete=False)], SETTLED + 10_000, False),
        ([look(SETTLED)], SETTLED - 0.001, False),
        ([look(SETTLED)], SETTLED, True),
        ([look(NOW), look(SETTLED)], SETTLED, True),
        ([look(SETTLED), look(SETTLED + 5, complete=False)], SETTLED + 5, True),
        ([look(SETTLED + 500)], SETTLED + 500, True),
    ],
)
def test_given_looks_when_weighed_then_only_a_complete_one_after_the_window_proves_absence(
    looks: list[Evidence], now: float, proven: bool
) -> None:
    row = claimed_row()
    for each in looks:
        row = submitting.note_absence(row, each)
    assert submitting.absence_is_proven(row, now, RULES) is proven


def test_given_a_longer_window_when_weighed_then_the_same_look_proves_nothing() -> None:
    row = submitting.note_absence(claimed_row(), look(SETTLED))
    assert submitting.absence_is_proven(row, SETTLED, RULES)
    assert not submitting.absence_is_proven(row, SETTLED, SubmitRules(settle_window_s=901, create_within_s=60))


def test_given_a_later_right_to_create_when_weighed_then_the_window_moves_with_it() -> None:
    row = submitting.claim(submission(), owner="me", now=NOW, rules=SubmitRules(900, create_within_s=90))
    row = submitting.note_absence(row, look(SETTLED + 29))
    assert not submitting.absence_is_proven(row, SETTLED + 29, RULES)
    assert submitting.absence_is_proven(submitting.note_absence(row, look(SETTLED + 30)), SETTLED + 30, RULES)


def test_given_look_after_look_when_noted_then_the_first_moment_and_the_last_twenty_stay() -> None:
    row = claimed_row()
    for number in range(30):
        row = submitting.note_absence(row, look(NOW + number))
    assert row.state is SubmissionState.SUBMIT_UNKNOWN
    assert row.unknown_since == NOW
    assert row.updated_at == NOW + 29
    assert [each.at for each in row.evidence] == [NOW + number for number in range(10, 30)]
    assert submitting.next_step(row, NOW + 30) is Next.RESOLVE


@pytest.mark.parametrize(
    "state", [SubmissionState.SUBMITTING, SubmissionState.SUBMIT_UNKNOWN, SubmissionState.QUOTA_REFUSED]
)
def test_given_a_row_without_a_job_when_bound_then_the_job_and_its_ghosts_are_kept(state: SubmissionState) -> None:
    row = submission(state=state, ghosts=("old-ghost",))
    bound = submitting.bind(row, "batch_1", NOW, ghosts=("batch_2",))
    assert bound is not None
    assert (bound.state, bound.provider_job_id) == (SubmissionState.SUBMITTED, "batch_1")
    assert (bound.submitted_at, bound.updated_at) == (NOW, NOW)
    assert bound.ghosts == ("old-ghost", "batch_2")
    assert submitting.next_step(bound, NOW) is Next.DONE


@pytest.mark.parametrize("state", list(SubmissionState))
def test_given_a_bound_row_when_its_own_job_is_bound_again_then_nothing_changes(state: SubmissionState) -> None:
    row = submission(state=state, provider_job_id="batch_1", ghosts=("batch_2",))
    assert submitting.bind(row, "batch_1", NOW) is None
    assert submitting.bind(row, "batch_1", NOW, ghosts=("batch_2",), generation=1) is None


@pytest.mark.parametrize("state", list(SubmissionState))
def test_given_a_bound_row_when_another_job_is_found_then_it_is_a_ghost_once_and_never_replaces_the_bound_one(
    state: SubmissionState,
) -> None:
    row = submission(state=state, provider_job_id="batch_1", ghosts=("batch_2",), earlier_jobs=("batch_0",))
    found = submitting.bind(row, "batch_3", NOW, ghosts=("batch_1", "batch_2", "batch_0", "batch_4"))
    assert found == replace(row, ghosts=("batch_2", "batch_3", "batch_4"), updated_at=NOW)
    assert found is not None
    assert submitting.bind(found, "batch_3", NOW + 1, ghosts=("batch_4",)) is None
    assert submitting.bind(found, "batch_0", NOW + 1) is None
    assert submitting.bind(row, "batch_1", NOW, ghosts=("batch_5",)) == replace(
        row, ghosts=("batch_2", "batch_5"), updated_at=NOW
    )


@pytest.mark.parametrize("state", [SubmissionState.SUBMITTING, SubmissionState.SUBMIT_UNKNOWN])
def test_given_a_row_of_a_later_generation_when_an_earlier_ones_job_turns_up_then_it_is_a_ghost(
    state: SubmissionState,
) -> None:
    row = submission(state=state, generation=2, owner="you")
    late = submitting.bind(row, "batch_1", NOW, generation=1)
    assert late == replace(row, ghosts=("batch_1",), updated_at=NOW)
    bound = submitting.bind(late, "batch_2", NOW, generation=2)
    assert bound is not None
    assert (bound.provider_job_id, bound.ghosts, bound.state) == ("batch_2", ("batch_1",), SubmissionState.SUBMITTED)


def test_given_generations_when_they_follow_then_each_has_its_own_marker_and_keeps_every_earlier_job() -> None:
    row = submission(provider_job_id="batch_1", provider_state="failed", file_id="file_1", quota_refusals=1)
    markers = [row.submission_key]
    for number, job in ((2, "batch_2"), (3, ""), (4, "batch_4")):
        row = submitting.next_generation(row, NOW)
        assert row.generation == number
        assert (row.provider_job_id, row.provider_state, row.file_id) == ("", "", "")
        assert row.submission_key == submission_key(
            job_key=hexdigest("job"), shard_sha256=hexdigest("shard"), attempt=1, generation=number
        )
        markers.append(row.submission_key)
        row = replace(row, provider_job_id=job)
    assert row.earlier_jobs == ("batch_1", "batch_2")
    assert submitting.next_generation(row, NOW).earlier_jobs == ("batch_1", "batch_2", "batch_4")
    assert row.quota_refusals == 1
    assert all(one != other for one, other in itertools.combinations(markers, 2))


def test_given_a_lost_create_when_followed_to_the_end_then_exactly_one_second_create_is_allowed() -> None:
    """The whole protocol on one row: claim, lost, looks inside and after the window, next generation, bound."""
    row = claimed_row()
    for minutes in range(1, 20):
        at = NOW + 60 * minutes
        assert submitting.next_step(row, at) is Next.RESOLVE
        row = submitting.note_absence(row, look(at))
        assert submitting.absence_is_proven(row, at, RULES) is (minutes >= 17)
    again = submitting.claim(submitting.next_generation(row, at), owner="you", now=at, rules=RULES)
    assert not submitting.absence_is_proven(again, at + 100, RULES)
    bound = submitting.bind(again, "batch_2", at + 1)
    assert bound is not None
    assert submitting.next_step(bound, at + 10**6) is Next.DONE
    late = submitting.bind(bound, "batch_1", at + 2, generation=1)
    assert late is not None
    assert (late.provider_job_id, late.ghosts) == ("batch_2", ("batch_1",))


def test_given_generations_that_sent_files_when_the_next_begins_then_all_their_files_are_remembered() -> None:
    row = submission(state=SubmissionState.QUOTA_REFUSED, file_id="file-1")
    row = replace(submitting.next_generation(row, NOW), file_id="file-2")
    row = submitting.next_generation(submitting.next_generation(row, NOW), NOW)
    assert (row.earlier_files, row.file_id, row.generation) == (("file-1", "file-2"), "", 4)
