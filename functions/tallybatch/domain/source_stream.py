"""The dropped file as a stream of plain bytes: hashed as stored, unpacked if it is gzip, in constant memory."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from tallybatch.domain.lines import BLOCK_BYTES
from tallybatch.domain.preparation import BrokenFile

_GZIP = 31
"""zlib's window argument for a gzip stream."""
_MAGIC = b"\x1f\x8b"


class SourceStream:
    """Reads a file once. `sha256` and `size` are of the bytes as stored; they are final when all is read."""

    def __init__(self, stream: BinaryIO, *, gzipped: bool) -> None:
        self._stream = stream
        self._gzipped = gzipped
        self._hash = hashlib.sha256()
        self._head = b""
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def drain(self) -> None:
        """Read what is left, for the hash's sake."""
        for _ in self._stored():
            pass

    def chunks(self) -> Iterator[bytes]:
        """Raises `BrokenFile` for a gzip stream that is damaged or ends early."""
        return self._gunzip() if self._gzipped else self._stored()

    def _stored(self) -> Iterator[bytes]:
        while chunk := self._stream.read(BLOCK_BYTES):
            self._hash.update(chunk)
            self._head = (self._head + chunk[:2])[:2]
            self.size += len(chunk)
            yield chunk

    def _gunzip(self) -> Iterator[bytes]:
        member = zlib.decompressobj(_GZIP)
        begun = False
        for chunk in self._stored():
            data = chunk
            while data:
                if member.eof:
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    member = zlib.decompressobj(_GZIP)
                try:
                    plain = member.decompress(data, BLOCK_BYTES)
                except zlib.error:
                    reason = "the gzip stream is damaged here, or something follows its end"
                    raise self._broken("damaged_gzip", reason) from None
                begun = True
                if plain:
                    yield plain
                data = member.unconsumed_tail or member.unused_data
        if begun and not member.eof:
            raise self._broken("truncated_gzip", "the gzip stream ends early; the upload was cut off")

    def _broken(self, code: str, reason: str) -> BrokenFile:
        if not _MAGIC.startswith(self._head):
            return BrokenFile("not_gzip", "the file is not gzip, but its name ends in .gz; rename or compress it")
        return BrokenFile(code, reason)
