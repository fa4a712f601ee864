"""Prepare and validate: one streaming pass from input lines to shard files, in constant memory.

Every line is checked before anything is spent. Refused lines go to a file of their own, one JSON object per line.
"""

from __future__ import annotations

import base64
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from tallybatch.domain.errors import Problem
from tallybatch.domain.input_lines import MAX_LINE_BYTES, LineRefused
from tallybatch.domain.key_index import DuplicateKey, KeyIndex
from tallybatch.domain.records import Prepared
from tallybatch.domain.shards import ShardFile, ShardLimits, ShardWriter

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SHOWN_PROBLEMS = 100
_PARTS = 8
"""Into which a block with a bad line is taken apart: those without one are still read together."""


class Reader(Protocol):
    def read(self, lines: Sequence[bytes]) -> Prepared: ...


class BadLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of bad_lines.jsonl. `line` is 1-based, 0 for the file as a whole. `raw` is the line itself, set when
    only the line is quarantined and the rest of the file goes on (`raw_base64` if it is not UTF-8); of a longer line
    the first MiB."""

    line: int
    code: str
    reason: str
    first_line: int = 0
    """For a duplicate business key: where it occurred first."""
    key: str = ""
    raw: str = ""
    raw_base64: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BadLine).decode


def _line_of(text: bytes) -> int:
    return _decode(text).line


@dataclass(frozen=True, slots=True)
class Preparation:
    """Result of the pass. `problems` holds the first hundred bad lines; `bad_lines` is the file with all of them."""

    shards: list[ShardFile]
    lines: int
    records: int
    bad_count: int
    bad_by_code: dict[str, int]
    problems: tuple[Problem, ...]
    bad_lines: Path
    """In the order of the file."""
    unusable: bool
    """The file as a whole is wrong, or breaks off: there is no telling what is lost, so no line of it may go on."""


class _BadLines:
    def __init__(self, path: Path, keep_raw: bool) -> None:
        self.path = path
        self.count = 0
        self.by_code: dict[str, int] = {}
        self.shown: list[Problem] = []
        self.unusable = False
        self._keep_raw = keep_raw
        self._file = path.open("wb")

    def add(self, bad: BadLine, raw: bytes = b"") -> None:
        self._note(_with_raw(bad, raw) if self._keep_raw else bad, self._file, self.shown)

    def _note(self, bad: BadLine, file: BinaryIO, shown: list[Problem]) -> None:
        file.write(_encode(bad) + b"\n")
        self.count += 1
        self.by_code[bad.code] = self.by_code.get(bad.code, 0) + 1
        if len(shown) < _SHOWN_PROBLEMS:
            shown.append(Problem(bad.reason, bad.line, code=bad.code))

    def refuse_file(self, bad: BadLine) -> None:
        self.unusable = True
        self.add(bad)

    def close(self, late: Iterable[BadLine]) -> None:
        """Put in those that were found only at the end of the file, each in its place. Both are in line order, and
        neither is ever in memory as a whole."""
        self._file.close()
        early, found_late = self.path.with_suffix(".early"), self.path.with_suffix(".late")
        shown: list[Problem] = []
        with found_late.open("wb") as file:
            for bad in late:
                self._note(bad, file, shown)
        if shown:
            self.shown = list(heapq.merge(self.shown, shown, key=lambda problem: problem.line))[:_SHOWN_PROBLEMS]
            self.path.rename(early)
            with early.open("rb") as first, found_late.open("rb") as second, self.path.open("wb") as merged:
                in_order: Iterator[bytes] = heapq.merge(first, second, key=_line_of)
                merged.writelines(in_order)
            early.unlink()
        found_late.unlink()


class Quarantine:
    """The second pass over a file whose bad lines are left out: leaves them out, and completes bad_lines.jsonl, which
    is in line order as the file is, by the bytes of those that were found to be bad only at the end."""

    def __init__(self, first: Preparation, folder: Path) -> None:
        self.bad_lines = folder / "quarantined.jsonl"
        self._found = first.bad_lines.open("rb")
        self._file = self.bad_lines.open("wb")
        self._next()

    def _next(self) -> None:
        self._text = self._found.readline()
        self._line = _line_of(self._text) if self._text else 0

    def leave_out(self, lines: list[bytes], numbers: Sequence[int]) -> tuple[list[bytes], Sequence[int]]:
        """The lines to go on with, of the next ones of the file."""
        if self._line not in numbers:
            return lines, numbers
        kept = []
        for line, number in zip(lines, numbers, strict=True):
            if number == self._line:
                self._take(line)
            else:
                kept.append((line, number))
        return [line for line, _ in kept], [number for _, number in kept]

    def _take(self, line: bytes) -> None:
        bad = _decode(self._text)
        self._file.write(self._text if bad.raw or bad.raw_base64 else _encode(_with_raw(bad, line)) + b"\n")
        self._next()

    def close(self) -> None:
        self._found.close()
        self._file.close()


def _with_raw(bad: BadLine, line: bytes) -> BadLine:
    """Of a line that is too long only its beginning is at hand, and some of its end."""
    raw = line[:MAX_LINE_BYTES]
    try:
        return msgspec.structs.replace(bad, raw=raw.decode())
    except UnicodeDecodeError:
        return msgspec.structs.replace(bad, raw_base64=base64.b64encode(raw).decode())


class _Intake:
    """Takes the lines of the file in order: each goes on to the key index and the shards, or to the bad lines."""

    def __init__(self, reader: Reader, keys: KeyIndex, writer: ShardWriter, bad: _BadLines, max_bytes: int) -> None:
        self._read, self._keys, self._writer, self._bad = reader.read, keys, writer, bad
        self._max_bytes = max_bytes
        self.total = 0
        """Records."""

    def take(self, lines: list[bytes], numbers: Sequence[int]) -> None:
        """Lines with their numbers: together if all are good, else in parts, down to each by itself."""
        if not lines:
            return
        try:
            prepared = self._read(lines)
            if (largest := max(prepared.request_bytes)) > self._max_bytes:
                raise _too_large(largest, self._max_bytes)
        except LineRefused as refused:
            if len(lines) == 1:
                self._bad.add(BadLine(numbers[0], refused.code, refused.reason), lines[0])
                return
            part = max(1, len(lines) // _PARTS)
            for start in range(0, len(lines), part):
                self.take(lines[start : start + part], numbers[start : start + part])
            return
        self._keys.extend(prepared.business_keys, list(numbers))
        self._writer.extend(prepared.lines, prepared.request_bytes)
        self.total += len(lines)


def prepare(
    blocks: Iterable[list[bytes]],
    *,
    reader: Reader,
    limits: ShardLimits,
    folder: Path,
    quarantine: Quarantine | None = None,
    keep_raw: bool = False,
) -> Preparation:
    """Read all lines; write shard files and bad_lines.jsonl into `folder`.

    `blocks` of lines may raise `BrokenFile` where the file itself breaks off (a truncated gzip); that becomes a bad
    line too. `quarantine` takes the lines to leave out, in the second pass over a file.
    """
    bad = _BadLines(folder / "bad_lines.jsonl", keep_raw)
    keys = KeyIndex(folder)
    writer = ShardWriter(folder, limits)
    intake = _Intake(reader, keys, writer, bad, limits.max_bytes)
    number = 0
    try:
        for lines in blocks:
            if number == 0 and (whole := _wrong_format(lines[0])):
                number = 1
                bad.refuse_file(BadLine(0, *whole))
                break
            numbers: Sequence[int] = range(number + 1, number + len(lines) + 1)
            number += len(lines)
            if quarantine is not None:
                lines, numbers = quarantine.leave_out(lines, numbers)
            intake.take(lines, numbers)
    except BrokenFile as broken:
        bad.refuse_file(BadLine(number + 1, broken.code, broken.reason))
    if not intake.total and not bad.count:
        bad.refuse_file(BadLine(0, "empty_file", "the file holds no record"))
    bad.close(map(_twice, keys.duplicates()))
    return Preparation(
        shards=writer.close(),
        lines=number,
        records=intake.total,
        bad_count=bad.count,
        bad_by_code=bad.by_code,
        problems=tuple(bad.shown),
        bad_lines=bad.path,
        unusable=bad.unusable,
    )


def _twice(found: DuplicateKey) -> BadLine:
    reason = f"the business key {found.key!r} occurs twice: first on line {found.first_line}"
    return BadLine(found.line, "duplicate_key", reason, found.first_line, found.key)


class BrokenFile(Exception):
    """The byte stream of the input itself is damaged."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def _too_large(request_bytes: int, max_bytes: int) -> LineRefused:
    reason = f"its request has {request_bytes:,} bytes; a shard may have {max_bytes:,}"
    return LineRefused("record_too_large", reason)


def _wrong_format(first: bytes) -> tuple[str, str] | None:
    if first.startswith(_UTF16_MARKS) or b"\0" in first[:2]:
        return "utf16", "the file is UTF-16 or UTF-32; save it as UTF-8"
    if first.startswith(b"\x1f\x8b"):
        return "gzip_name", "the file is gzip and its name does not end in .jsonl.gz, or it is gzip within gzip"
    if first.lstrip().startswith(b"["):
        return "json_array", "the file is a JSON array; write one JSON object per line instead"
    return None
