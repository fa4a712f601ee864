"""A result file, streamed, complete or not at all.

A break half way is resumed by Range; where that is not possible the file is read again from its start, and what was
handed out already is compared by hash and skipped. The length must agree with what the provider says of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from tallybatch.domain.errors import ProviderUnavailable
from tallybatch.domain.lines import CHUNK_BYTES

TRIES = 5
"""Failures in a row, without a new byte, before giving up."""
CUT_READS = 3
"""Readings from the start, all the same, after which a cut last line is what the provider has: to read it for ever
would leave every other record of the file without its answer."""
MAX_OPENS = 50
MAX_PAUSE_S = 8.0

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Reply(Protocol):
    """An answer whose body is read piece by piece."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def iter_bytes(self) -> Iterator[bytes]: ...


class ResultFile(Protocol):
    """One file at one provider. `where` names it in errors."""

    @property
    def where(self) -> str: ...

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What `open`, and reading its body, may raise."""

    def declared_bytes(self) -> int:
        """The file's size as its own record says; 0 if unknown."""

    def open(self, headers: Mapping[str, str]) -> AbstractContextManager[Reply]:
        """Ask for the file with these headers; an error status raises one of `failures`."""

    def status(self, error: Exception) -> int | None:
        """The HTTP status behind a failure; None if the connection broke."""

    def judge(self, error: Exception, status: int, *, last: bool) -> None:
        """Raises if the refusal is final; returns if it may pass. `last`: there will be no other try."""


class _BrokenError(Exception):
    """The stream ended before the file did."""


class _CutError(_BrokenError):
    """The stream ended within a line, and nothing says that the file does."""


@dataclass(slots=True)
class _Progress:
    where: str
    declared: int
    done: int = 0
    etag: str = ""
    can_resume: bool = True
    tail: bytearray = field(default_factory=bytearray)
    """What came after the last newline."""
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def take(self, data: bytes) -> bytes:
        self.done += len(data)
        self.digest.update(data)
        end = data.rfind(b"\n")
        if end >= 0:
            self.tail = bytearray(data[end + 1 :])
        else:
            self.tail += data
        return data


def stream(file: ResultFile, *, sleep: Callable[[float], None]) -> Iterator[bytes]:
    """Chunks of up to 1 MiB, exactly the file's bytes.

    Raises what `file.judge` raises, and `ProviderUnavailable` when the file cannot be had in full now; then what was
    handed out is a part.
    """
    progress = _Progress(file.where, file.declared_bytes())
    failures = cuts = 0
    why = ""
    for _ in range(MAX_OPENS):
        before = progress.done
        try:
            yield from _open(file, progress)
            return
        except _BrokenError as broken:
            why = str(broken)
            cuts = (cuts + 1 if progress.done == before else 1) if isinstance(broken, _CutError) else 0
            if cuts == CUT_READS:
                return
        except file.failures as error:
            status = file.status(error)
            if status == 416:
                progress.can_resume = False
            elif status is not None:
                file.judge(error, status, last=failures == TRIES - 1)
            why = type(error).__name__ if status is None else f"HTTP {status}"
        failures = 1 if progress.done > before else failures + 1
        if failures >= TRIES:
            break
        sleep(min(MAX_PAUSE_S, 0.5 * 2 ** (failures - 1)))
    raise ProviderUnavailable(
        f"the file could not be read to its end; {progress.done} bytes came",
        where=file.where,
        why=why,
        do="read it again",
    )


def _open(file: ResultFile, progress: _Progress) -> Iterator[bytes]:
    """One request: what is new of its body, then a check that the file is complete."""
    headers = {"Accept-Encoding": "identity"}
    resume = progress.can_resume and progress.done > 0
    if resume:
        headers["Range"] = f"bytes={progress.done}-"
        if progress.etag:
            headers["If-Range"] = progress.etag
    with file.open(headers) as reply:
        total = _total(reply, progress, resume=resume)
        skip = 0 if resume and reply.status_code == 206 else progress.done
        for chunk in _chunks(_after(reply.iter_bytes(), skip, progress)):
            yield progress.take(chunk)
    expected = max(total, progress.declared)
    if progress.done < expected:
        raise _BrokenError(f"the file has {expected} bytes")
    if progress.done != progress.declared and progress.tail and not _is_json(bytes(progress.tail)):
        progress.can_resume = False
        raise _CutError("its last line is cut")


def _total(reply: Reply, progress: _Progress, *, resume: bool) -> int:
    """The whole file's size according to this reply, 0 if it does not say. Checks that a part is the part asked for."""
    headers = reply.headers
    etag = headers.get("etag", "")
    progress.etag = etag if etag.startswith('"') else ""
    if headers.get("content-encoding", "identity") != "identity":
        progress.can_resume = False
        return 0
    if reply.status_code != 206:
        return int(headers["content-length"]) if headers.get("content-length", "").isdecimal() else 0
    part = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    if not resume or part is None or int(part[1]) != progress.done:
        progress.can_resume = False
        raise _BrokenError("the provider sent another part of the file than asked for")
    return 0 if part[3] == "*" else int(part[3])


def _after(pieces: Iterator[bytes], skip: int, progress: _Progress) -> Iterator[bytes]:
    """`pieces` without the first `skip` bytes, which must be those that were handed out before."""
    again = hashlib.sha256()
    expected = progress.digest.digest()
    for piece in pieces:
        known, fresh = piece[:skip], piece[skip:]
        if known:
            again.update(known)
            skip -= len(known)
            if not skip and again.digest() != expected:
                raise ProviderUnavailable(
                    "the file changed while it was read", where=progress.where, do="read it again"
                )
        if fresh:
            yield fresh
    if skip:
        raise _BrokenError("the file ended earlier than before")


def _chunks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces of the network joined to chunks; when the stream breaks, what had come is handed out first."""
    buffer = bytearray()
    try:
        for piece in pieces:
            buffer += piece
            while len(buffer) >= CHUNK_BYTES:
                yield bytes(buffer[:CHUNK_BYTES])
                del buffer[:CHUNK_BYTES]
    except GeneratorExit:
        raise
    except Exception:
        if buffer:
            yield bytes(buffer)
        raise
    if buffer:
        yield bytes(buffer)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return False
    return True
