"""Lanes: who is asked one by one, what is kept back, and how a near deadline shortens the pauses."""

from __future__ import annotations

import pytest

from tallybatch.domain import lanes
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.retries import Disposition, RetryPolicy
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_file import parse_spec
from tests.support.films import spec

DEADLINE = 100_000.0


def made(*, lane: str = "batch", retry: str = "") -> Spec:
    text = spec("bedrock").replace("backoff: 1m", f"backoff: 1m{retry}") + f"lane: {lane}\n"
    return parse_spec(text.encode(), file="spec.yaml")


@pytest.mark.parametrize(
    ("lane", "small_set", "records", "rescue", "expected"),
    [
        ("batch", "wait", 99, False, "batch"),
        ("batch", "review", 99, False, "batch"),
        ("batch", "on_demand", 99, False, "on_demand"),
        ("batch", "on_demand", 100, False, "batch"),
        ("batch", "wait", 100, True, "on_demand"),
        ("on_demand", "wait", 5000, False, "on_demand"),
    ],
)
def test_given_a_shard_when_its_lane_is_chosen_then_only_few_records_or_the_spec_or_the_deadline_make_single_calls(
    lane: str, small_set: str, records: int, rescue: bool, expected: str
) -> None:
    one = made(lane=lane, retry=f", small_set: {small_set}")
    assert lanes.lane_for(one, records=records, least=100, rescue=rescue) == expected


def test_given_a_rescue_when_pauses_are_reckoned_then_none_goes_beyond_its_moment() -> None:
    one = made(retry=", deadline_rescue: 30m")
    at = lanes.rescue_at(one, DEADLINE)
    assert at == DEADLINE - 1800
    assert lanes.pause_s(3600, one, now=at - 600, deadline_at=DEADLINE) == 600
    assert lanes.pause_s(60, one, now=at - 600, deadline_at=DEADLINE) == 60
    assert lanes.pause_s(3600, one, now=at, deadline_at=DEADLINE) == 1800 / 8
    assert lanes.pause_s(3600, one, now=DEADLINE - 1, deadline_at=DEADLINE) == 30


def test_given_no_rescue_when_pauses_are_reckoned_then_they_stay() -> None:
    assert lanes.rescue_at(made(), DEADLINE) == 0
    assert lanes.pause_s(3600, made(), now=DEADLINE - 10, deadline_at=DEADLINE) == 3600


def test_given_records_that_are_too_few_for_good_when_decided_then_no_try_helps() -> None:
    policy = RetryPolicy(max_attempts=3, backoff_s=60)
    assert policy.decide(OutcomeClass.TOO_FEW, 0, overdue=False) is Disposition.FAILED
    assert policy.decide(OutcomeClass.WAITING, 9, overdue=False) is Disposition.RETRY
