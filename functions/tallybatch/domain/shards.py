"""Cutting records into shards, and the shard file: zstd over normalised lines, named by the hash of those lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard

from tallybatch.domain.lines import CHUNK_BYTES, newline_split

ZSTD_LEVEL = 1
_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """A shard holds at most this many records, and at most this many bytes of request lines."""

    max_records: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A finished shard on local disk. `sha256` is over the uncompressed lines; `request_bytes` is what the provider
    will be sent; `estimated_tokens` is a quarter of that."""

    shard_id: str
    sha256: str
    record_count: int
    request_bytes: int
    path: Path

    @property
    def estimated_tokens(self) -> int:
        return -(-self.request_bytes // 4)


class ShardWriter:
    """Cuts a stream of lines into shard files: greedily, in order, so that the same lines give the same shards."""

    def __init__(self, folder: Path, limits: ShardLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        self.shards: list[ShardFile] = []
        self._open()

    def _open(self) -> None:
        self._path = self._folder / f"shard-{len(self.shards):05d}"
        self._file: BinaryIO | None = None
        self._hash = hashlib.sha256()
        self._stream = self._compressor.compressobj()
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._records = 0
        self._request_bytes = 0

    def add(self, line: bytes, request_bytes: int) -> None:
        """One record: its normalised line, and the size in bytes of its request line with the newline."""
        if self._records and (
            self._records >= self._limits.max_records or self._request_bytes + request_bytes > self._limits.max_bytes
        ):
            self._finish()
        self._block.append(line)
        self._block_bytes += len(line)
        self._records += 1
        self._request_bytes += request_bytes
        if self._block_bytes >= _BLOCK_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._block.append(b"")
        data = b"\n".join(self._block)
        self._hash.update(data)
        if self._file is None:
            self._file = self._path.open("wb")
        self._file.write(self._stream.compress(data))
        self._block = []
        self._block_bytes = 0

    def _finish(self) -> None:
        if self._block:
            self._flush()
        if self._file is None:
            return
        self._file.write(self._stream.flush())
        self._file.close()
        sha256 = self._hash.hexdigest()
        shard_id = f"{len(self.shards):05d}-{sha256[:8]}"
        self.shards.append(ShardFile(shard_id, sha256, self._records, self._request_bytes, self._path))
        self._open()

    def close(self) -> list[ShardFile]:
        self._finish()
        return self.shards


def read_zstd_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines of a zstd object of one or many frames, in constant memory."""
    with zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True) as reader:
        yield from newline_split(iter(lambda: reader.read(CHUNK_BYTES), b""))
