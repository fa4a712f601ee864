"""Outcome objects: zstd frames of outcome lines, so that one accepted answer can be fetched without the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

import msgspec
import zstandard

from tallybatch.domain.errors import ObjectDamaged
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.lines import CHUNK_BYTES
from tallybatch.domain.outcomes import Outcome
from tallybatch.domain.rows import AcceptedAnswer
from tallybatch.domain.shards import ZSTD_LEVEL, read_zstd_lines
from tallybatch.ports import Objects

FRAME_LINES = 256

_encode_lines = msgspec.json.Encoder().encode_lines
decode_outcome = msgspec.json.Decoder(Outcome).decode


class Placed(NamedTuple):
    """Where a line went: its frame's offset and length in the object, and the SHA-256 of the frame's lines."""

    offset: int
    length: int
    sha256: str


class OutcomeFile:
    """Builds an outcome object in memory; a shard is bounded, so this is."""

    def __init__(self) -> None:
        self._compress = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress
        self._frames: list[bytes] = []
        self._offset = 0
        self._rows: list[Outcome] = []
        self.placed: list[Placed] = []
        """One per line added, in order; complete after `close`."""

    def extend(self, outcomes: Iterable[Outcome]) -> None:
        self._rows += outcomes
        while len(self._rows) >= FRAME_LINES:
            self._write_frame()

    def _write_frame(self) -> None:
        rows, self._rows = self._rows[:FRAME_LINES], self._rows[FRAME_LINES:]
        data = _encode_lines(rows)
        frame = self._compress(data)
        self.placed += [Placed(self._offset, len(frame), sha256_hex(data))] * len(rows)
        self._frames.append(frame)
        self._offset += len(frame)

    def close(self) -> bytes:
        if self._rows or not self._frames:
            self._write_frame()
        return b"".join(self._frames)


def read_outcomes(objects: Objects, key: str) -> Iterator[Outcome]:
    """Every row of an outcome object, in order."""
    for line in outcome_lines(objects, key):
        yield decode_outcome(line)


def read_placed(objects: Objects, key: str) -> Iterator[tuple[Outcome, Placed]]:
    """As `read_outcomes`, with the place of each row. Raises `ObjectDamaged` for an object that breaks off."""
    with objects.open(key) as stream:
        for offset, length, data in _frames(stream, objects.uri(key)):
            place = Placed(offset, length, sha256_hex(data))
            for line in data.split(b"\n"):
                if line:
                    yield decode_outcome(line), place


def _frames(stream: BinaryIO, where: str) -> Iterator[tuple[int, int, bytes]]:
    """Offset and length of each zstd frame in the object, and what is in it."""
    offset = length = 0
    parts: list[bytes] = []
    frame = zstandard.ZstdDecompressor().decompressobj()
    while chunk := stream.read(CHUNK_BYTES):
        while chunk:
            parts.append(frame.decompress(chunk))
            rest = frame.unused_data if frame.eof else b""
            length += len(chunk) - len(rest)
            if frame.eof:
                yield offset, length, b"".join(parts)
                offset, length, parts = offset + length, 0, []
                frame = zstandard.ZstdDecompressor().decompressobj()
            chunk = rest
    if length:
        raise ObjectDamaged("the outcome object breaks off", where=where)


def outcome_lines(objects: Objects, key: str) -> Iterator[bytes]:
    with objects.open(key) as stream:
        yield from read_zstd_lines(stream)


def fetch_accepted(objects: Objects, answers: Sequence[AcceptedAnswer]) -> Iterator[tuple[AcceptedAnswer, Outcome]]:
    """The accepted rows, each frame fetched once. Raises `ObjectDamaged` where a frame does not have its hash."""
    frames: dict[tuple[str, int, int], list[AcceptedAnswer]] = {}
    for answer in answers:
        frames.setdefault((answer.uri, answer.offset, answer.length), []).append(answer)
    for (uri, offset, length), wanted in frames.items():
        key = uri.removeprefix(objects.uri(""))
        frame = zstandard.ZstdDecompressor().decompressobj().decompress(objects.get_range(key, offset, length))
        sha256 = sha256_hex(frame)
        rows = {row.record_key: row for row in map(decode_outcome, filter(None, frame.split(b"\n")))}
        for answer in wanted:
            if answer.sha256 != sha256 or answer.record_key not in rows:
                raise ObjectDamaged("an accepted answer is not where the ledger says", where=uri)
            yield answer, rows[answer.record_key]
