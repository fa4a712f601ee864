"""Rows as DynamoDB items: keys of the single table, and numbers, strings, lists and maps on the wire.

boto3's own TypeSerializer is not used: it refuses floats, and it costs most of what a batch costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

Item = dict[str, Any]
"""Attribute name to typed value, e.g. `{"attempt": {"N": "1"}}`."""

RowT = TypeVar("RowT", bound=msgspec.Struct)


def job_pk(job_key: str) -> str:
    return f"JOB#{job_key}"


def submission_sk(attempt: int, shard_id: str = "") -> str:
    """Four digits, so that the order of keys is the order of attempts; without a shard, the prefix of an attempt."""
    return f"SUB#{attempt:04d}#{shard_id}"


def record_pk(record_key: str) -> str:
    return f"REC#{record_key}"


def pin_pk(kind: str, key: str) -> str:
    if "#" in kind:
        raise ValueError(f"a pin's kind is a word without '#', not {kind!r}: two pins could share one key")
    return f"PIN#{kind}#{key}"


def moment(unix_s: float) -> str:
    """UTC to the microsecond with a fixed width: sorts as text in the order of time."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="microseconds")


def key_of(pk: str, sk: str) -> Item:
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def attribute(value: Any) -> dict[str, Any]:
    """A plain value as a typed one. A number keeps the 17 digits that a float has; infinities are refused by AWS."""
    match value:
        case str():
            return {"S": value}
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": repr(value)}
        case Mapping():
            return {"M": {name: attribute(part) for name, part in value.items()}}
        case list() | tuple():
            return {"L": [attribute(part) for part in value]}
        case None:
            return {"NULL": True}
    raise TypeError(f"{type(value).__name__} has no place in the ledger")


def plain(typed: Mapping[str, Any]) -> Any:
    """The reverse of `attribute`. DynamoDB drops a trailing ".0": a whole number comes back as an int."""
    ((kind, value),) = typed.items()
    match kind:
        case "S" | "BOOL":
            return value
        case "N":
            return int(value) if value.lstrip("-").isdigit() else float(value)
        case "M":
            return {name: plain(part) for name, part in value.items()}
        case "L":
            return [plain(part) for part in value]
        case "NULL":
            return None
    raise TypeError(f"the ledger writes no attribute of type {kind}")


def item_of(row: msgspec.Struct, pk: str, sk: str) -> Item:
    """A row's fields as attributes beside the key; fields at their default are left out."""
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return key_of(pk, sk) | {name: attribute(value) for name, value in fields.items()}


def row_of(item: Mapping[str, Any], kind: type[RowT]) -> RowT:
    """The row in an item; attributes that are no field of it (keys, nonce, index) are passed over."""
    names = kind.__struct_fields__
    return msgspec.convert({name: plain(item[name]) for name in names if name in item}, kind)
