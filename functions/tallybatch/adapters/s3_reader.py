"""A stream over one S3 object that survives a connection that breaks in the middle."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import FlexibleChecksumError, HTTPClientError, IncompleteReadError

from tallybatch.domain.errors import ObjectDamaged, Retryable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from botocore.response import StreamingBody

CHUNK_BYTES = 1 << 20
MAX_BREAKS = 5
"""Reads that may break in a row without a single byte in between."""

_BROKEN = (HTTPClientError, IncompleteReadError, OSError, Retryable)


class ResumingBody(io.RawIOBase):
    """Reads `body` and, when that breaks, what `reopen(position)` returns: the object's bytes from there to its end.
    A `Retryable` from `reopen` counts as a break.

    `size` is the whole object's, in bytes. Raises `Retryable` after `MAX_BREAKS` breaks without progress and
    `ObjectDamaged` if S3's own checksum does not fit the bytes.
    """

    def __init__(
        self,
        where: str,
        body: StreamingBody,
        size: int,
        reopen: Callable[[int], StreamingBody],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__()
        self._where = where
        self._body: StreamingBody | None = body
        self._size = size
        self._reopen = reopen
        self._sleep = sleep
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._next(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self._next(CHUNK_BYTES), b""))

    def close(self) -> None:
        self._drop()
        super().close()

    def _next(self, limit: int) -> bytes:
        """At most `limit` bytes; empty only at the object's end."""
        breaks = 0
        while limit and self._position < self._size:
            try:
                if self._body is None:
                    self._body = self._reopen(self._position)
                data = self._body.read(limit)
                if not data:
                    raise OSError(f"the stream ended {self._size - self._position} bytes early")
            except FlexibleChecksumError as error:
                raise ObjectDamaged(
                    "the bytes do not have the checksum that S3 keeps",
                    where=self._where,
                    why=str(error),
                    do="read it again; if it stays so, restore an earlier version",
                ) from error
            except _BROKEN as error:
                self._drop()
                breaks += 1
                if breaks > MAX_BREAKS:
                    raise Retryable(
                        f"reading kept breaking at byte {self._position} of {self._size}",
                        where=self._where,
                        why=str(error),
                        do="the same read may be repeated later",
                    ) from error
                self._sleep(0.1 * 2**breaks)
            else:
                self._position += len(data)
                return data
        return b""

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None
