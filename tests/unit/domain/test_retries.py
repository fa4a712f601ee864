"""What follows from an outcome, written out for every class."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.retries import RetryPolicy, ReviewClass

FOLLOWS = {
    # class: (tries left, no tries left, overdue with tries left)
    "succeeded": ("accepted", "accepted", "accepted"),
    "reused": ("accepted", "accepted", "accepted"),
    "permanent": ("failed", "failed", "failed"),
    "refused": ("failed", "failed", "failed"),
    "truncated": ("failed", "failed", "failed"),
    "retryable": ("retry", "failed", "failed"),
    "expired": ("retry", "failed", "failed"),
    "cancelled": ("retry", "failed", "failed"),
    "unqualified": ("retry", "failed", "failed"),
    "missing": ("retry", "failed", "failed"),
    "conflict": ("retry", "failed", "failed"),
    "rejected": ("failed", "failed", "failed"),
    "too_few": ("failed", "failed", "failed"),
    "requeued": ("retry", "retry", "failed"),
    "confirmed": ("accepted", "accepted", "accepted"),
    "waiting": ("retry", "retry", "failed"),
    "unsettled": ("resume", "resume", "resume"),
}


@pytest.mark.parametrize("outcome", [outcome.value for outcome in OutcomeClass])
def test_given_an_outcome_when_decided_then_it_is_as_the_table_says(outcome: str) -> None:
    policy = RetryPolicy(max_attempts=3, backoff_s=60)
    left, spent, overdue = FOLLOWS[outcome]
    for tries, expected in ((1, left), (2, left), (3, spent), (4, spent)):
        assert policy.decide(OutcomeClass(outcome), tries, overdue=False).value == expected
    for tries in (0, 1, 5):
        assert policy.decide(OutcomeClass(outcome), tries, overdue=True).value == overdue


FOR_PEOPLE = {
    # class: its word in review.classes, and whether it goes to people at once, or only by the deadline (None)
    "permanent": ("permanent", True),
    "refused": ("refused", True),
    "truncated": ("truncated", True),
    "conflict": ("conflict", True),
    "too_few": ("too_few", True),
    "unqualified": ("unqualified", False),
    "retryable": ("exhausted", False),
    "expired": ("exhausted", False),
    "cancelled": ("exhausted", False),
    "missing": ("exhausted", False),
    "requeued": ("exhausted", None),
}


@pytest.mark.parametrize("outcome", [outcome.value for outcome in OutcomeClass])
def test_given_ends_that_people_decide_about_when_decided_then_only_those_go_to_them(outcome: str) -> None:
    word, at_once = FOR_PEOPLE.get(outcome, ("", False))
    for listed in ReviewClass:
        policy = RetryPolicy(max_attempts=3, backoff_s=60, review=frozenset({listed}))
        left, spent, overdue = FOLLOWS[outcome]
        if listed.value == word:
            left, spent, overdue = ("review" if at_once else left), (spent if at_once is None else "review"), "review"
        assert policy.decide(OutcomeClass(outcome), 1, overdue=False).value == left
        decision = policy.decision(OutcomeClass(outcome), 3, overdue=False)
        assert (decision.disposition.value, decision.why) == (spent, listed if spent == "review" else None)
        assert policy.decide(OutcomeClass(outcome), 1, overdue=True).value == overdue


def test_given_a_spec_that_forbids_it_when_an_answer_is_unqualified_then_it_is_not_asked_for_again() -> None:
    policy = RetryPolicy(max_attempts=3, backoff_s=60, retry_unqualified=False)
    assert policy.decide(OutcomeClass.UNQUALIFIED, 1, overdue=False).value == "failed"
    assert policy.decide(OutcomeClass.RETRYABLE, 1, overdue=False).value == "retry"


def test_given_one_attempt_only_when_a_record_fails_then_it_is_not_tried_again() -> None:
    assert RetryPolicy(max_attempts=1, backoff_s=60).decide(OutcomeClass.RETRYABLE, 1, overdue=False).value == "failed"


@pytest.mark.parametrize(
    ("backoff_s", "waits"),
    [
        (60, [60, 120, 240, 480, 960, 1920, 3600, 3600]),
        (300, [300, 600, 1200, 2400, 3600, 3600]),
        (0, [0, 0, 0]),
        (7200, [7200, 7200, 7200]),
    ],
)
def test_given_a_backoff_when_attempts_follow_then_it_doubles_up_to_an_hour_or_itself(
    backoff_s: float, waits: list[int]
) -> None:
    policy = RetryPolicy(max_attempts=10, backoff_s=backoff_s)
    assert [policy.wait_s(attempt, only_waiting=False) for attempt in range(1, len(waits) + 1)] == waits


def test_given_a_job_that_only_waits_when_rounds_follow_then_the_backoff_of_the_spec_is_not_its_pace() -> None:
    policy = RetryPolicy(max_attempts=3, backoff_s=7200)
    assert [policy.wait_s(attempt, only_waiting=True) for attempt in range(1, 9)] == [
        60, 120, 240, 480, 960, 1920, 3600, 3600,
    ]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10_000), st.floats(0, 86_400), st.booleans())
def test_given_any_attempt_when_asked_then_the_pause_is_finite_whole_and_does_not_shrink(
    attempt: int, backoff_s: float, waiting: bool
) -> None:
    policy = RetryPolicy(max_attempts=3, backoff_s=backoff_s)
    wait = policy.wait_s(attempt, only_waiting=waiting)
    assert isinstance(wait, int)
    assert 0 <= wait <= 86_400
    assert policy.wait_s(attempt + 1, only_waiting=waiting) >= wait
