"""Who may take from a quota pool, and when: decided from the pool's row and its line alone.

The line is first come, first served within a priority. Whoever is next and does not fit blocks the others of its model,
so that a large shard gets what is freed before small ones do. What a waiter further ahead will take is kept for it, so
all that fit may take at once, in any order of their asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from tallybatch.domain.quota_rows import NOTHING, Amount, Hold, QuotaPool, Slow

EACH: Final = "each"
"""Scope of the limits that every model has which has none of its own."""
ALL: Final = "all"
"""Scope of the limits of all models of the provider together."""
UNLIMITED: Final = -1
"""As a limit that is set: none, whatever the default is."""
ADMISSION: Final = "admission"
"""The pool of jobs that are at work, from their first state to their end."""

DEFAULTS: Final[Mapping[str, Mapping[str, Mapping[str, int]]]] = {
    "openai": {},
    "bedrock": {EACH: {"jobs": 10}},
    "gemini": {ALL: {"jobs": 100}},
    ADMISSION: {ALL: {"jobs": 100}},
}
"""OpenAI tells an account's enqueued tokens on its limits page only: set them. Bedrock: Service Quotas, "Sum of
in-progress and submitted batch inference jobs using a base model", 10 to 20 by model. Gemini: "Rate limits", 100
concurrent batch jobs a project. Admission is ours: what Step Functions and people can follow at once."""

RECOVERY_S: Final = 3600
"""After a refusal a model has half of what was out then; so long later, one and a half times as much; with twice as
much the limit is the set one again."""
FIRST_PAUSE_S: Final = 10
LONGEST_PAUSE_S: Final = 600
NEAR: Final = 5
"""From this position on it may be one's turn at any moment."""
NEAR_PAUSE_S: Final = 30
MOST_NEAR: Final = 400
_PATIENCE: Final = 0.05
_GRACE_S: Final = 120


@dataclass(frozen=True, slots=True)
class Decision:
    granted: bool
    position: int = 0
    """1 is next; 0 when granted."""
    wait_s: int = 0
    """Until the next question."""
    never: str = ""
    """Why it can never be granted under the limits as they are, "" if it can."""


def pause_s(hold: Hold, now: float, position: int) -> int:
    """Until the next question: short for whoever may be next, so that quota is not idle; else, and after so many of
    those, a twentieth of the time waited so far, so that a week of waiting fits into one execution's history."""
    if position <= NEAR and hold.near < MOST_NEAR:
        return FIRST_PAUSE_S if hold.near < NEAR else NEAR_PAUSE_S
    return round(min(max(FIRST_PAUSE_S, (now - hold.asked_at) * _PATIENCE), LONGEST_PAUSE_S))


def decide(pool: QuotaPool, mine: Hold, line: Sequence[Hold], now: float) -> Decision:
    """Whether `mine` may take now. `line` is of all who wait, in order, with or without `mine`."""
    if why := never_fits(pool, mine):
        return Decision(granted=False, position=_position(mine, line), never=why)
    others = (hold for hold in line if hold.place != mine.place and _is_there(hold, now) and not never_fits(pool, hold))
    waiting = sorted((*others, mine), key=lambda hold: hold.turn)
    usage = _Usage(pool, waiting, now)
    while (candidate := usage.next_of(waiting)) is not None:
        if lacking := usage.lacking(candidate):
            if candidate is mine or lacking == ALL:
                break
            usage.blocked.add(candidate.model)
            if mine.model in usage.blocked:
                break
        elif candidate is mine:
            return Decision(granted=True)
        else:
            usage.take(candidate)
            waiting.remove(candidate)
    return Decision(granted=False, position=_position(mine, line))


def _position(mine: Hold, line: Sequence[Hold]) -> int:
    return 1 + sum(hold.turn < mine.turn and hold.model == mine.model for hold in line)


def _is_there(hold: Hold, now: float) -> bool:
    patience = max(_GRACE_S, 2 * min((hold.due_at - hold.asked_at) * _PATIENCE, LONGEST_PAUSE_S))
    return hold.not_before <= now and now <= hold.due_at + patience


def limits_of(pool: QuotaPool, scope: str) -> dict[str, int]:
    """The limits in force for a model, or for `all` together; a dimension that is missing has none."""
    defaults = DEFAULTS.get(pool.name, {})
    layers = [defaults.get(ALL, {})] if scope == ALL else [defaults.get(EACH, {}), pool.limits.get(EACH, {})]
    merged = {name: limit for layer in (*layers, pool.limits.get(scope, {})) for name, limit in layer.items()}
    return {name: limit for name, limit in merged.items() if limit != UNLIMITED}


def usable(pool: QuotaPool, scope: str) -> dict[str, int]:
    """The limits less the headroom, rounded down, but never to nothing."""
    return {
        name: max(int(limit * (1 - pool.headroom)), min(limit, 1)) for name, limit in limits_of(pool, scope).items()
    }


def never_fits(pool: QuotaPool, hold: Hold) -> str:
    for scope in (hold.model, ALL):
        for dimension, limit in usable(pool, scope).items():
            if hold.amount.of(dimension) > limit:
                return f"it needs {hold.amount.of(dimension)} {dimension}; the limit for {scope} is {limit}"
    return ""


def effective(pool: QuotaPool, scope: str, now: float) -> dict[str, int]:
    """`usable`, and lower for a while after the provider refused."""
    limits = usable(pool, scope)
    slow = pool.slow.get(scope)
    factor = _factor(slow, now) if slow is not None else 2.0
    if slow is not None and factor < 2:
        for dimension in ("tokens", "jobs"):
            lowered = max(1, int(slow.ceiling.of(dimension) * factor))
            limits[dimension] = min(limits.get(dimension, lowered), lowered)
    return limits


