"""A job's part of its tenant's budget: set aside before the first call, settled after each attempt, closed at the end.

Each of these may be repeated at any point: what a job holds follows from what the ledger has booked for it.
"""

from __future__ import annotations

from tallybatch.domain import budgets
from tallybatch.domain.budgets import EACH, Budget
from tallybatch.domain.errors import LedgerBusy, Permanent
from tallybatch.domain.prices import usd
from tallybatch.domain.rows import Job
from tallybatch.ports import Clock, Ledger
from tallybatch.steps.reserve_quota import OUT

_TRIES = 50
_OUT_AT_MOST_S = 2 * 86_400


def reserve(job: Job, more: int | None, ledger: Ledger, clock: Clock) -> None:
    """`more`: nano-dollars that this run may still cost, None if nobody can tell. Raises `Permanent` with the figures
    if that is more than is left of the tenant's month. Without a limit everything fits, and is counted all the same: a
    limit that is set later holds for the whole month."""
    period = budgets.period_of(job.created_at)
    for _ in range(_TRIES):
        budget = ledger.budget(job.tenant, period)
        limit = _limit(budget, ledger)
        old = ledger.budget_hold(job.tenant, period, job.job_key)
        if old is not None and (old.run, old.closed) > (job.run, False):
            return  # this run has ended: whoever asks for it comes late, and submits nothing
        if more is None and limit is not None and (old is None or old.closed):
            raise _nobody_can_tell(job, period)
        taken = budgets.reserve(
            budget,
            limit,
            old,
            job.job_key,
            run=job.run,
            more=more or 0,
            spent=spent_on(job, ledger),
            now=clock.now(),
        )
        if taken is None:
            raise _too_much(job, period, more or 0, budget, limit or 0)
        if ledger.move_budget(*taken):
            return
    raise _busy(job)


def settle(job: Job, ledger: Ledger, clock: Clock, *, closed: bool) -> bool:
    """Book what the job has cost. `closed`: this run of it has ended, and what is left of its part is given back. False
    if there was nothing to change."""
    period = budgets.period_of(job.created_at)
    for _ in range(_TRIES):
        budget = ledger.budget(job.tenant, period)
        old = ledger.budget_hold(job.tenant, period, job.job_key) if budget.version else None
        if old is None or old.run > job.run:
            return False
        changed = budgets.settle(budget, old, spent=spent_on(job, ledger), closed=closed, now=clock.now())
        if changed is None:
            return False
        if ledger.move_budget(*changed):
            return True
    raise _busy(job)


def end(job: Job, ledger: Ledger, clock: Clock) -> bool:
    """The job has ended: give back what is left of its part. What its provider jobs that are still out may bill stays
    set aside, for two days after the job's end at most."""
    long_ago = clock.now() > job.updated_at + _OUT_AT_MOST_S
    out = not long_ago and any(row.state in OUT for row in ledger.submissions(job.job_key))
    return settle(job, ledger, clock, closed=not out)


def spent_on(job: Job, ledger: Ledger) -> int:
    """Nano-dollars that are booked so far, duplicates included."""
    return sum(row.cost_nano_usd + row.duplicate_cost_nano_usd for row in ledger.submissions(job.job_key))


def _limit(budget: Budget, ledger: Ledger) -> int | None:
    return budget.limit if budget.limit is not None else ledger.budget(budget.tenant, EACH).limit


def _nobody_can_tell(job: Job, period: str) -> Permanent:
    return Permanent(
        "nobody can tell what this job may cost, and its tenant has a budget",
        where=_month(job, period),
        why="its model had no price when it began, or its answers have no cap",
        do="put the price into prices/prices.yaml and generation.max_output_tokens into the spec, and drop the file "
        "under another dataset version; or take the budget away with "
        f"`tallybatch budget set --tenant {job.tenant} --usd none`, then {_resume(job)}",
    )


def _too_much(job: Job, period: str, more: int, budget: Budget, limit: int) -> Permanent:
    return Permanent(
        f"the job may cost {usd(more)} US dollars more, and {usd(max(0, budgets.left(budget, limit)))} are left",
        where=_month(job, period),
        why=f"of {usd(limit)}, {usd(budget.spent)} are spent and {usd(budget.reserved)} set aside for jobs",
        do=f"raise it with `tallybatch budget set --tenant {job.tenant} --month {period} --usd N`, or wait until other "
        f"jobs have ended; then {_resume(job)}",
    )


def _resume(job: Job) -> str:
    return f"`tallybatch resume {job.job_key[:12]}`"


def _month(job: Job, period: str) -> str:
    return f"tenant {job.tenant}, {period}, in which the job was made"


def _busy(job: Job) -> LedgerBusy:
    return LedgerBusy("the budget changed under every try", where=f"tenant {job.tenant}", do="run it again")
