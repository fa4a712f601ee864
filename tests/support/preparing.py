"""The pass from the bytes of a file to shards, as unit tests make it, and small films for it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tallybatch.domain.identity import RecordIdentity
from tallybatch.domain.input_lines import MAX_LINE_BYTES
from tallybatch.domain.lines import newline_blocks
from tallybatch.domain.preparation import Preparation, Quarantine, prepare
from tallybatch.domain.records import RecordReader
from tallybatch.domain.shards import ShardLimits
from tallybatch.domain.source_stream import SourceStream

IDENTITY = RecordIdentity("acme", "films", "v1@0", "m", "s", "gpt-5-mini-2025-08-07")
LIMITS = ShardLimits(1000, 100_000)


def prepare_bytes(
    body: bytes,
    folder: Path,
    *,
    gzipped: bool = False,
    limits: ShardLimits = LIMITS,
    quarantine: Quarantine | None = None,
    keep_raw: bool = False,
    measure: Callable[[dict[str, Any]], int] = lambda values: len(str(values["title"])) + 100,
) -> Preparation:
    reader = RecordReader(key="id", fields=("title",), source_version="", identity=IDENTITY, measure=measure)
    source = SourceStream(io.BytesIO(body), gzipped=gzipped)
    blocks = newline_blocks(source.chunks(), cut_at=MAX_LINE_BYTES)
    return prepare(blocks, reader=reader, limits=limits, folder=folder, quarantine=quarantine, keep_raw=keep_raw)


def bad_lines(done: Preparation) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.bad_lines.read_bytes().splitlines()]


def film(key: Any, title: Any = "Heat") -> bytes:
    return json.dumps({"id": key, "title": title}, ensure_ascii=False).encode()


GOOD = [film("a"), film("b"), film("c")]


def with_third(line: bytes) -> bytes:
    """Two good lines, the line, and one more good line."""
    return b"\n".join([GOOD[0], GOOD[1], line, GOOD[2]]) + b"\n"
