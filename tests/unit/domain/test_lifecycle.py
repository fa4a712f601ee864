"""Every pair of states against a table written out by hand: what is not listed is refused."""

from __future__ import annotations

import itertools

import pytest

from tallybatch.domain.lifecycle import (
    JOB_FINAL,
    JobState,
    RecordState,
    SubmissionState,
    job_may_move,
    record_may_move,
    submission_may_move,
)

JOB_MOVES = {
    "CREATED": "VALIDATED FAILED CANCELLED EXPIRED",
    "VALIDATED": "SUBMITTING FAILED CANCELLED EXPIRED",
    "SUBMITTING": "SUBMITTED RUNNING RECONCILING FAILED CANCELLED EXPIRED",
    "SUBMITTED": "RUNNING RECONCILING FAILED CANCELLED EXPIRED",
    "RUNNING": "RECONCILING FAILED CANCELLED EXPIRED",
    "RECONCILING": "PARTIAL COMPLETED FAILED CANCELLED EXPIRED",
    "PARTIAL": "RECONCILING COMPLETED FAILED CANCELLED EXPIRED",
    "COMPLETED": "",
    "FAILED": "",
    "CANCELLED": "",
    "EXPIRED": "",
}
RECORD_MOVES = {
    "prepared": "submitted validated",
    "submitted": "succeeded failed_retryable failed_terminal in_review",
    "succeeded": "validated failed_retryable failed_terminal in_review",
    "failed_retryable": "submitted failed_terminal in_review",
    "failed_terminal": "in_review submitted",
    "validated": "published",
    "published": "",
    "in_review": "validated submitted failed_terminal",
}
SUBMISSION_MOVES = {
    "SUBMITTING": "SUBMITTED SUBMIT_UNKNOWN QUOTA_REFUSED REFUSED",
    "SUBMIT_UNKNOWN": "SUBMIT_UNKNOWN SUBMITTED SUBMITTING QUOTA_REFUSED REFUSED EMPTY",
    "QUOTA_REFUSED": "SUBMITTING SUBMITTED REFUSED EMPTY",
    "REFUSED": "RECONCILED",
    "EMPTY": "RECONCILED",
    "SUBMITTED": "RUNNING TERMINAL QUOTA_REFUSED",
    "RUNNING": "TERMINAL QUOTA_REFUSED",
    "TERMINAL": "COLLECTED",
    "COLLECTED": "RECONCILED",
    "RECONCILED": "",
}


def pairs(states: type[JobState] | type[RecordState] | type[SubmissionState]) -> list[tuple[str, str]]:
    return [(now.value, to.value) for now, to in itertools.product(states, states)]


def test_given_the_states_when_listed_then_the_tables_below_cover_each() -> None:
    assert set(JOB_MOVES) == {state.value for state in JobState}
    assert set(RECORD_MOVES) == {state.value for state in RecordState}
    assert set(SUBMISSION_MOVES) == {state.value for state in SubmissionState}


@pytest.mark.parametrize(("now", "to"), pairs(JobState))
def test_given_a_job_when_moved_within_an_attempt_then_only_the_table_allows_it(now: str, to: str) -> None:
    assert job_may_move(JobState(now), JobState(to), attempt_now=3, attempt_to=3) == (to in JOB_MOVES[now].split())


@pytest.mark.parametrize(("now", "to"), pairs(JobState))
def test_given_a_job_when_a_later_attempt_begins_then_it_goes_from_reconciling_to_submitting_alone(
    now: str, to: str
) -> None:
    expected = (now, to) == ("RECONCILING", "SUBMITTING")
    for later in (4, 9):
        assert job_may_move(JobState(now), JobState(to), attempt_now=3, attempt_to=later) == expected


@pytest.mark.parametrize(("now", "to"), pairs(JobState))
def test_given_a_job_when_an_earlier_attempt_reports_late_then_nothing_moves(now: str, to: str) -> None:
    for earlier in (1, 2):
        assert not job_may_move(JobState(now), JobState(to), attempt_now=3, attempt_to=earlier)


@pytest.mark.parametrize(("now", "to"), pairs(RecordState))
def test_given_a_record_when_moved_then_only_the_table_allows_it(now: str, to: str) -> None:
    assert record_may_move(RecordState(now), RecordState(to)) == (to in RECORD_MOVES[now].split())


@pytest.mark.parametrize(("now", "to"), pairs(SubmissionState))
def test_given_a_submission_when_moved_then_only_the_table_allows_it(now: str, to: str) -> None:
    allowed = submission_may_move(SubmissionState(now), SubmissionState(to))
    assert allowed == (to in SUBMISSION_MOVES[now].split())


ORDER = ["CREATED", "VALIDATED", "SUBMITTING", "SUBMITTED", "RUNNING", "RECONCILING", "COMPLETED"]


@pytest.mark.parametrize(("later", "earlier"), [(b, a) for a, b in itertools.combinations(ORDER, 2)])
def test_given_any_event_out_of_order_when_it_comes_late_then_the_job_does_not_go_back(
    later: str, earlier: str
) -> None:
    assert not job_may_move(JobState(later), JobState(earlier), attempt_now=1, attempt_to=1)


@pytest.mark.parametrize("state", [state.value for state in JobState])
def test_given_an_event_when_it_comes_twice_then_the_second_moves_nothing(state: str) -> None:
    assert not job_may_move(JobState(state), JobState(state), attempt_now=2, attempt_to=2)


def test_given_events_in_any_order_when_applied_then_the_job_never_leaves_the_furthest_state() -> None:
    rank = {state: place for place, state in enumerate(ORDER)}
    for events in itertools.permutations(ORDER[1:], 6):
        now = reached = "CREATED"
        for event in events:
            if job_may_move(JobState(now), JobState(event), attempt_now=1, attempt_to=1):
                now = event
            assert rank[now] >= rank[reached]
            reached = now


SUBMISSION_ORDER = ["SUBMITTING", "SUBMITTED", "RUNNING", "TERMINAL", "COLLECTED", "RECONCILED"]


@pytest.mark.parametrize(("later", "earlier"), [(b, a) for a, b in itertools.combinations(SUBMISSION_ORDER, 2)])
def test_given_a_submission_when_an_earlier_state_is_reported_late_then_it_does_not_go_back(
    later: str, earlier: str
) -> None:
    assert not submission_may_move(SubmissionState(later), SubmissionState(earlier))


def reachable(moves: dict[str, str], start: str) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        for state in moves[todo.pop()].split():
            if state not in found:
                found.add(state)
                todo.append(state)
    return found


def test_given_any_state_when_followed_then_an_ending_can_be_reached() -> None:
    assert all(reachable(JOB_MOVES, state) & {"COMPLETED"} for state in ORDER)
    assert all("RECONCILED" in reachable(SUBMISSION_MOVES, state) for state in SUBMISSION_MOVES)
    assert reachable(RECORD_MOVES, "prepared") == set(RECORD_MOVES)


def test_given_a_final_state_when_asked_then_no_execution_works_on_the_job() -> None:
    assert {state.value for state in JOB_FINAL} == {"PARTIAL", "COMPLETED", "FAILED", "CANCELLED", "EXPIRED"}
