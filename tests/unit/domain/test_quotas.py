"""Who may take from a pool: order, shares, headroom, slow-down, each rule by itself."""

from __future__ import annotations

from typing import Any

import pytest

from tallybatch.domain import quotas
from tallybatch.domain.quota_rows import Amount, Hold, QuotaPool, Slow
from tallybatch.domain.quotas import ALL, EACH, UNLIMITED

NOW = 1_000_000.0


def pool(used: dict[str, int] | None = None, *, name: str = "openai", **fields: Any) -> QuotaPool:
    """`used` is tokens by tenant."""
    taken = {"m": {tenant: Amount(tokens, 1) for tenant, tokens in (used or {}).items()}}
    base: dict[str, Any] = {"limits": {"m": {"tokens": 100}}, "used": taken if used else {}}
    return QuotaPool(name=name, **{**base, **fields})


def hold(name: str, tokens: int, *, asked: float = 0, **fields: Any) -> Hold:
    base: dict[str, Any] = {
        "pool": "openai",
        "model": "m",
        "tenant": "a",
        "job_key": name,
        "attempt": 1,
        "shard_id": "s",
        "rank": 1,
        "amount": Amount(tokens, 1),
        "asked_at": NOW + asked,
        "due_at": NOW + 60,
    }
    return Hold(**{**base, **fields})


def granted(now: QuotaPool, mine: Hold, *line: Hold, at: float = NOW) -> bool:
    ordered = sorted(line, key=lambda each: each.turn)
    return quotas.decide(now, mine, ordered, at).granted


def test_what_fits_is_granted_and_what_does_not_waits() -> None:
    assert granted(pool({"b": 60}), hold("x", 40))
    assert not granted(pool({"b": 60}), hold("x", 41))


def test_a_small_one_does_not_pass_a_large_one_that_was_first() -> None:
    large, small = hold("large", 90, asked=1), hold("small", 10, asked=2)
    assert not granted(pool({"b": 60}), small, large)
    assert granted(pool({"b": 60}), small, hold("large", 90, asked=3)), "it was here first"


def test_all_that_fit_may_take_at_once_in_any_order_of_asking() -> None:
    first, second, third = (hold(str(n), 40, asked=n) for n in range(3))
    assert granted(pool(), second, first, third)
    assert not granted(pool(), third, first, second), "the part of those ahead is kept for them"


def test_priority_goes_before_age() -> None:
    low, high = hold("low", 60, rank=2, asked=-500), hold("high", 60, rank=0)
    assert granted(pool(), high, low)
    assert not granted(pool(), low, high)


def test_a_tenant_beyond_its_share_lets_others_pass_but_takes_it_all_when_it_is_alone() -> None:
    more, other = hold("more", 20, asked=1), hold("other", 20, tenant="b", asked=2)
    assert not granted(pool({"a": 50, "c": 15}), hold("more", 20, asked=1), hold("other", 30, tenant="b", asked=2))
    assert granted(pool({"a": 50, "c": 15}), hold("other", 30, tenant="b", asked=2), more)
    assert granted(pool({"a": 70}), more)
    assert granted(pool({"a": 70}), other, more)


def test_shares_that_are_set_are_kept_and_the_rest_is_divided() -> None:
    shares = {"a": 0.7}
    assert granted(pool({"a": 50}, shares=shares), hold("x", 20), hold("y", 30, tenant="b", asked=1))
    assert not granted(pool({"a": 60}, shares=shares), hold("x", 20), hold("y", 30, tenant="b", asked=1))


def test_headroom_is_never_taken() -> None:
    assert not granted(pool({"b": 60}, headroom=0.1), hold("x", 31))
    assert granted(pool({"b": 60}, headroom=0.1), hold("x", 30))


def test_models_do_not_wait_for_each_other_unless_the_limit_is_for_all() -> None:
    of_m, of_n = hold("m", 90, asked=1), hold("n", 90, model="n", asked=2)
    assert granted(pool({"b": 60}), of_n, of_m)
    both = pool({"b": 60}, limits={ALL: {"tokens": 100}})
    assert not granted(both, of_n, of_m)
    assert not granted(both, hold("n", 10, model="n", asked=2), of_m), "of what all share the first is first"


