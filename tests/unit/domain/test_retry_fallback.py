"""When a record goes on to the next provider or model, and what it takes along."""

import pytest

from tallybatch.domain.outcomes import NOTHING_USED, OutcomeClass, Used
from tallybatch.domain.retries import Disposition, RetryPolicy, ReviewClass

_C = OutcomeClass


def told(policy: RetryPolicy, outcome: OutcomeClass, tries: int, used: Used = NOTHING_USED) -> tuple[str, int]:
    """The disposition, and the place of the target that a next try would have."""
    decision = policy.decision(outcome, tries, overdue=False, used=used)
    return decision.disposition.value, policy.onward(outcome, tries, used, 0).targets


@pytest.mark.parametrize("outcome", [_C.RETRYABLE, _C.EXPIRED, _C.CANCELLED, _C.MISSING, _C.UNQUALIFIED, _C.CONFLICT])
def test_given_tries_left_when_decided_then_the_same_target_is_asked_and_after_the_last_the_next_one(
    outcome: OutcomeClass,
) -> None:
    policy = RetryPolicy(2, 60, fallbacks=1)
    second = policy.onward(outcome, 2, Used(tokens=10, nano_usd=7, unknown_codes=1), 0)

    assert told(policy, outcome, 1) == ("retry", 0)
    assert told(policy, outcome, 2) == ("retry", 1)
    assert second == Used(tokens=10, nano_usd=7, targets=1, earlier_tries=2)
    assert told(policy, outcome, 3, second) == ("retry", 1)
    assert told(policy, outcome, 4, second) == ("failed", 1)
    assert told(RetryPolicy(2, 60), outcome, 2) == ("failed", 0)


@pytest.mark.parametrize("outcome", [_C.PERMANENT, _C.TRUNCATED, _C.REJECTED])
def test_given_an_end_that_another_model_cannot_mend_when_decided_then_it_fails(outcome: OutcomeClass) -> None:
    assert told(RetryPolicy(3, 60, fallbacks=2), outcome, 1) == ("failed", 0)


def test_given_a_refusal_when_decided_then_the_next_target_is_asked_at_once_and_people_only_after_the_last() -> None:
    policy = RetryPolicy(3, 60, review=frozenset({ReviewClass.REFUSED}), fallbacks=1)

    assert told(policy, _C.REFUSED, 1) == ("retry", 1)
    assert told(policy, _C.REFUSED, 2, Used(targets=1, earlier_tries=1)) == ("review", 1)


def test_given_answers_in_conflict_when_people_are_to_decide_then_no_other_model_is_asked() -> None:
    policy = RetryPolicy(3, 60, review=frozenset({ReviewClass.CONFLICT}), fallbacks=1)

    assert policy.decision(_C.CONFLICT, 3, overdue=False).disposition is Disposition.REVIEW


def test_given_unqualified_answers_that_are_not_retried_when_decided_then_another_model_is_asked_at_once() -> None:
    assert told(RetryPolicy(3, 60, retry_unqualified=False, fallbacks=1), _C.UNQUALIFIED, 1) == ("retry", 1)


def test_given_an_account_that_is_refused_when_decided_then_the_next_target_is_asked_though_no_try_is_used_up() -> None:
    policy, refused = RetryPolicy(3, 60, fallbacks=1), Used(refusals=1)

    assert told(policy, _C.RETRYABLE, 0, refused) == ("retry", 1)
    assert policy.onward(_C.RETRYABLE, 0, refused, 0) == Used(targets=1)
    assert told(policy, _C.RETRYABLE, 0, Used(refusals=1, targets=1)) == ("retry", 1)


def test_given_too_few_records_when_the_spec_gives_them_to_people_then_they_do_not_fall_back() -> None:
    people = RetryPolicy(3, 60, review=frozenset({ReviewClass.TOO_FEW}), fallbacks=1)

    assert told(RetryPolicy(3, 60, fallbacks=1), _C.TOO_FEW, 0) == ("retry", 1)
    assert told(people, _C.TOO_FEW, 0)[0] == "review"


def test_given_a_record_over_its_cap_when_its_tries_are_used_up_then_no_other_model_is_paid() -> None:
    assert told(RetryPolicy(2, 60, max_tokens=25, fallbacks=1), _C.RETRYABLE, 2, Used(tokens=20))[0] == "failed"


@pytest.mark.parametrize("outcome", sorted(_C))
def test_given_the_deadline_has_passed_when_decided_then_nothing_goes_to_another_target(outcome: OutcomeClass) -> None:
    policy = RetryPolicy(1, 60, fallbacks=1)

    assert policy.decision(outcome, 1, overdue=True).disposition is not Disposition.RETRY
