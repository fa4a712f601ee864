"""A result file, streamed, complete or not at all.

A break half way is resumed by Range; where that is not possible the file is read again from its start, and what was
handed out already is compared by hash and skipped. The length must agree with what the provider says of it.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tallybatch.adapters.providers.openai.failures import call_failure, is_api_answer
from tallybatch.domain.errors import ProviderRefused, ProviderUnavailable, ResultsGone
from tallybatch.domain.lines import CHUNK_BYTES

if TYPE_CHECKING:
    import openai
    from openai._response import StreamedBinaryAPIResponse

TRIES = 5
"""Failures in a row, without a new byte, before giving up."""
MAX_OPENS = 50
MAX_PAUSE_S = 8.0

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class _File(msgspec.Struct):
    """What `GET /files/{id}` says. `expires_at` is Unix seconds."""

    bytes: int | None = None
    expires_at: float | None = None


class _BrokenError(Exception):
    """The stream ended before the file did."""


@dataclass(slots=True)
class _Progress:
    file_id: str
    declared: int = 0
    """The file's size as its own record says; 0 if unknown."""
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


def stream(client: openai.OpenAI, file_id: str, *, sleep: Callable[[float], None]) -> Iterator[bytes]:
    """Chunks of up to 1 MiB, exactly the file's bytes.

    Raises `ResultsGone` for HTTP 410, and for HTTP 404 from the API itself that lasts over all tries while the file's
    own record is gone or expired too: a file can be listed seconds before it can be read. Raises `ProviderRefused` for
    other refusals, `ProviderUnavailable` when the file cannot be had in full now; then what was handed out is a part.
    """
    import httpx2
    import openai

    where = f"OpenAI file {file_id}"
    about = _about(client, file_id)
    progress = _Progress(file_id, declared=(about.bytes or 0) if about is not None else 0)
    failures = 0
    why = ""
    for _ in range(MAX_OPENS):
        before = progress.done
        try:
            yield from _open(client, progress)
            return
        except openai.APIStatusError as error:
            _judge(client, error, progress, last=failures == TRIES - 1, where=where)
            why = f"HTTP {error.status_code}"
        except (openai.APIConnectionError, httpx2.HTTPError, _BrokenError) as error:
            why = str(error) if isinstance(error, _BrokenError) else type(error).__name__
        failures = 1 if progress.done > before else failures + 1
        if failures >= TRIES:
            break
        sleep(min(MAX_PAUSE_S, 0.5 * 2 ** (failures - 1)))
    raise ProviderUnavailable(
        f"the file could not be read to its end; {progress.done} bytes came", where=where, why=why, do="read it again"
    )


def _open(client: openai.OpenAI, progress: _Progress) -> Iterator[bytes]:
    """One request: what is new of its body, then a check that the file is complete."""
    headers = {"Accept-Encoding": "identity"}
    resume = progress.can_resume and progress.done > 0
    if resume:
        headers["Range"] = f"bytes={progress.done}-"
        if progress.etag:
            headers["If-Range"] = progress.etag
    with client.files.with_streaming_response.content(progress.file_id, extra_headers=headers) as reply:
        total = _total(reply, progress, resume=resume)
        skip = 0 if resume and reply.status_code == 206 else progress.done
        for chunk in _chunks(_after(reply.iter_bytes(), skip, progress)):
            yield progress.take(chunk)
    expected = max(total, progress.declared)
    if progress.done < expected:
        raise _BrokenError(f"the file has {expected} bytes")
    if progress.done != progress.declared and progress.tail and not _is_json(bytes(progress.tail)):
        progress.can_resume = False
        raise _BrokenError("its last line is cut")


def _total(reply: StreamedBinaryAPIResponse, progress: _Progress, *, resume: bool) -> int:
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
                    "the file changed while it was read", where=f"OpenAI file {progress.file_id}", do="read it again"
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


def _judge(client: openai.OpenAI, error: openai.APIStatusError, progress: _Progress, *, last: bool, where: str) -> None:
    """Raises if the refusal is final; returns if it may pass."""
    status = error.status_code
    if status == 416:
        progress.can_resume = False
        return
    if status == 410 or (status == 404 and last and is_api_answer(error.response) and _is_gone(client, progress)):
        raise ResultsGone(
            "OpenAI no longer has the result file",
            where=where,
            why=f"HTTP {status}; result files are deleted 30 days after the job or when they expire",
            do="the records without an answer must run again",
        ) from None
    if status == 404:
        return
    failure = call_failure(error, where)
    if isinstance(failure, ProviderRefused):
        raise failure from None


def _is_gone(client: openai.OpenAI, progress: _Progress) -> bool:
    about = _about(client, progress.file_id)
    return about is None or (about.expires_at is not None and about.expires_at < time.time())


def _about(client: openai.OpenAI, file_id: str) -> _File | None:
    """The file's own record; None if the provider has none. Empty if it cannot tell."""
    import openai

    try:
        return msgspec.json.decode(client.files.with_raw_response.retrieve(file_id).content, type=_File)
    except openai.NotFoundError:
        return None
    except (openai.APIError, ValueError):
        return _File()


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return False
    return True
