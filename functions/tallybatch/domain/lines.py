"""Lines of a byte stream. Split on `\\n` bytes alone: U+2028, U+0085 and U+001C are legal inside a JSON string."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

CHUNK_BYTES = 1 << 20


def newline_split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Each line without its newline; a last line without one is a line too."""
    rest = b""
    for chunk in chunks:
        pieces = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        rest = pieces.pop()
        yield from pieces
    if rest:
        yield rest
