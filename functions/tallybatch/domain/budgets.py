"""Budgets: what a tenant may spend in a month, what jobs have set aside of it, and what they have spent.

A job's part is its hold: its worst case is set aside before its first call, shrinks as it is settled, and is given back
when the job ends. Totals and hold change in one transaction, on the totals' version, so that of two jobs that race for
the last dollars one wins. All amounts are integer nano-dollars.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

EACH: Final = "each"
"""The period whose limit holds in every month that has none of its own."""


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one tenant in one period, a month such as 2026-11 (UTC)."""

    tenant: str
    period: str
    version: int = 0
    """0: not stored yet."""
    limit: int | None = None
    """None: none of its own."""
    reserved: int = 0
    spent: int = 0
    set_by: str = ""
    updated_at: float = 0


class BudgetHold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job's part. `worst` is what it was reckoned to cost at most when its run began, with what was spent by then;
    `closed`: the job has ended."""

    tenant: str
    period: str
    job_key: str
    worst: int
    reserved: int
    spent: int
    run: int = 1
    """The job's run for which it was set aside: an earlier run that ends late does not give it back."""
    closed: bool = False
    updated_at: float = 0


def period_of(moment: float) -> str:
    """The month of a moment (Unix seconds)."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m")


def moved(budget: Budget, old: BudgetHold | None, new: BudgetHold) -> Budget:
    """The totals once a hold has changed."""
    was_reserved, was_spent = (old.reserved, old.spent) if old is not None else (0, 0)
    return replace(
        budget,
        reserved=budget.reserved + new.reserved - was_reserved,
        spent=budget.spent + new.spent - was_spent,
        updated_at=new.updated_at,
    )


def left(budget: Budget, limit: int) -> int:
    """Below 0 after a limit was lowered, or a provider billed what nobody asked for."""
    return limit - budget.reserved - budget.spent


def reserve(
    budget: Budget,
    limit: int | None,
    old: BudgetHold | None,
    job_key: str,
    *,
    run: int,
    more: int,
    spent: int,
    now: float,
) -> tuple[Budget, BudgetHold] | None:
    """Set aside what a run of a job may still cost, `more`; None if that is more than is left of the limit, if there is
    one. A job that was not told to give its part back is at work, and keeps it."""
    keeps = old is not None and not old.closed
    worst = old.worst if old is not None and keeps else spent + more
    hold = BudgetHold(
        tenant=budget.tenant,
        period=budget.period,
        job_key=job_key,
        worst=worst,
        reserved=max(0, worst - spent),
        spent=spent,
        run=run,
        updated_at=now,
    )
    after = moved(budget, old, hold)
    too_much = more > 0 and limit is not None and left(after, limit) < 0
    return None if too_much and not keeps else (after, hold)


def settle(
    budget: Budget, old: BudgetHold, *, spent: int, closed: bool, now: float
) -> tuple[Budget, BudgetHold] | None:
    """Book what a job has spent so far, and give the rest back once it has ended: a part that was given back is not
    taken again by whoever comes late. None if nothing changes."""
    closed = closed or old.closed
    hold = replace(old, spent=spent, reserved=0 if closed else max(0, old.worst - spent), closed=closed, updated_at=now)
    if replace(hold, updated_at=old.updated_at) == old:
        return None
    return moved(budget, old, hold), hold
