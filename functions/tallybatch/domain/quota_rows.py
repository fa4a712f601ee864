"""Rows of a quota pool: its totals, and one hold for everybody who has, or waits for, a part of it.

A pool is a provider's: a stack has one account and one region for each, so its table holds theirs and no other. Within
it, limits and usage are per model. All models of a provider share one row, because some limits are the account's
(Gemini's concurrent jobs), and no pool of one model alone could keep them.
"""

from __future__ import annotations

from typing import Final

import msgspec

DIMENSIONS: Final = ("tokens", "jobs", "requests")
"""Enqueued prompt tokens, concurrent provider jobs, and requests in flight."""
RANKS: Final = {"high": 0, "normal": 1, "low": 2}
"""Order of `limits.priority`."""


class Amount(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a hold takes of each dimension."""

    tokens: int = 0
    jobs: int = 0
    requests: int = 0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.jobs + other.jobs, self.requests + other.requests)

    def minus(self, other: Amount) -> Amount:
        return Amount(
            max(0, self.tokens - other.tokens), max(0, self.jobs - other.jobs), max(0, self.requests - other.requests)
        )

    def of(self, dimension: str) -> int:
        amount: int = getattr(self, dimension)
        return amount


NOTHING: Final = Amount()


class Slow(msgspec.Struct, frozen=True):
    """The provider refused for lack of quota at `at` (Unix seconds), while `ceiling` was out, the refused included."""

    at: float
    ceiling: Amount


class QuotaPool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The totals. `limits` are those that people have set, by scope (a model, `each` model, or `all` together) and
    dimension; `used` is by model and tenant."""

    name: str
    version: int = 0
    """0: not stored yet."""
    limits: dict[str, dict[str, int]] = {}
    headroom: float = 0
    """Share of each limit that is kept free for traffic that is not ours."""
    shares: dict[str, float] = {}
    """Share of each limit that a tenant may hold while others wait; the rest is divided evenly among the others."""
    used: dict[str, dict[str, Amount]] = {}
    slow: dict[str, Slow] = {}
    """By model."""
    updated_at: float = 0


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A wish for a part of a pool, or, once `reserved_at` is set, the reservation. A reservation never expires."""

    pool: str
    model: str
    tenant: str
    job_key: str
    attempt: int
    shard_id: str
    rank: int
    amount: Amount
    asked_at: float
    """When it was asked for first: its place in the line."""
    reserved_at: float = 0
    due_at: float = 0
    """When whoever waits will ask again; much later, nobody is there any more, and the others pass."""
    near: int = 0
    """How often it has asked when it was nearly its turn."""
    not_before: float = 0
    """After a refusal: no other try before this, and nothing is kept free for it until then."""

    @property
    def place(self) -> str:
        return place(self.job_key, self.attempt, self.shard_id)

    @property
    def turn(self) -> tuple[int, float, str]:
        """Sorts the line: priority first, then who asked first."""
        return self.rank, self.asked_at, self.place


def place(job_key: str, attempt: int, shard_id: str) -> str:
    """The identity of a hold within its pool: one for each submission, however often it is asked for."""
    return f"{job_key}/{attempt}/{shard_id}"


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One setting of a pool by a person, for the audit: what was in force before and after."""

    pool: str
    at: float
    by: str
    before: dict[str, object] = {}
    after: dict[str, object] = {}
