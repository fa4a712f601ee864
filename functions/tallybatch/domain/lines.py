"""Lines of a byte stream. Split on `\\n` bytes alone: U+2028, U+0085 and U+001C are legal inside a JSON string."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

CHUNK_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"
"""A byte order mark in UTF-8."""


def newline_split(chunks: Iterable[bytes], *, cut_at: int = 0) -> Iterator[bytes]:
    """Each line without its newline; a last line without one is a line too.

    With `cut_at`, a line longer than that many bytes is cut there or somewhat later, so that a file without
    newlines cannot fill the memory.
    """
    rest = b""
    for chunk in chunks:
        pieces = chunk.split(b"\n")
        if rest:
            pieces[0] = rest + pieces[0]
        rest = pieces.pop()
        if cut_at and len(rest) > cut_at:
            rest = rest[: cut_at + 1]
        yield from pieces
    if rest:
        yield rest
