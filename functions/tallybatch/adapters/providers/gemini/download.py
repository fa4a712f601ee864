"""A result file of Gemini, as `common.download` reads it, over plain HTTP: the SDK cannot resume.

There is no look at the file's own record: the ids of result files are longer than `files.get` accepts
(googleapis/js-genai#1227), while both download paths take them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from tallybatch.adapters.providers.common.download import Reply
from tallybatch.adapters.providers.gemini.failures import call_failure, told_by
from tallybatch.domain.errors import ProviderRefused, ResultsGone

if TYPE_CHECKING:
    from tallybatch.adapters.providers.gemini.transport import Transport


class GeminiFile:
    """`common.download.ResultFile`.

    `judge` raises `ResultsGone` for HTTP 410, and for HTTP 404 from the API itself that lasts over all tries on both
    paths; `ProviderRefused` for other refusals.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self._name = name
        self._paths = (f"/download/v1beta/{name}:download", f"/v1beta/{name}:download")
        """As the REST guide writes it, and as the SDK does."""
        self._tries = 0
        self.where = f"Gemini file {name}"

    @cached_property
    def failures(self) -> tuple[type[Exception], ...]:
        import httpx2

        return (httpx2.HTTPError,)

    def declared_bytes(self) -> int:
        return 0

    @contextmanager
    def open(self, headers: Mapping[str, str]) -> Iterator[Reply]:
        path = self._paths[self._tries % len(self._paths)]
        with self._transport.stream(path, {"alt": "media"}, headers) as reply:
            if reply.status_code >= 400:
                reply.read()
            reply.raise_for_status()
            yield reply

    def status(self, error: Exception) -> int | None:
        return told_by(error).status

    def judge(self, error: Exception, status: int, *, last: bool) -> None:
        told = told_by(error)
        if status == 410 or (status == 404 and last and told.own):
            raise ResultsGone(
                "Gemini no longer has the result file",
                where=self.where,
                why=told.why,
                do="the records without an answer must run again",
            ) from None
        if status == 404:
            self._tries += 1
            return
        failure = call_failure(told, self.where)
        if isinstance(failure, ProviderRefused):
            raise failure from None
