"""The quota pools of the port Ledger in memory, safe for threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tallybatch.domain.quota_rows import Hold, QuotaChange, QuotaPool
from tallybatch.ports import QuotaMove


class MemoryQuotas:
    def __init__(self) -> None:
        self._quota_lock = threading.RLock()
        self._pools: dict[str, QuotaPool] = {}
        self._holds: dict[tuple[str, str], Hold] = {}
        self._changes: list[QuotaChange] = []

    def quota_pool(self, name: str) -> QuotaPool:
        return self._pools.get(name) or QuotaPool(name=name)

    def quota_line(self, name: str) -> tuple[QuotaPool, Sequence[Hold]]:
        with self._quota_lock:
            waiting = [hold for (pool, _), hold in self._holds.items() if pool == name and not hold.reserved_at]
            return self.quota_pool(name), sorted(waiting, key=lambda hold: hold.turn)

    def quota_hold(self, name: str, place: str) -> Hold | None:
        return self._holds.get((name, place))

    def quota_holds(self, name: str) -> Iterator[Hold]:
        with self._quota_lock:
            return iter([hold for (pool, _), hold in sorted(self._holds.items()) if pool == name])

    def quota_changes(self, name: str) -> Sequence[QuotaChange]:
        return [change for change in self._changes if change.pool == name]

    def enter_line(self, hold: Hold) -> bool:
        with self._quota_lock:
            if (hold.pool, hold.place) in self._holds:
                return False
            self._holds[hold.pool, hold.place] = hold
            return True

    def keep_place(self, hold: Hold) -> bool:
        with self._quota_lock:
            known = self._holds.get((hold.pool, hold.place))
            if known is None or known.reserved_at or known.turn != hold.turn:
                return False
            self._holds[hold.pool, hold.place] = hold
            return True

    def leave_line(self, hold: Hold) -> bool:
        with self._quota_lock:
            known = self._holds.get((hold.pool, hold.place))
            if known is None or known.reserved_at:
                return False
            del self._holds[hold.pool, hold.place]
            return True

    def move_quota(self, pool: QuotaPool, move: QuotaMove) -> bool:
        with self._quota_lock:
            if self.quota_pool(pool.name).version != pool.version:
                return False
            if move.take is not None and self._is_reserved(move.take):
                return False
            if any(hold is not None and not self._is_reserved(hold) for hold in (move.give, move.back)):
                return False
            self._pools[pool.name] = replace(pool, version=pool.version + 1)
            if move.give is not None:
                del self._holds[pool.name, move.give.place]
            for hold in (move.take, move.back):
                if hold is not None:
                    self._holds[pool.name, hold.place] = hold
            if move.note is not None:
                self._changes.append(move.note)
            return True

    def _is_reserved(self, hold: Hold) -> bool:
        known = self._holds.get((hold.pool, hold.place))
        return known is not None and known.reserved_at > 0
