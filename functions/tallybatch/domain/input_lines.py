"""Read and check lines of an input file: the first half of the record loop, so it takes many lines at once.

A line is refused with a code and a reason. Where one of many is, the reason is that of the first to fail a check.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, NoReturn

import msgspec

MAX_LINE_BYTES = 1_048_576
MAX_KEY_LENGTH = 512
"""Longest business key, in characters."""
MAX_DEPTH = 200
"""Deepest nesting of a line. A limit of our own: the interpreter's differs by version and by who calls."""
MAX_DIGITS = 4300
"""Longest integer. Source: Python's `sys.int_info.default_max_str_digits`."""

_TOO_DEEP = f"the JSON is nested deeper than {MAX_DEPTH} levels"
_decode = msgspec.json.Decoder().decode
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class LineRefused(Exception):
    """Why a line cannot be used."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def decode_object(line: bytes) -> dict[str, Any]:
    """As `decode_objects`, of a single line."""
    return decode_objects([line])[0]


def decode_objects(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """The JSON object on each line, with every fault that a lenient parser would hide refused.

    Integers of any size come through unchanged. Raises `LineRefused`.
    """
    if max(map(len, lines)) > MAX_LINE_BYTES:
        raise LineRefused("line_too_long", f"the line is longer than {MAX_LINE_BYTES:,} bytes")
    try:
        objects = list(map(_decode, lines))
    except (msgspec.DecodeError, RecursionError):
        objects = list(map(_decode_slowly, lines))
    if set(map(type, objects)) != {dict}:
        stranger = next(value for value in objects if type(value) is not dict)
        raise LineRefused("not_an_object", f"a JSON object is needed, this is {_kind(stranger)}")
    kinds = list(map(type, chain.from_iterable(map(dict.values, objects))))
    if (dict in kinds or list in kinds) and any(map(_is_deep, objects)):
        raise LineRefused("too_deep", _TOO_DEEP)
    # Each key and each string takes two quotes. Flat objects whose quotes are just those of the keys and strings
    # that arrived cannot hold a key twice; any others (nested, escaped quotes) are looked at slowly.
    if b"".join(lines).count(b'"') != 2 * (sum(map(len, objects)) + kinds.count(str)):
        for line, value in zip(lines, objects, strict=True):
            if line.count(b'"') != 2 * (len(value) + list(map(type, value.values())).count(str)):
                _check_keys_slowly(line)
    return objects


def read_keys(values: Sequence[Any]) -> list[str]:
    """`read_key` of each. Raises `LineRefused`."""
    strings = set(map(type, values)) == {str}
    if strings and all(values) and all(map(str.isprintable, values)) and max(map(len, values)) <= MAX_KEY_LENGTH:
        return list(values)
    return list(map(read_key, values))


def read_key(value: Any) -> str:
    """The business key as text: a non-empty string, or an integer written in decimal. Raises `LineRefused`."""
    if type(value) is int:
        value = str(value)
    if type(value) is not str:
        raise LineRefused("key_shape", f"the key must be a string or an integer, this is {_kind(value)}")
    if not value:
        raise LineRefused("key_shape", "the key is empty")
    if len(value) > MAX_KEY_LENGTH:
        raise LineRefused("key_shape", f"the key has {len(value)} characters; at most {MAX_KEY_LENGTH} are allowed")
    if not value.isprintable() and _CONTROL.search(value):
        raise LineRefused("key_shape", "the key holds a control character")
    return value


def pointer_reader(path: str) -> list[str]:
    """Steps of a field name or a JSON pointer (RFC 6901)."""
    if not path.startswith("/"):
        return [path]
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def resolve(value: Any, steps: list[str], path: str) -> Any:
    """The value at a pointer. Raises `LineRefused` where it is absent."""
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise LineRefused("missing_field", f"field {path!r} is missing")
    return value


def _is_deep(value: Any) -> bool:
    """Level by level, so that no depth is too much for the check itself."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for item in level:
            if type(item) is dict:
                inner += item.values()
            elif type(item) is list:
                inner += item
        level = [item for item in inner if type(item) in (dict, list)]
        if not level:
            return False
    return True


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _decode_slowly(line: bytes) -> Any:
    try:
        return _decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        _refuse_undecodable(line, error)


def _refuse_undecodable(line: bytes, error: Exception) -> NoReturn:
    """Find the true reason; msgspec's own message is the last resort."""
    if not line.strip():
        raise LineRefused("blank_line", "the line is blank") from None
    if line.startswith(b"\xef\xbb\xbf"):
        reason = "the line begins with a byte order mark; save as UTF-8 without one"
        raise LineRefused("byte_order_mark", reason) from None
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as wrong:
        raise LineRefused("invalid_utf8", f"byte {wrong.start + 1} is not valid UTF-8") from None
    if isinstance(error, RecursionError):
        raise LineRefused("too_deep", _TOO_DEEP) from None
    try:
        json.loads(text, parse_constant=_refuse_constant, parse_int=_read_int, parse_float=_read_float)
    except LineRefused:
        raise
    except RecursionError:
        raise LineRefused("too_deep", _TOO_DEEP) from None
    except json.JSONDecodeError as wrong:
        reason = f"not valid JSON: {wrong.msg.removesuffix(' at')} at character {wrong.pos + 1}"
        raise LineRefused("invalid_json", reason) from None
    if _SURROGATE.search(line):
        raise LineRefused("lone_surrogate", "a \\u escape is half of a surrogate pair") from None
    raise LineRefused("invalid_json", f"not valid JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise LineRefused("not_a_number", f"{name} is not JSON; use null or a number")


def _read_int(digits: str) -> int:
    length = len(digits.lstrip("-"))
    if length > MAX_DIGITS:
        raise LineRefused("number_range", f"an integer has {length:,} digits; at most {MAX_DIGITS:,} can be kept")
    return int(digits)


def _read_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise LineRefused("number_range", f"the number {text[:20]} is too large for a double")
    return value


def _check_keys_slowly(line: bytes) -> None:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            names = [name for name, _ in items]
            twice = next(name for name in names if names.count(name) > 1)
            raise LineRefused("duplicate_json_key", f"the object holds the key {twice!r} twice")
        return found

    try:
        json.loads(line, object_pairs_hook=pairs)
    except RecursionError:
        raise LineRefused("too_deep", _TOO_DEEP) from None
