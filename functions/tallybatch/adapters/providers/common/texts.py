"""Bytes of JSON lines: written so that every reader keeps them whole, read although they are not quite right."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import msgspec

from tallybatch.domain.lines import BOM

_Row = TypeVar("_Row")

MAX_MESSAGE_CHARS = 2_000
"""Of a provider's words about one record."""


def splits_lines(text: str) -> bool:
    return "\u2028" in text or "\x85" in text or "\u2029" in text


def one_line(line: bytes) -> bytes:
    """The same JSON with U+2028, U+2029 and U+0085 as escapes, for readers that split lines on them. The other
    characters of that kind are below U+0020 and escaped by any JSON encoder."""
    if b"\xe2\x80" in line:
        line = line.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return line.replace(b"\xc2\x85", b"\\u0085") if b"\xc2\x85" in line else line


def without_lone_surrogates(line: bytes) -> bytes:
    """The JSON with each lone surrogate read as U+FFFD. Raises `ValueError` if it is no JSON."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("the line is not JSON") from None
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def embedded(body: bytes) -> bytes:
    """A reply's body as part of a line: JSON as it came but for its line breaks, which no JSON string can hold;
    anything else as a JSON string. Empty is null."""
    try:
        msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return msgspec.json.encode(body.decode(errors="replace")) if body else b"null"
    return one_line(body.replace(b"\r", b" ").replace(b"\n", b" "))


def read_again(line: bytes, decode: Callable[[bytes], _Row]) -> tuple[_Row | None, bytes]:
    """A line that its first reader refused: without a byte order mark, and with each lone surrogate read as U+FFFD.
    Gives what it says, None for JSON of another shape, and the line as it was read. Raises `ValueError` if it is no
    JSON."""
    line = line.removeprefix(BOM)
    try:
        return decode(line), line
    except msgspec.ValidationError:
        return None, line
    except (ValueError, RecursionError):
        line = without_lone_surrogates(line)
    try:
        return decode(line), line
    except msgspec.ValidationError:
        return None, line
