"""Cutting records into shards, and the shard file: zstd over normalised lines, named by the hash of those lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard

from tallybatch.domain.lines import BLOCK_BYTES, newline_split

ZSTD_LEVEL = 1
BYTES_PER_TOKEN = 4
"""Of a request, for the estimate of its prompt tokens."""
_FRAME_BYTES = 1 << 19
"""Lines are compressed in frames of about this size: a call for each costs less than one stream over all."""


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """A shard holds at most this many records, and at most this many bytes of request lines."""

    max_records: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A finished shard on local disk. `sha256` is over the uncompressed lines; `request_bytes` is what the provider
    will be sent, `largest_bytes` of one record; `estimated_tokens` is a quarter of the former."""

    shard_id: str
    sha256: str
    record_count: int
    request_bytes: int
    path: Path
    largest_bytes: int = 0

    @property
    def estimated_tokens(self) -> int:
        return -(-self.request_bytes // BYTES_PER_TOKEN)


class ShardWriter:
    """Cuts a stream of lines into shard files: greedily, in order, so that the same lines give the same shards."""

    def __init__(self, folder: Path, limits: ShardLimits) -> None:
        self._folder = folder
        self._max_records = limits.max_records
        self._max_bytes = limits.max_bytes
        self._compress = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress
        self.shards: list[ShardFile] = []
        self._open()

    def _open(self) -> None:
        self._path = self._folder / f"shard-{len(self.shards):05d}"
        self._file: BinaryIO | None = None
        self._hash = hashlib.sha256()
        self._frame: list[bytes] = []
        self._frame_bytes = 0
        self._records = 0
        self._request_bytes = 0
        self._largest_bytes = 0

    def extend(self, lines: list[bytes], request_bytes: list[int]) -> None:
        """`add` for many: at once where all fit into the shard that is open."""
        records, total = self._records + len(lines), self._request_bytes + sum(request_bytes)
        if records > self._max_records or total > self._max_bytes:
            for line, size in zip(lines, request_bytes, strict=True):
                self.add(line, size)
            return
        self._records, self._request_bytes = records, total
        self._largest_bytes = max(self._largest_bytes, max(request_bytes, default=0))
        self._frame += lines
        self._frame_bytes += sum(map(len, lines))
        if self._frame_bytes >= _FRAME_BYTES:
            self._flush()

    def add(self, line: bytes, request_bytes: int) -> None:
        """One record: its normalised line, and the size in bytes of its request line with the newline."""
        if self._records and (
            self._records >= self._max_records or self._request_bytes + request_bytes > self._max_bytes
        ):
            self._finish()
        self._records += 1
        self._request_bytes += request_bytes
        self._largest_bytes = max(self._largest_bytes, request_bytes)
        self._frame.append(line)
        self._frame_bytes += len(line)
        if self._frame_bytes >= _FRAME_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._frame.append(b"")
        data = b"\n".join(self._frame)
        self._hash.update(data)
        if self._file is None:
            self._file = self._path.open("wb")
        self._file.write(self._compress(data))
        self._frame = []
        self._frame_bytes = 0

    def _finish(self) -> None:
        if self._frame:
            self._flush()
        if self._file is None:
            return
        self._file.close()
        sha256 = self._hash.hexdigest()
        shard_id = f"{len(self.shards):05d}-{sha256[:8]}"
        size, largest = self._request_bytes, self._largest_bytes
        self.shards.append(ShardFile(shard_id, sha256, self._records, size, self._path, largest))
        self._open()

    def close(self) -> list[ShardFile]:
        self._finish()
        return self.shards


def read_zstd_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines of a zstd object of one or many frames, in constant memory."""
    with zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True) as reader:
        yield from newline_split(iter(lambda: reader.read(BLOCK_BYTES), b""))
