"""Lines of a byte stream. Split on `\\n` bytes alone: U+2028, U+0085 and U+001C are legal inside a JSON string."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain

CHUNK_BYTES = 1 << 20
BLOCK_BYTES = 1 << 17
"""To read at once in the record loop: small enough that what is made of it stays in the processor's cache."""
BOM = b"\xef\xbb\xbf"
"""A byte order mark in UTF-8."""


def newline_blocks(chunks: Iterable[bytes], *, cut_at: int = 0) -> Iterator[list[bytes]]:
    """The lines that end in each chunk, without their newlines; a last line without one is a line too.

    With `cut_at`, a line longer than that many bytes is cut there or somewhat later, so that a file without
    newlines cannot fill the memory.
    """
    rest = b""
    for chunk in filter(None, chunks):
        # `readlines` finds a newline with memchr, some 16 bytes at a time; `split` looks at byte after byte.
        lines = BytesIO(chunk).readlines()
        lines[0] = rest + lines[0]
        rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
        if cut_at and len(rest) > cut_at:
            rest = rest[: cut_at + 1]
        if lines:
            yield [line[:-1] for line in lines]
    if rest:
        yield [rest]


def newline_split(chunks: Iterable[bytes], *, cut_at: int = 0) -> Iterator[bytes]:
    """As `newline_blocks`, line by line."""
    return chain.from_iterable(newline_blocks(chunks, cut_at=cut_at))
