"""Reading a whole shard file into records."""

from __future__ import annotations

from typing import BinaryIO

import msgspec
import zstandard

from tallybatch.domain.lines import CHUNK_BYTES
from tallybatch.domain.records import ShardRecord

_decode_lines = msgspec.json.Decoder(ShardRecord).decode_lines


def read_records(stream: BinaryIO) -> list[ShardRecord]:
    """Every record of a zstd object of one or many frames. For who keeps them all: a record keeps the chunk alive that
    it was read in. To decode a chunk's lines at once takes half as long as to cut them apart first."""
    records: list[ShardRecord] = []
    rest = b""
    with zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True) as reader:
        while chunk := reader.read(CHUNK_BYTES):
            lines = rest + chunk
            end = lines.rfind(b"\n") + 1
            rest = lines[end:]
            records += _decode_lines(lines[:end])
    return records + _decode_lines(rest)
