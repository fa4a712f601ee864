"""Quota over many jobs at once: the smaller run of `poe fairness`, and that its judges can find fault."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from infra.local.simulator.server import SimulatorServer
from tallybatch.domain import quotas
from tallybatch.domain.quota_rows import Hold, QuotaPool
from tallybatch.domain.quotas import Decision
from tests.bench.fairness import compete


def test_nine_jobs_of_three_tenants_share_tight_quotas(simulator: SimulatorServer) -> None:
    figures = compete(simulator, 9)
    told = json.loads(figures.last_line())
    assert told == {"jobs": 9, "completed": 9, "pool_violations": 0, "priority_inversions": 0}
    assert (figures.fifo_inversions, figures.left_over) == (0, 0)
    assert figures.oldest_wait_s < 3 * figures.ideal_s
    assert figures.waits["openai", "high"]


def test_given_no_limits_then_the_simulator_refuses_and_it_is_told(
    simulator: SimulatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "decide", lambda *_: Decision(granted=True))
    figures = compete(simulator, 9)
    assert figures.pool_violations > 0


def test_given_a_line_that_nobody_keeps_then_it_is_told_who_was_passed(
    simulator: SimulatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = quotas.decide

    def last_first(pool: QuotaPool, mine: Hold, line: Sequence[Hold], now: float) -> Decision:
        return real(pool, replace(mine, rank=-1), [], now)

    monkeypatch.setattr(quotas, "decide", last_first)
    figures = compete(simulator, 9)
    assert figures.priority_inversions + figures.fifo_inversions > 0
