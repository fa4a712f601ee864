"""Taking from a quota pool and giving back: loops over its row, as `transitions` has them for jobs and submissions."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from tallybatch.domain import quotas
from tallybatch.domain.errors import LedgerBusy
from tallybatch.domain.quota_rows import Hold
from tallybatch.domain.quotas import Decision
from tallybatch.ports import Clock, Ledger, QuotaMove

_TRIES = 50
GRANTED = Decision(granted=True)


def ask(wish: Hold, ledger: Ledger, clock: Clock, *, force: bool = False) -> Decision:
    """Reserve, or wait in the line; asking again for what is reserved changes nothing. `force`: it is out at the
    provider already, so it counts, whatever the limits are."""
    known = ledger.quota_hold(wish.pool, wish.place)
    if known is not None and known.reserved_at:
        return GRANTED
    mine = known or wish
    for _ in range(_TRIES):
        now = clock.now()
        pool, line = ledger.quota_line(mine.pool)
        mine = next((hold for hold in line if hold.place == mine.place), mine)
        decision = GRANTED if force else quotas.decide(pool, mine, line, now)
        if not decision.granted:
            return _wait(mine, decision, ledger, now, enter=known is None)
        taken = replace(mine, reserved_at=now, due_at=0, not_before=0)
        if ledger.move_quota(quotas.take(pool, taken, now), QuotaMove(take=taken)):
            return decision
        again = ledger.quota_hold(mine.pool, mine.place)
        if again is not None and again.reserved_at:
            return GRANTED
    raise LedgerBusy("the quota pool's row changed under every try", where=mine.pool)


def _wait(mine: Hold, decision: Decision, ledger: Ledger, now: float, *, enter: bool) -> Decision:
    """If somebody was here at the same moment for the same submission, what is true now counts."""
    wait_s = quotas.pause_s(mine, now, decision.position)
    near = mine.near + (decision.position <= quotas.NEAR)
    waiting = replace(mine, due_at=now + wait_s, near=near)
    if not (ledger.enter_line(waiting) if enter else ledger.keep_place(waiting)):
        known = ledger.quota_hold(mine.pool, mine.place)
        if known is not None and known.reserved_at:
            return GRANTED
    return dataclasses.replace(decision, wait_s=wait_s)


def give_back(pool_name: str, place: str, ledger: Ledger, clock: Clock) -> bool:
    """End a reservation, or a wait. False if there is none, which is what it comes to when it is done again."""
    for _ in range(_TRIES):
        hold = ledger.quota_hold(pool_name, place)
        if hold is None:
            return False
        if not hold.reserved_at:
            if ledger.leave_line(hold):
                return True
            continue
        pool = quotas.give_back(ledger.quota_pool(pool_name), hold, clock.now())
        if ledger.move_quota(pool, QuotaMove(give=hold)):
            return True
    raise LedgerBusy("the quota pool's row changed under every try", where=pool_name)


def refused(pool_name: str, place: str, ledger: Ledger, clock: Clock, *, not_before: float) -> bool:
    """The provider refused for lack of quota: the reservation ends, its owner has its old place in the line again, and
    its model goes slower for a while."""
    for _ in range(_TRIES):
        hold = ledger.quota_hold(pool_name, place)
        if hold is None or not hold.reserved_at:
            return False
        now = clock.now()
        pool = quotas.give_back(quotas.slow_down(ledger.quota_pool(pool_name), hold, now), hold, now)
        back = replace(hold, reserved_at=0, not_before=not_before, due_at=not_before)
        if ledger.move_quota(pool, QuotaMove(back=back)):
            return True
    raise LedgerBusy("the quota pool's row changed under every try", where=pool_name)
