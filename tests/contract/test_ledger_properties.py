"""Random interleavings of claims, take-overs and accepts by several jobs, on both ledgers.

The model keeps who may spend on each record, from nothing but what the ledger told; the ledger must agree with itself.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallybatch.adapters.dynamodb_ledger import DynamoDBLedger
from tallybatch.domain.rows import AcceptedAnswer
from tallybatch.ports import ClaimOutcome, Ledger
from tests.support.emulated import emulated_at
from tests.support.memory_ledger import MemoryLedger
from tests.support.rows import answer, claim, hexdigest

RECORDS = ["r0", "r1", "r2", "r3"]
JOBS = ["a", "b", "c"]

records = st.lists(st.sampled_from(RECORDS), min_size=1, max_size=5)
jobs = st.sampled_from(JOBS)
texts = st.sampled_from(["Drama", "Comedy"])
steps = st.one_of(
    st.tuples(st.just("claim"), records, jobs),
    st.tuples(st.just("take over"), records, jobs, jobs),
    st.tuples(st.just("accept"), records, jobs, texts),
)
plans = st.lists(steps, min_size=1, max_size=14)


def play(ledger: Ledger, plan: list[Any]) -> list[Any]:
    """Carry the plan out; return all that was told. Asserts after each step."""
    may_spend: dict[str, str] = {}
    accepted: dict[str, AcceptedAnswer] = {}
    told: list[Any] = []
    for step in plan:
        if step[0] == "accept":
            _, names, who, text = step
            for wish, stored in zip(
                wishes := [answer(name, who, text=text) for name in names], ledger.accept_records(wishes), strict=True
            ):
                told.append(stored)
                if stored:
                    assert may_spend.get(wish.record_key) == wish.job_key, "an answer from somebody who does not own it"
                    assert accepted.setdefault(wish.record_key, wish) == wish, "a second answer was accepted"
                else:
                    assert may_spend.get(wish.record_key) != wish.job_key or wish.record_key in accepted
        else:
            who, left_by = step[2], step[3] if step[0] == "take over" else ""
            claims = [claim(name, who) for name in step[1]]
            results = (
                ledger.take_over_records(claims, from_job=hexdigest(left_by))
                if left_by
                else ledger.claim_records(claims)
            )
            for result in results:
                key = result.claim.record_key
                told.append((key, result.outcome, result.row and (result.row.owner, result.row.answer)))
                owner = may_spend.get(key)
                if result.outcome is ClaimOutcome.ACCEPTED:
                    assert result.row is not None
                    assert result.row.answer == accepted[key]
                elif result.outcome is ClaimOutcome.MINE:
                    assert key not in accepted, "money would be spent on an answer that is there"
                    allowed = {None, hexdigest(who)} | ({hexdigest(left_by)} if left_by else set())
                    assert owner in allowed, "two jobs would spend on one record"
                    may_spend[key] = hexdigest(who)
                else:
                    assert result.row is not None
                    assert result.row.owner == owner != hexdigest(who)
    rows = ledger.records([hexdigest(name) for name in RECORDS])
    assert {key: row.owner for key, row in rows.items()} == may_spend
    assert {key: row.answer for key, row in rows.items() if row.answer} == accepted
    return told


@settings(max_examples=150, deadline=None, derandomize=True)
@given(plans)
def test_in_memory_no_order_of_events_gives_two_answers_or_two_owners(plan: list[Any]) -> None:
    play(MemoryLedger(), plan)


@pytest.fixture(scope="module")
def new_ledger(emulator: str) -> Callable[[], Ledger]:
    emulated = emulated_at(emulator)
    client = emulated.shared_dynamodb
    return lambda: DynamoDBLedger(client, emulated.new_table())


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans)
def test_on_the_emulator_every_order_of_events_is_told_the_same_as_in_memory(
    new_ledger: Callable[[], Ledger], plan: list[Any]
) -> None:
    assert play(new_ledger(), plan) == play(MemoryLedger(), plan)


@pytest.mark.parametrize("real", [False, True])
def test_jobs_that_claim_and_accept_at_the_same_moment_leave_one_answer_each(
    new_ledger: Callable[[], Ledger], real: bool
) -> None:
    ledger = new_ledger() if real else MemoryLedger()
    names = [f"r{n}" for n in range(60)]

    def work(who: str) -> list[AcceptedAnswer]:
        mine = [
            result.claim.record_key
            for result in ledger.claim_records([claim(name, who) for name in names])
            if result.outcome is ClaimOutcome.MINE
        ]
        wishes = [answer(name, who, text=who) for name in names]
        stored = [wish for wish, kept in zip(wishes, ledger.accept_records(wishes), strict=True) if kept]
        assert {wish.record_key for wish in stored} == set(mine)
        return stored

    with ThreadPoolExecutor(4) as pool:
        kept = [wish for stored in pool.map(work, ["a", "b", "c", "d"]) for wish in stored]
    assert sorted(wish.record_key for wish in kept) == sorted(hexdigest(name) for name in names)
    rows = ledger.records([hexdigest(name) for name in names])
    assert {key: row.answer for key, row in rows.items()} == {wish.record_key: wish for wish in kept}
