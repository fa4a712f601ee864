"""The budgets of the port Ledger in memory, safe for threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from msgspec.structs import replace

from tallybatch.domain.budgets import Budget, BudgetHold


class MemoryBudgets:
    def __init__(self) -> None:
        self._budget_lock = threading.RLock()
        self._budgets: dict[tuple[str, str], Budget] = {}
        self._budget_holds: dict[tuple[str, str, str], BudgetHold] = {}

    def budget(self, tenant: str, period: str) -> Budget:
        return self._budgets.get((tenant, period)) or Budget(tenant=tenant, period=period)

    def budget_hold(self, tenant: str, period: str, job_key: str) -> BudgetHold | None:
        return self._budget_holds.get((tenant, period, job_key))

    def budget_holds(self, tenant: str, period: str) -> Iterator[BudgetHold]:
        with self._budget_lock:
            return iter([hold for key, hold in sorted(self._budget_holds.items()) if key[:2] == (tenant, period)])

    def move_budget(self, budget: Budget, hold: BudgetHold | None = None) -> bool:
        with self._budget_lock:
            if self.budget(budget.tenant, budget.period).version != budget.version:
                return False
            self._budgets[budget.tenant, budget.period] = replace(budget, version=budget.version + 1)
            if hold is not None:
                self._budget_holds[hold.tenant, hold.period, hold.job_key] = hold
            return True
