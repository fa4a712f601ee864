"""A result file of OpenAI, as `common.download` reads it: through the SDK, with the file's own record as a witness."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, cast

import msgspec

from tallybatch.adapters.providers.common.download import Reply
from tallybatch.adapters.providers.common.failures import is_api_answer
from tallybatch.adapters.providers.openai.failures import call_failure
from tallybatch.domain.errors import ProviderRefused, ResultsGone

if TYPE_CHECKING:
    import openai


class _About(msgspec.Struct):
    """What `GET /files/{id}` says. `expires_at` is Unix seconds."""

    bytes: int | None = None
    expires_at: float | None = None


class OpenAIFile:
    """`common.download.ResultFile`.

    `judge` raises `ResultsGone` for HTTP 410, and for HTTP 404 from the API itself that lasts over all tries while the
    file's own record is gone or expired too: a file can be listed seconds before it can be read. It raises
    `ProviderRefused` for other refusals.
    """

    def __init__(self, client: openai.OpenAI, file_id: str) -> None:
        self._client = client
        self._file_id = file_id
        self.where = f"OpenAI file {file_id}"

    @cached_property
    def failures(self) -> tuple[type[Exception], ...]:
        import httpx2
        import openai

        return openai.APIStatusError, openai.APIConnectionError, httpx2.HTTPError

    def declared_bytes(self) -> int:
        about = self._about()
        return (about.bytes or 0) if about is not None else 0

    def open(self, headers: Mapping[str, str]) -> AbstractContextManager[Reply]:
        opened = self._client.files.with_streaming_response.content(self._file_id, extra_headers=headers)
        return cast("AbstractContextManager[Reply]", opened)

    def status(self, error: Exception) -> int | None:
        import openai

        return error.status_code if isinstance(error, openai.APIStatusError) else None

    def judge(self, error: Exception, status: int, *, last: bool) -> None:
        import openai

        assert isinstance(error, openai.APIStatusError)  # noqa: S101 - it has a status
        if status == 410 or (status == 404 and last and is_api_answer(error.response) and self._is_gone()):
            raise ResultsGone(
                "OpenAI no longer has the result file",
                where=self.where,
                why=f"HTTP {status}; result files are deleted 30 days after the job or when they expire",
                do="the records without an answer must run again",
            ) from None
        if status == 404:
            return
        failure = call_failure(error, self.where)
        if isinstance(failure, ProviderRefused):
            raise failure from None

    def _is_gone(self) -> bool:
        about = self._about()
        return about is None or (about.expires_at is not None and about.expires_at < time.time())

    def _about(self) -> _About | None:
        """The file's own record; None if the provider has none. Empty if it cannot tell."""
        import openai

        try:
            return msgspec.json.decode(
                self._client.files.with_raw_response.retrieve(self._file_id).content, type=_About
            )
        except openai.NotFoundError:
            return None
        except (openai.APIError, ValueError):
            return _About()
