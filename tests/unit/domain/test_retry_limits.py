"""How often and when a record may be tried again: caps over its attempts, raised caps, unknown codes, windows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.outcomes import OutcomeClass, Used
from tallybatch.domain.retries import DAY_S, RaisedCap, RetryPolicy, ReviewClass

ALL = frozenset(ReviewClass)
LOST = ("retryable", "expired", "cancelled", "missing", "unqualified")


def reached(policy: RetryPolicy, outcome: str, tries: int, used: Used, *, overdue: bool = False) -> tuple[str, str]:
    decision = policy.decision(OutcomeClass(outcome), tries, overdue=overdue, used=used)
    return decision.disposition.value, decision.why.value if decision.why else ""


@pytest.mark.parametrize("outcome", LOST)
@pytest.mark.parametrize(
    ("tokens", "tries", "ends"),
    [
        (0, 1, ("retry", "")),
        (500, 1, ("retry", "")),
        (501, 1, ("review", "over_cap")),
        (666, 2, ("retry", "")),
        (668, 2, ("review", "over_cap")),
        (5000, 2, ("review", "over_cap")),
        (999, 0, ("retry", "")),
        (1000, 0, ("review", "over_cap")),
    ],
)
def test_given_a_cap_when_a_record_has_used_so_much_then_one_more_try_of_the_mean_must_fit(
    outcome: str, tokens: int, tries: int, ends: tuple[str, str]
) -> None:
    by_tokens = RetryPolicy(9, 60, review=ALL, max_tokens=1000)
    by_cost = RetryPolicy(9, 60, review=ALL, max_nano_usd=1000)
    assert reached(by_tokens, outcome, tries, Used(tokens=tokens)) == ends
    assert reached(by_cost, outcome, tries, Used(nano_usd=tokens)) == ends
    assert reached(by_cost, outcome, tries, Used(tokens=tokens)) == ("retry", "")


def test_given_a_cap_when_nothing_else_would_be_tried_then_the_other_reason_is_told() -> None:
    policy, much = RetryPolicy(3, 60, review=ALL, max_tokens=1), Used(tokens=10**6)
    assert reached(policy, "retryable", 3, much) == ("review", "exhausted")
    assert reached(policy, "permanent", 1, much) == ("review", "permanent")
    assert reached(policy, "conflict", 1, much) == ("review", "conflict")
    assert reached(policy, "waiting", 1, much) == ("retry", "")
    assert reached(policy, "unsettled", 1, much) == ("resume", "")
    assert reached(policy, "succeeded", 1, much) == ("accepted", "")
    assert reached(RetryPolicy(3, 60, max_tokens=1), "retryable", 1, much) == ("failed", "")


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 10**6), st.lists(st.integers(0, 10**5), min_size=1, max_size=9))
def test_given_any_cap_when_tries_follow_that_cost_no_more_than_the_mean_then_it_is_never_passed(
    cap: int, costs: list[int]
) -> None:
    policy, used = RetryPolicy(10, 60, max_tokens=cap), 0
    for tries, cost in enumerate(sorted(costs, reverse=True), start=1):
        used += cost
        if tries == 1 and used > cap:
            break
        assert used <= cap
        if reached(policy, "retryable", tries, Used(tokens=used))[0] != "retry":
            break


def test_given_codes_that_nobody_knows_when_a_second_comes_then_it_is_the_last() -> None:
    policy = RetryPolicy(9, 60, review=frozenset({ReviewClass.EXHAUSTED}))
    assert reached(policy, "retryable", 1, Used(unknown_codes=1)) == ("retry", "")
    assert reached(policy, "retryable", 5, Used(unknown_codes=1)) == ("retry", "")
    assert reached(policy, "retryable", 2, Used(unknown_codes=2)) == ("review", "exhausted")


@pytest.mark.parametrize(
    ("raised", "caps"),
    [
        (RaisedCap(400, 2, 4096), [800, 1600, 3200, 4096, 0]),
        (RaisedCap(400, 1.5, 700), [600, 700, 0]),
        (RaisedCap(400, 2, 400), [0]),
        (RaisedCap(1, 1.1, 100), [0]),
    ],
)
def test_given_cut_answers_when_tried_again_then_the_cap_rises_to_its_bound_and_then_no_more(
    raised: RaisedCap, caps: list[int]
) -> None:
    policy = RetryPolicy(99, 60, raised_cap=raised)
    cap = 0
    for expected in caps:
        decided = policy.decision(OutcomeClass.TRUNCATED, 1, overdue=False, output_cap=cap).disposition.value
        assert (policy.next_cap(OutcomeClass.TRUNCATED, cap), decided) == (expected, "retry" if expected else "failed")
        assert policy.next_cap(OutcomeClass.RETRYABLE, cap) == cap
        cap = expected


def test_given_a_cap_that_may_rise_when_tries_or_time_are_out_then_a_cut_answer_is_final() -> None:
    policy = RetryPolicy(2, 60, raised_cap=RaisedCap(400, 2, 4096))
    assert reached(policy, "truncated", 1, Used()) == ("retry", "")
    assert reached(policy, "truncated", 2, Used()) == ("failed", "")
    assert reached(policy, "truncated", 1, Used(), overdue=True) == ("failed", "")
    assert reached(RetryPolicy(2, 60), "truncated", 1, Used()) == ("failed", "")


H = 3600


@pytest.mark.parametrize(
    ("window", "hour", "waits_h"),
    [
        ((22 * H, 6 * H), 21, 1),
        ((22 * H, 6 * H), 22, 0),
        ((22 * H, 6 * H), 23.9, 0),
        ((22 * H, 6 * H), 3, 0),
        ((22 * H, 6 * H), 6, 16),
        ((1 * H, 5 * H), 0, 1),
        ((1 * H, 5 * H), 4.99, 0),
        ((1 * H, 5 * H), 5, 20),
        ((0, 1 * H), 12, 12),
    ],
)
def test_given_a_window_when_an_attempt_is_due_outside_then_it_waits_until_the_window_opens(
    window: tuple[int, int], hour: float, waits_h: float
) -> None:
    policy = RetryPolicy(9, 0, window=window)
    assert policy.wait_s(1, only_waiting=False, now=20_000 * DAY_S + hour * H) == waits_h * H
    assert policy.wait_s(1, only_waiting=True, now=20_000 * DAY_S + hour * H) == 60


@settings(max_examples=80, deadline=None)
@given(st.integers(0, DAY_S - 1), st.integers(1, DAY_S - 1), st.floats(0, 4e9), st.integers(0, 7200))
def test_given_any_window_and_moment_when_waited_then_it_is_open_and_the_wait_is_less_than_a_day_more(
    opens: int, length: int, now: float, backoff_s: int
) -> None:
    policy = RetryPolicy(9, backoff_s, window=(opens, (opens + length) % DAY_S))
    wait = policy.wait_s(1, only_waiting=False, now=now)
    assert backoff_s <= wait <= backoff_s + DAY_S
    assert math.floor(now + wait - opens) % DAY_S <= length
