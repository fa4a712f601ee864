"""Quantities as people write them in a spec: durations, sizes and dollars. Exact in both directions, never a float."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

DURATION_PATTERN = r"^([0-9]{1,9}(d|h|m|s))+$"
SIZE_PATTERN = r"^[0-9]{1,12} ?(B|KB|MB|GB|KiB|MiB|GiB)$"
USD_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,9})?$"

_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_BYTES = {
    "GB": 10**9,
    "MB": 10**6,
    "KB": 10**3,
    "GiB": 2**30,
    "MiB": 2**20,
    "KiB": 2**10,
    "B": 1,
}
_LONGEST_S = 10**10
_HOURS_UP_TO_S = 2 * _SECONDS["d"]


def parse_duration(value: Any) -> timedelta:
    """`5m`, `48h`, `30d`, `1h30m`. Raises `ValueError` that says how to write it."""
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str) or not re.fullmatch(DURATION_PATTERN, value):
        raise ValueError(f"{shown(value)} is not a duration; write a number and a unit: 90s, 5m, 48h or 30d")
    parts = re.findall(r"([0-9]+)([dhms])", value)
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in parts)
    if seconds > _LONGEST_S:
        raise ValueError(f"{shown(value)} is too long for a duration; write a number and a unit: 90s, 5m, 48h or 30d")
    return timedelta(seconds=seconds)


def format_duration(value: timedelta) -> str:
    """The shortest exact form with one unit; hours up to two days, as batch windows are spoken of."""
    seconds = round(value.total_seconds())
    if seconds == 0:
        return "0s"
    units = ("h", "m", "s") if seconds <= _HOURS_UP_TO_S else ("d", "h", "m", "s")
    return next(f"{seconds // _SECONDS[unit]}{unit}" for unit in units if seconds % _SECONDS[unit] == 0)


def parse_size(value: Any) -> int:
    """Bytes, from `100MB` (10^6), `64KiB` (2^10) or a whole number of bytes. Raises `ValueError`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not re.fullmatch(SIZE_PATTERN, value):
        raise ValueError(f"{shown(value)} is not a size; write a number and a unit: 100MB, 64KiB, or bytes")
    number, unit = re.match(r"([0-9]+) ?(\w+)", value).groups()  # type: ignore[union-attr]
    return int(number) * _BYTES[unit]


def format_size(value: int) -> str:
    """The largest unit in which `value` bytes are a whole number."""
    return next(f"{value // size}{unit}" for unit, size in _BYTES.items() if value % size == 0)


def parse_usd(value: Any) -> Decimal:
    """US dollars with at most nine decimals (nano-dollars). Raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"{shown(value)} is not an amount in US dollars; write a number such as 40 or 0.01")
    try:
        amount = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise ValueError(f"{shown(value)} is not an amount in US dollars; write a number such as 40 or 0.01") from None
    if not amount.is_finite() or abs(amount) >= 10**12:
        raise ValueError(f"{shown(value)} is not an amount in US dollars; write a number such as 40 or 0.01")
    if amount != round(amount, 9):
        raise ValueError(f"{shown(value)} is finer than a nano-dollar; use at most nine decimals")
    return amount


def format_usd(value: Decimal) -> str:
    """Plain decimal notation, no exponent, no trailing zeros."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shown(value: Any, limit: int = 60) -> str:
    """A value as it may appear inside an error: short, and quoted if it is text."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(frozen=True, slots=True)
class _Quantity:
    """Annotation of a pydantic field: reads text, keeps the exact value, shows text again; bounds are inclusive."""

    low: str
    high: str
    whole: str = ""
    """The quantity must be a multiple of this one."""

    def _kind(self) -> tuple[Callable[[Any], Any], Callable[[Any], str], dict[str, Any]]:
        raise NotImplementedError

    def read(self, value: Any) -> Any:
        parse, _, _ = self._kind()
        try:
            quantity = parse(value)
        except ValueError as error:
            raise PydanticCustomError("unit", "{reason}", {"reason": str(error)}) from None
        if not parse(self.low) <= quantity <= parse(self.high):
            reason = f"must be between {self.low} and {self.high}, not {value}"
            raise PydanticCustomError("range", "{reason}", {"reason": reason})
        if self.whole and quantity % parse(self.whole):
            raise PydanticCustomError(
                "range", "{reason}", {"reason": f"must be a multiple of {self.whole}, not {value}"}
            )
        return quantity

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        _, show, _ = self._kind()
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(show)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        _, _, json_schema = self._kind()
        return dict(json_schema)


class DurationBetween(_Quantity):
    """A `timedelta` written as `5m`, `48h` or `30d`."""

    def _kind(self) -> tuple[Callable[[Any], Any], Callable[[Any], str], dict[str, Any]]:
        return parse_duration, format_duration, {"type": "string", "pattern": DURATION_PATTERN}


class SizeBetween(_Quantity):
    """A number of bytes written as `100MB` or `64KiB`."""

    def _kind(self) -> tuple[Callable[[Any], Any], Callable[[Any], str], dict[str, Any]]:
        forms = [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "integer"}]
        return parse_size, format_size, {"anyOf": forms}


class UsdBetween(_Quantity):
    """A `Decimal` amount of US dollars."""

    def _kind(self) -> tuple[Callable[[Any], Any], Callable[[Any], str], dict[str, Any]]:
        return parse_usd, format_usd, {"anyOf": [{"type": "number"}, {"type": "string", "pattern": USD_PATTERN}]}
