"""What every implementation of the quota pools does, and what no order of events may do to them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tallybatch.domain import quotas
from tallybatch.domain.quota_rows import Amount, Hold, QuotaChange, QuotaPool
from tallybatch.domain.quotas import ALL
from tallybatch.ports import Ledger, QuotaMove
from tallybatch.steps import quota
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_misc import ManualClock
from tests.support.rows import hexdigest

POOL = "openai"
LIMITS = {"m": {"tokens": 100}, ALL: {"jobs": 4}}


def wish(name: str, **fields: Any) -> Hold:
    base: dict[str, Any] = {
        "pool": POOL,
        "model": "m",
        "tenant": "acme",
        "job_key": hexdigest(name),
        "attempt": 1,
        "shard_id": name,
        "rank": 1,
        "amount": Amount(40, 1, 10),
        "asked_at": 1_700_000_000.5,
    }
    return Hold(**{**base, **fields})


def with_limits(ledger: Ledger, limits: dict[str, dict[str, int]] = LIMITS, **more: Any) -> None:
    pool = ledger.quota_pool(POOL)
    assert ledger.move_quota(replace(pool, limits=limits, **more), QuotaMove())


def test_a_pool_that_nobody_has_touched_has_the_defaults(ledger: Ledger) -> None:
    assert ledger.quota_pool("gemini") == QuotaPool(name="gemini")
    assert quotas.limits_of(ledger.quota_pool("gemini"), ALL) == {"jobs": 100}
    assert ledger.quota_line("gemini") == (QuotaPool(name="gemini"), [])
    assert list(ledger.quota_holds("gemini")) == []


def test_totals_and_reservation_move_together_or_not_at_all(ledger: Ledger) -> None:
    with_limits(ledger)
    pool, mine = ledger.quota_pool(POOL), replace(wish("a"), reserved_at=5.0)
    assert ledger.move_quota(quotas.take(pool, mine, 5), QuotaMove(take=mine))
    assert ledger.quota_pool(POOL).used == {"m": {"acme": Amount(40, 1, 10)}}
    assert ledger.quota_hold(POOL, mine.place) == mine
    other = replace(wish("b"), reserved_at=6.0)
    assert not ledger.move_quota(quotas.take(pool, other, 6), QuotaMove(take=other)), "the totals have moved on"
    assert ledger.quota_hold(POOL, other.place) is None
    now = ledger.quota_pool(POOL)
    assert not ledger.move_quota(quotas.take(now, mine, 7), QuotaMove(take=mine)), "it is reserved already"
    assert not ledger.move_quota(quotas.give_back(now, other, 7), QuotaMove(give=other)), "it was never reserved"
    assert ledger.quota_pool(POOL) == now
    assert ledger.move_quota(quotas.give_back(now, mine, 8), QuotaMove(give=mine))
    assert (ledger.quota_pool(POOL).used, ledger.quota_hold(POOL, mine.place)) == ({}, None)


def test_the_line_is_in_the_order_of_turns_and_is_left_by_whoever_reserves(ledger: Ledger) -> None:
    with_limits(ledger)
    names = {"late": (1, 30.0), "high": (0, 99.0), "early": (1, 10.0), "low": (2, 1.0)}
    for name, (rank, asked_at) in names.items():
        assert ledger.enter_line(wish(name, rank=rank, asked_at=asked_at))
    assert not ledger.enter_line(wish("late", asked_at=31.0)), "it waits already"
    assert [hold.shard_id for hold in ledger.quota_line(POOL)[1]] == ["high", "early", "late", "low"]
    kept = wish("early", asked_at=10.0, due_at=77.0)
    assert ledger.keep_place(kept)
    assert ledger.quota_line(POOL)[1][1] == kept
    taken = replace(kept, reserved_at=50.0)
    assert ledger.move_quota(quotas.take(ledger.quota_pool(POOL), taken, 50), QuotaMove(take=taken))
    assert not ledger.keep_place(kept), "a late question does not bring it back into the line"
    assert not ledger.leave_line(kept), "a reservation is given back, not left"
    assert ledger.leave_line(wish("low", rank=2, asked_at=1.0))
    assert not ledger.leave_line(wish("low", rank=2, asked_at=1.0))
    assert [hold.shard_id for hold in ledger.quota_line(POOL)[1]] == ["high", "late"]
    assert {hold.shard_id for hold in ledger.quota_holds(POOL)} == {"high", "early", "late"}


def test_a_refused_one_has_its_old_place_in_the_line_again(ledger: Ledger) -> None:
    with_limits(ledger)
    clock = ManualClock(100.0)
    assert quota.ask(wish("a", asked_at=100.0), ledger, clock).granted
    ledger.enter_line(wish("b", asked_at=150.0))
    clock.advance(60)
    assert quota.refused(POOL, wish("a").place, ledger, clock, not_before=400.0)
    assert not quota.refused(POOL, wish("a").place, ledger, clock, not_before=400.0)
    pool, line = ledger.quota_line(POOL)
    assert [(hold.shard_id, hold.asked_at, hold.not_before) for hold in line] == [("a", 100.0, 400.0), ("b", 150.0, 0)]
    assert pool.used == {}
    assert pool.slow["m"].ceiling == Amount(40, 1, 10)


def test_what_a_person_sets_is_kept_with_who_and_when(ledger: Ledger) -> None:
    notes = [QuotaChange(pool=POOL, at=at, by="ann", after={"headroom": at}) for at in (10.0, 20.0)]
    for note in notes:
        assert ledger.move_quota(ledger.quota_pool(POOL), QuotaMove(note=note))
    assert list(ledger.quota_changes(POOL)) == notes


def test_many_that_ask_at_the_same_moment_never_take_more_than_there_is(ledger: Ledger) -> None:
    with_limits(ledger)
    clock = ManualClock()
    wishes = [wish(f"s{n}", asked_at=clock.now()) for n in range(12)]
    with ThreadPoolExecutor(6) as pool:
        granted = list(pool.map(lambda each: quota.ask(each, ledger, clock).granted, [*wishes, *wishes]))
    reserved = [hold for hold in ledger.quota_holds(POOL) if hold.reserved_at]
    assert 1 <= len(reserved) <= 2
    assert ledger.quota_pool(POOL).used == {
        "m": {"acme": Amount(40 * len(reserved), len(reserved), 10 * len(reserved))}
    }
    assert len({hold.place for hold in reserved}) <= sum(granted)
    for hold in wishes:
        quota.give_back(POOL, hold.place, ledger, clock)
    assert (list(ledger.quota_holds(POOL)), ledger.quota_pool(POOL).used) == ([], {})


# Random interleavings

AMOUNTS = {"small": Amount(20, 1, 5), "middle": Amount(45, 1, 10), "large": Amount(100, 1, 20)}
NAMES = [f"{size}-{number}" for size in AMOUNTS for number in range(3)]
steps = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(NAMES), st.sampled_from([0, 1, 2]), st.sampled_from(["a", "b"])),
    st.tuples(st.just("give"), st.sampled_from(NAMES)),
    st.tuples(st.just("refuse"), st.sampled_from(NAMES)),
    st.tuples(st.just("pass"), st.sampled_from([1, 40, 4000])),
)


def play(ledger: Ledger, plan: list[Any]) -> list[Any]:
    """Carry the plan out; asserts after each step. Then all who wait get theirs, if those who have it give it back."""
    with_limits(ledger)
    clock = ManualClock(1_700_000_000.0)
    told: list[Any] = []
    for step in plan:
        if step[0] == "ask":
            _, name, rank, tenant = step
            mine = wish(name, rank=rank, tenant=tenant, amount=AMOUNTS[name.split("-")[0]], asked_at=clock.now())
            told.append(asked(ledger, clock, mine))
        elif step[0] == "give":
            told.append(quota.give_back(POOL, wish(step[1]).place, ledger, clock))
        elif step[0] == "refuse":
            place = wish(step[1]).place
            told.append(quota.refused(POOL, place, ledger, clock, not_before=clock.now() + 60))
        else:
            clock.advance(step[1])
        never_over(ledger)
    finish(ledger, clock)
    return told


def asked(ledger: Ledger, clock: ManualClock, mine: Hold) -> bool:
    pool, line = ledger.quota_line(POOL)
    known = ledger.quota_hold(POOL, mine.place)
    decision = quota.ask(mine, ledger, clock)
    if decision.granted and not (known is not None and known.reserved_at):
        now = next((hold for hold in ledger.quota_holds(POOL) if hold.place == mine.place), mine)
        free = 100 - quotas.used_by_model(ledger.quota_pool(POOL), "m").tokens
        for other in line:
            alone = {hold.tenant for hold in (*line, now)} | pool.used.get("m", {}).keys() == {other.tenant}
            present = other.not_before <= clock.now() <= other.due_at + 120
            if other.place != mine.place and other.turn < now.turn and present and alone:
                assert other.amount.tokens <= free, "somebody who was before it cannot have its part any more"
    return decision.granted


def never_over(ledger: Ledger) -> None:
    reserved = [hold for hold in ledger.quota_holds(POOL) if hold.reserved_at]
    assert sum(hold.amount.tokens for hold in reserved) <= 100
    assert len(reserved) <= 4
    totals = quotas.used_by_model(ledger.quota_pool(POOL), "m")
    assert totals.tokens == sum(hold.amount.tokens for hold in reserved), "totals and reservations differ"
    assert totals.jobs == len(reserved)


def finish(ledger: Ledger, clock: ManualClock) -> None:
    """Whoever waits asks again and again; whoever has a part gives it back after a while. Nobody starves."""
    for _ in range(60):
        holds = list(ledger.quota_holds(POOL))
        if not holds:
            break
        for hold in holds:
            if hold.reserved_at:
                quota.give_back(POOL, hold.place, ledger, clock)
            elif hold.not_before <= clock.now():
                quota.ask(hold, ledger, clock)
            never_over(ledger)
        clock.advance(100)
    assert list(ledger.quota_holds(POOL)) == [], "somebody starves, or something is never given back"
    assert ledger.quota_pool(POOL).used == {}


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(steps, min_size=1, max_size=25))
def test_in_memory_no_order_of_events_exceeds_a_limit_passes_a_waiter_or_starves_one(plan: list[Any]) -> None:
    play(MemoryLedger(), plan)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(plan=st.lists(steps, min_size=1, max_size=12))
def test_on_the_emulator_every_order_of_events_is_told_the_same_as_in_memory(
    new_dynamodb: Callable[[], Ledger], plan: list[Any]
) -> None:
    assert play(new_dynamodb(), plan) == play(MemoryLedger(), plan)
