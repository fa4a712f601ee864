"""Plain HTTP to the Gemini API, for the calls whose replies the SDK cuts short. Loads nothing before the first.

Repeating is in the hands of the caller: `send` sends once, `repeat` only what may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tallybatch.adapters.providers.common.failures import may_pass
from tallybatch.adapters.providers.gemini.failures import told_by
from tallybatch.domain.errors import Permanent

if TYPE_CHECKING:
    import httpx2

DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com"
MAX_PAUSE_S = 8.0
LONGEST_ADVICE_S = 60.0
"""A longer pause that the provider asks for is left to the workflow, which waits for nothing."""

T = TypeVar("T")


class Transport:
    """`timeout_s` is for each of connect, read and write. `api_key` is called before each request."""

    def __init__(
        self,
        api_key: Callable[[], str],
        *,
        base_url: str,
        timeout_s: float,
        max_retries: int,
        sleep: Callable[[float], None],
    ) -> None:
        self._api_key = api_key
        self.base_url = (base_url or DEFAULT_BASE_URL).rstrip("/")
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._sleep = sleep

    def key(self) -> str:
        key = self._api_key().strip()
        if not key:
            raise Permanent("the Gemini API key is empty", where="the secret", do="store a key in it")
        return key

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        timeout_s: float | None = None,
    ) -> httpx2.Response:
        """One request, sent once and without following a redirect. `content` is a body that is JSON already. Raises
        `httpx2.HTTPError`, also for any status but 2xx."""
        headers = {"x-goog-api-key": self.key()}
        reply = self.client.request(
            method,
            self.base_url + path,
            params=params,
            json=body,
            content=content,
            headers=headers if content is None else {**headers, "content-type": "application/json"},
            timeout=self._timeout_s if timeout_s is None else timeout_s,
        )
        return reply.raise_for_status()

    def stream(
        self, path: str, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> AbstractContextManager[httpx2.Response]:
        return self.client.stream(
            "GET",
            self.base_url + path,
            params=params,
            headers={"x-goog-api-key": self.key(), **headers},
            follow_redirects=True,
        )

    def repeat(self, call: Callable[[], T]) -> T:
        """`call`, repeated on what may pass: no answer, 408, 429, 5xx. The last failure is raised as it came."""
        for number in range(self._max_retries):
            try:
                return call()
            except self.failures as error:
                told = told_by(error)
                if told.status is not None and not may_pass(told.status):
                    raise
                pause_s = told.retry_after_s
                if pause_s is not None and pause_s > LONGEST_ADVICE_S:
                    raise
                self._sleep(min(MAX_PAUSE_S, 0.5 * 2**number) if pause_s is None else pause_s)
        return call()

    @cached_property
    def failures(self) -> tuple[type[Exception], ...]:
        """What a call may raise when it was not answered, or was refused."""
        import httpx2
        from google.genai import errors

        return httpx2.HTTPError, errors.APIError

    @cached_property
    def client(self) -> httpx2.Client:
        import httpx2

        return httpx2.Client(timeout=self._timeout_s)

    def close(self) -> None:
        """Close the connections, if any were made."""
        if "client" in self.__dict__:
            self.client.close()
            del self.client
