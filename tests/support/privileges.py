"""Bucket and table as a function's role lets it see them: the emulator enforces no IAM, so the tests' drivers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infra.constructs.profiles import PROFILES, Profile
from tallybatch.settings import StoreSettings

READS = frozenset({"head", "get", "get_range", "open", "list"})
WRITES = frozenset({"put_once", "put", "put_if_match"})
TABLE_ACTIONS = {
    "job": "GetItem",
    "put_job": "PutItem",
    "submission": "GetItem",
    "submissions": "Query",
    "put_submission": "PutItem",
    "claim_records": "PartiQLInsert",
    "take_over_records": "PartiQLUpdate",
    "accept_records": "PartiQLUpdate",
    "withdraw_records": "PartiQLUpdate",
    "records": "BatchGetItem",
    "pinned": "GetItem",
    "pin": "PutItem",
    "quota_pool": "GetItem",
    "quota_line": "Query",
    "quota_hold": "GetItem",
    "quota_holds": "Query",
    "enter_line": "PutItem",
    "keep_place": "PutItem",
    "leave_line": "DeleteItem",
    "move_quota": "DeleteItem",
    "budget": "GetItem",
    "budget_hold": "GetItem",
    "budget_holds": "Query",
    "move_budget": "PutItem",
}
"""What the adapter asks DynamoDB for, by the port's call."""
LISTS = frozenset({"jobs", "jobs_with_prefix"})


class AccessDenied(Exception):
    """As IAM answers. No code of ours knows this error."""


class AllowedObjects:
    """The port Objects, of which a function may do what its profile says."""

    def __init__(self, inner: Any, function: type[StoreSettings]) -> None:
        self._inner, self._function, self._profile = inner, function.function, PROFILES[function]

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        allowed = _prefixes(name, self._profile)
        if allowed is None:
            return value

        def called(key: str, *passed: Any, **named: Any) -> Any:
            if not key.startswith(allowed):
                raise AccessDenied(f"{self._function} may not {name} {key}")
            return value(key, *passed, **named)

        return called


def _prefixes(name: str, profile: Profile) -> tuple[str, ...] | None:
    """Below which a call is allowed; None for one that asks for no right."""
    if name in READS:
        return profile.readable
    if name in WRITES:
        return profile.writes
    return profile.tags if name == "retain" else None


class AllowedLedger:
    """The port Ledger likewise."""

    def __init__(self, inner: Any, function: type[StoreSettings]) -> None:
        self._inner, self._function, self._profile = inner, function.function, PROFILES[function]

    def __getattr__(self, name: str) -> Any:
        value: Callable[..., Any] = getattr(self._inner, name)
        listed = name in LISTS and self._profile.lists_jobs
        if not listed and f"dynamodb:{TABLE_ACTIONS.get(name)}" not in self._profile.table:
            raise AccessDenied(f"{self._function} may not {name}")
        return value