def _factor(slow: Slow, now: float) -> float:
    return 0.5 + max(0.0, now - slow.at) / RECOVERY_S


def used_by_model(pool: QuotaPool, model: str) -> Amount:
    return _total(pool.used.get(model, {}).values())


def _total(amounts: Iterable[Amount]) -> Amount:
    total = NOTHING
    for amount in amounts:
        total = total.plus(amount)
    return total


class _Usage:
    """What is taken, in a world where those ahead in the line take theirs one after the other."""

    def __init__(self, pool: QuotaPool, waiting: Sequence[Hold], now: float) -> None:
        self.blocked: set[str] = set()
        """Models of which somebody ahead waits for more than is free."""
        self._pool = pool
        self._held: dict[tuple[str, str], Amount] = {}
        """By scope and tenant."""
        self._sum: dict[str, Amount] = {}
        self._limits = {scope: effective(pool, scope, now) for scope in {hold.model for hold in waiting} | {ALL}}
        for model, tenants in pool.used.items():
            for tenant, amount in tenants.items():
                self._add(model, tenant, amount)

    def take(self, hold: Hold) -> None:
        self._add(hold.model, hold.tenant, hold.amount)

    def _add(self, model: str, tenant: str, amount: Amount) -> None:
        for scope in (model, ALL):
            self._held[scope, tenant] = self._held.get((scope, tenant), NOTHING).plus(amount)
            self._sum[scope] = self._sum.get(scope, NOTHING).plus(amount)

    def next_of(self, waiting: Sequence[Hold]) -> Hold | None:
        """The first whose tenant is within its share; if none is, the first. None if the rest is blocked."""
        line = [hold for hold in waiting if hold.model not in self.blocked]
        tenants = {scope: {hold.tenant for hold in line if scope in (hold.model, ALL)} for scope in self._limits}
        shares = {scope: self._shares(scope, waiting_there) for scope, waiting_there in tenants.items()}
        return next((hold for hold in line if self._within_share(hold, tenants, shares)), line[0] if line else None)

    def lacking(self, hold: Hold) -> str:
        """The scope in which it does not fit, "" if it fits. What is empty takes one, however slow it was made."""
        for scope in (ALL, hold.model):
            total = self._sum.get(scope, NOTHING)
            for dimension, limit in self._limits[scope].items():
                wanted, there = hold.amount.of(dimension), total.of(dimension)
                if wanted and there and there + wanted > limit:
                    return scope
                if wanted and limit == 0:
                    return scope
        return ""

    def _within_share(
        self, hold: Hold, tenants: Mapping[str, set[str]], shares: Mapping[str, Mapping[str, float]]
    ) -> bool:
        for scope in (hold.model, ALL):
            if len(tenants[scope]) < 2:
                continue
            held = self._held.get((scope, hold.tenant), NOTHING)
            for dimension, limit in self._limits[scope].items():
                wanted, there = hold.amount.of(dimension), held.of(dimension)
                if wanted and there and there + wanted > limit * shares[scope][hold.tenant]:
                    return False
        return True

    def _shares(self, scope: str, waiting: set[str]) -> dict[str, float]:
        """Of those who wait there or hold something there."""
        holding = {tenant for (where, tenant), amount in self._held.items() if where == scope and amount != NOTHING}
        everybody = waiting | holding
        named = {tenant: share for tenant, share in self._pool.shares.items() if tenant in everybody}
        others = everybody - named.keys()
        rest = max(0.0, 1 - sum(named.values())) / len(others) if others else 0.0
        return {**named, **dict.fromkeys(others, rest)}


def take(pool: QuotaPool, hold: Hold, now: float) -> QuotaPool:
    return _with(pool, hold, _held(pool, hold).plus(hold.amount), now)


def give_back(pool: QuotaPool, hold: Hold, now: float) -> QuotaPool:
    return _with(pool, hold, _held(pool, hold).minus(hold.amount), now)


def _held(pool: QuotaPool, hold: Hold) -> Amount:
    return pool.used.get(hold.model, {}).get(hold.tenant, NOTHING)


def _with(pool: QuotaPool, hold: Hold, amount: Amount, now: float) -> QuotaPool:
    tenants = {**pool.used.get(hold.model, {}), hold.tenant: amount}
    tenants = {tenant: held for tenant, held in tenants.items() if held != NOTHING}
    used = {**pool.used, hold.model: tenants}
    return replace(pool, used={model: held for model, held in used.items() if held}, updated_at=now)


def slow_down(pool: QuotaPool, hold: Hold, now: float) -> QuotaPool:
    """After the provider refused this hold for lack of quota; to be called before it is given back. Of many that are
    refused together, only the first halves: the others were let in before it was known."""
    slow = pool.slow.get(hold.model)
    if slow is not None and hold.reserved_at <= slow.at:
        return pool
    kept = {model: each for model, each in pool.slow.items() if _factor(each, now) < 2}
    return replace(pool, slow={**kept, hold.model: Slow(now, used_by_model(pool, hold.model))}, updated_at=now)


def largest(pool: QuotaPool, model: str, dimension: str) -> int | None:
    """The most that one hold can ever get of a dimension; None if there is no limit."""
    limits = [usable(pool, scope).get(dimension) for scope in (model, ALL)]
    return min((limit for limit in limits if limit is not None), default=None)
