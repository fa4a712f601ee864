"""How values are written on the page: numbers, times and texts for people. Pure, and free of the clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

_LONGEST = 600
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, bidirectional overrides and lone surrogates: none of them can stand in a page as it is."""


def number(value: Any) -> str:
    """With thousands separators; "" for what is no number."""
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else ""


def share(part: int, whole: int) -> str:
    """A percentage with one digit; 100 % and 0 % only when it is exactly that."""
    if whole <= 0:
        return ""
    if part in (0, whole):
        return "0 %" if part == 0 else "100 %"
    percent = part * 100 / whole
    if percent < 0.1:
        return "< 0.1 %"
    return "> 99.9 %" if percent > 99.9 else f"{percent:.1f} %"


def moment(seconds: Any) -> str:
    """Unix seconds as ISO 8601 in UTC, whole seconds; "" for 0 and for what no calendar holds."""
    if not isinstance(seconds, int | float) or not seconds > 0:
        return ""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""


def duration(seconds: float) -> str:
    """The two largest units."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def size(count: Any) -> str:
    """Bytes in decimal units."""
    if not isinstance(count, int) or isinstance(count, bool):
        return ""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def text(value: Any) -> str:
    """Any value as text that can stand in a page: unprintable characters by their code, very long ones cut."""
    plain = "" if value is None else value if isinstance(value, str) else str(value)
    if len(plain) > _LONGEST:
        plain = f"{plain[:_LONGEST]}… ({len(plain):,} characters)"
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", plain)
