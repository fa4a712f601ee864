"""What a job cost, and in how many tokens, as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from tallybatch.report import words

_LINE_WORDS = {
    "first_success": "Accepted at the first attempt",
    "later_success": "Accepted at a later attempt",
    "retryable_failure": "Failed, and tried again",
    "quality_failure": "Answered, but failed its checks",
    "terminal_failure": "Failed for good",
    "conflict": "Answered twice, differently",
    "duplicate_submission": "Submitted twice",
    "unknown_ids": "Result lines with unknown ids",
    "unread_results": "Results that could not be read",
}
_ACCEPTED = frozenset({"first_success", "later_success"})
_TOKEN_WORDS = {
    "input": "Input",
    "cached_input": "of it cached",
    "output": "Output",
    "reasoning": "of it reasoning",
}


def money_view(money: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of the report's `money`; None for a job of which nothing was sent."""
    if "cost_usd" not in money:
        return None
    lines = money.get("lines") or []
    most = max((_amount(row.get("cost_usd")) for row in lines), default=Decimal(0))
    return {
        "tiles": [
            ("Cost", _dollars(money["cost_usd"])),
            ("of it for no accepted answer", _dollars(money.get("waste_usd"))),
            ("Per accepted record", _dollars(money.get("cost_per_accepted_usd"), "none")),
        ],
        "unpriced": words.number(money.get("unpriced") or ""),
        "rows": [
            {
                "name": _LINE_WORDS.get(row.get("line"), words.text(row.get("line"))),
                "cost": _dollars(row.get("cost_usd")),
                "css": "o-succeeded" if row.get("line") in _ACCEPTED else "o-permanent",
                "width": f"{_amount(row.get('cost_usd')) * 100 / most:.2f}" if most else "0",
            }
            for row in lines
        ],
    }


def tokens_view(tokens: Mapping[str, int]) -> list[dict[str, Any]]:
    """Input and output with the parts that they include; other kinds as they come."""
    known = [name for name in _TOKEN_WORDS if name in tokens]
    rest = sorted(name for name in tokens if name not in _TOKEN_WORDS)
    return [
        {
            "name": _TOKEN_WORDS.get(name, words.text(name)),
            "count": words.number(tokens[name]),
            "part": name in ("cached_input", "reasoning"),
        }
        for name in [*known, *rest]
    ]


def _dollars(value: Any, unknown: str = "unknown") -> str:
    return unknown if value is None else f"${words.text(value)}"


def _amount(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return Decimal(0)