def test_whoever_has_gone_away_blocks_nobody_and_keeps_its_place() -> None:
    gone, mine = hold("gone", 90, due_at=NOW - 1000), hold("mine", 40, asked=1)
    assert granted(pool({"b": 60}), mine, gone)
    assert not granted(pool({"b": 60}), mine, hold("gone", 90)), "it is back"
    assert granted(pool({"b": 60}), mine, hold("refused", 90, not_before=NOW + 50)), "it pauses after a refusal"


def test_who_has_waited_for_days_is_missed_as_soon_as_others() -> None:
    """Whoever waits asks at least every ten minutes, however long it has waited."""
    gone, mine = hold("gone", 90, asked=-5 * 86_400, due_at=NOW), hold("mine", 10, due_at=NOW + 3600)
    assert not granted(pool({"b": 60}), mine, gone, at=NOW + quotas.LONGEST_PAUSE_S)
    assert granted(pool({"b": 60}), mine, gone, at=NOW + 2 * quotas.LONGEST_PAUSE_S + 1)


def test_what_can_never_fit_blocks_nobody_and_is_told_why() -> None:
    giant = hold("giant", 101)
    decision = quotas.decide(pool(), giant, [], NOW)
    assert not decision.granted
    assert decision.never == "it needs 101 tokens; the limit for m is 100"
    assert granted(pool({"b": 60}), hold("x", 40, asked=1), giant)


def test_a_limit_of_nothing_lets_nothing_through() -> None:
    assert not granted(pool(limits={"m": {"jobs": 0}}), hold("x", 1))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, {"jobs": 10}),
        ({EACH: {"jobs": 20}}, {"jobs": 20}),
        ({EACH: {"jobs": 20}, "m": {"tokens": 5}}, {"jobs": 20, "tokens": 5}),
        ({"m": {"jobs": UNLIMITED}}, {}),
        ({"other": {"jobs": 1}}, {"jobs": 10}),
    ],
)
def test_a_models_limits_are_its_own_then_each_ones_then_the_default(
    limits: dict[str, dict[str, int]], expected: dict[str, int]
) -> None:
    assert quotas.limits_of(QuotaPool(name="bedrock", limits=limits), "m") == expected


def refused(name: str, at: float) -> Hold:
    return hold(name, 20, reserved_at=at)


def test_after_a_refusal_half_of_what_was_out_is_the_limit_and_it_recovers_slowly() -> None:
    slowed = quotas.slow_down(pool({"a": 40, "b": 40}), refused("x", NOW - 10), NOW)
    assert quotas.effective(slowed, "m", NOW) == {"tokens": 40, "jobs": 1}
    assert quotas.effective(slowed, "m", NOW + 1800) == {"tokens": 80, "jobs": 2}
    assert quotas.effective(slowed, "m", NOW + 5399)["tokens"] == 100, "never above the limit that is set"
    assert quotas.effective(slowed, "m", NOW + 5400) == {"tokens": 100}


def test_of_many_that_are_refused_together_only_the_first_halves() -> None:
    once = quotas.slow_down(pool({"a": 80}), refused("x", NOW - 10), NOW)
    assert quotas.slow_down(once, refused("y", NOW - 5), NOW + 1) == once
    again = quotas.slow_down(once, refused("z", NOW + 5), NOW + 9)
    assert again.slow["m"] == Slow(NOW + 9, Amount(80, 1))


def test_without_any_limit_a_refusal_still_slows_down_and_an_empty_pool_is_tried() -> None:
    free = quotas.slow_down(pool({"a": 40}, limits={}), refused("x", NOW - 1), NOW)
    assert quotas.effective(free, "m", NOW) == {"tokens": 20, "jobs": 1}
    assert not granted(free, hold("x", 10), at=NOW)
    assert granted(QuotaPool(name="openai", slow=free.slow), hold("x", 50), at=NOW), "or nobody would find out"


def test_taking_and_giving_back_leaves_nothing() -> None:
    mine = hold("x", 40)
    taken = quotas.take(pool({"a": 1}), mine, NOW)
    assert taken.used == {"m": {"a": Amount(41, 2)}}
    assert quotas.give_back(quotas.give_back(taken, mine, NOW), hold("y", 1), NOW).used == {}
