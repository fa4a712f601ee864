"""What every implementation of budgets does, and that no order of events spends more than a limit."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from tallybatch.domain.budgets import EACH, Budget, BudgetHold, period_of
from tallybatch.domain.errors import Permanent
from tallybatch.domain.rows import Job
from tallybatch.ports import Ledger
from tallybatch.steps import budget
from tests.support import rows
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_misc import ManualClock
from tests.support.rows import hexdigest

NOW = 1_795_900_000.0
MONTH = period_of(NOW)
INTERLEAVINGS = 1000


def job_of(name: str) -> Job:
    return rows.job(job_key=hexdigest(name), tenant="acme", created_at=NOW)


def limited(ledger: Ledger, nano: int, period: str = EACH) -> None:
    assert ledger.move_budget(replace(ledger.budget("acme", period), limit=nano))


def hold_of(name: str, **fields: Any) -> BudgetHold:
    base = {"tenant": "acme", "period": MONTH, "job_key": hexdigest(name), "worst": 70, "reserved": 70, "spent": 0}
    return BudgetHold(**{**base, **fields})


def test_given_nothing_stored_when_read_then_there_is_no_limit(ledger: Ledger) -> None:
    assert ledger.budget("acme", MONTH) == Budget(tenant="acme", period=MONTH)
    assert ledger.budget_hold("acme", MONTH, "x") is None
    assert list(ledger.budget_holds("acme", MONTH)) == []


def test_given_a_move_when_made_then_totals_and_hold_change_together_and_an_old_version_changes_nothing(
    ledger: Ledger,
) -> None:
    first = replace(ledger.budget("acme", MONTH), reserved=70)

    assert ledger.move_budget(first, hold_of("a"))
    assert not ledger.move_budget(replace(first, reserved=140), hold_of("b"))

    stored = ledger.budget("acme", MONTH)
    assert (stored.version, stored.reserved) == (1, 70)
    assert list(ledger.budget_holds("acme", MONTH)) == [hold_of("a")]
    assert ledger.move_budget(replace(stored, reserved=0, spent=60), hold_of("a", reserved=0, spent=60))
    assert ledger.budget_hold("acme", MONTH, hexdigest("a")) == hold_of("a", reserved=0, spent=60)
    assert ledger.budget("other", MONTH).version == 0


def test_given_jobs_that_race_for_the_last_dollars_when_all_reserve_then_as_many_win_as_there_is_money_for(
    ledger: Ledger,
) -> None:
    limited(ledger, 250)
    clock = ManualClock(NOW)

    def wins(name: str) -> bool:
        try:
            budget.reserve(job_of(name), 70, ledger, clock)
        except Permanent as refused:
            assert "are left" in str(refused)
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(wins, "abcdefgh"))

    assert sum(won) == 3
    assert ledger.budget("acme", MONTH).reserved == 210


def test_given_a_job_that_has_its_part_when_it_begins_again_then_it_takes_no_second_one(ledger: Ledger) -> None:
    limited(ledger, 100)
    clock = ManualClock(NOW)

    for _ in range(2):
        budget.reserve(job_of("a"), 70, ledger, clock)
    with pytest.raises(Permanent, match="are left"):
        budget.reserve(job_of("b"), 70, ledger, clock)

    assert ledger.budget("acme", MONTH).reserved == 70
    assert budget.end(job_of("a"), ledger, clock)
    assert not budget.end(job_of("a"), ledger, clock)
    budget.reserve(job_of("b"), 70, ledger, clock)


def test_given_a_month_with_a_limit_of_its_own_when_reserved_then_that_one_holds(ledger: Ledger) -> None:
    limited(ledger, 1000)
    limited(ledger, 50, MONTH)

    with pytest.raises(Permanent, match=r"0\.00000007 US dollars more, and 0\.00000005 are left"):
        budget.reserve(job_of("a"), 70, ledger, ManualClock(NOW))
    with pytest.raises(Permanent, match="nobody can tell"):
        budget.reserve(job_of("a"), None, ledger, ManualClock(NOW))


class Interleaved(MemoryLedger):
    """Between the reading of a budget and its writing, others get their turn."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.dice = dice
        self.meanwhile: Callable[[], None] | None = None

    def move_budget(self, moved: Budget, hold: BudgetHold | None = None) -> bool:
        others, self.meanwhile = self.meanwhile, None
        while others is not None and self.dice.random() < 0.5:
            others()
        self.meanwhile = others
        return super().move_budget(moved, hold)


class Month:
    """Jobs of one tenant that begin, spend, end and begin again, in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.ledger, self.clock = Interleaved(self.dice), ManualClock(NOW)
        self.limit = self.dice.randint(50, 300)
        limited(self.ledger, self.limit)
        self.names = [f"{seed}-{number}" for number in range(self.dice.randint(2, 6))]
        self.worst = {name: self.dice.randint(10, 150) for name in self.names}
        self.spent = dict.fromkeys(self.names, 0)
        self.runs = dict.fromkeys(self.names, 1)
        self.running: set[str] = set()
        self.refused = 0

    def job(self, name: str) -> Job:
        return replace(job_of(name), run=self.runs[name])

    def turn(self) -> None:
        name = self.dice.choice(self.names)
        if name not in self.running:
            self._begin(name)
        elif self.dice.random() < 0.2:
            budget.reserve(self.job(name), self.worst[name] - self.spent[name], self.ledger, self.clock)
        elif self.dice.random() < 0.6:
            self.spent[name] = self.dice.randint(self.spent[name], self.worst[name])
            _book(self.ledger, name, self.spent[name])
            budget.settle(self.job(name), self.ledger, self.clock, closed=False)
        else:
            job = self.job(name)
            self.running.discard(name)
            self.runs[name] += 1
            budget.end(job, self.ledger, self.clock)
        self.check()

    def _begin(self, name: str) -> None:
        job = self.job(name)
        try:
            budget.reserve(job, self.worst[name] - self.spent[name], self.ledger, self.clock)
        except Permanent:
            self.refused += 1
        else:
            if self.runs[name] == job.run:
                self.running.add(name)

    def check(self) -> None:
        stored = self.ledger.budget("acme", MONTH)
        holds = list(self.ledger.budget_holds("acme", MONTH))
        assert stored.reserved == sum(hold.reserved for hold in holds)
        assert stored.spent == sum(hold.spent for hold in holds)
        assert stored.reserved + stored.spent <= self.limit
        assert sum(self.spent.values()) <= self.limit


def test_given_any_interleaving_of_jobs_when_they_reserve_settle_and_end_then_no_limit_is_ever_overspent() -> None:
    lost = 0
    for seed in range(INTERLEAVINGS):
        month = Month(seed)
        for _ in range(20):
            month.ledger.meanwhile = month.turn
            month.turn()
        month.ledger.meanwhile = None
        for name in month.names:
            budget.end(month.job(name), month.ledger, month.clock)
        stored = month.ledger.budget("acme", MONTH)
        assert (stored.reserved, stored.spent) == (0, sum(month.spent.values())), f"interleaving {seed}"
        lost += bool(month.refused)
    assert 0 < lost < INTERLEAVINGS, "some race was lost, and some was not"


def _book(ledger: Ledger, name: str, nano: int) -> None:
    known = ledger.submission(hexdigest(name), 1, "s")
    row = known or rows.submission(job_key=hexdigest(name), attempt=1, shard_id="s", tenant="acme")
    expected = known.version if known is not None else None
    assert ledger.put_submission(replace(row, cost_nano_usd=nano), expected_version=expected)
