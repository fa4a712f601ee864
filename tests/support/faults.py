"""Faults at HTTP level, injected into real botocore clients through their `before-send` event.

The SDK's own retries, parsers and checks run as they do against AWS; nothing of ours is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import botocore.endpoint
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from urllib3.exceptions import ProtocolError


def sdk_repeats_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK repeats as often as it would, without its pauses of up to a second."""
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))


class Fault:
    """Base: strikes the first `times` requests; `count` says how often it has."""

    def __init__(self, *, times: int = 1) -> None:
        self.count = 0
        self._times = times
        self._session = URLLib3Session()

    def __call__(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
        if self.count >= self._times:
            return None
        self.count += 1
        return self.strike(request)

    def strike(self, request: AWSPreparedRequest) -> AWSResponse | None:
        raise NotImplementedError

    def on(self, client: Any, service: str, operation: str) -> None:
        client.meta.events.register(f"before-send.{service}.{operation}", self)


class LostReply(Fault):
    """The request is carried out, then the connection closes without an answer. `then` runs in between."""

    def __init__(self, *, times: int = 1, then: Callable[[], object] = lambda: None) -> None:
        super().__init__(times=times)
        self._then = then

    def strike(self, request: AWSPreparedRequest) -> None:
        answer = self._session.send(request)
        assert answer.status_code == 200 or self.count > 1, answer.content
        self._then()
        raise ConnectionClosedError(endpoint_url=request.url)


class Answer(Fault):
    """The server answers with this instead of carrying out the request. `body` may be made from the request's JSON."""

    def __init__(
        self, status: int, body: bytes | dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]], *, times: int = 1
    ) -> None:
        super().__init__(times=times)
        self._status = status
        self._answer = body

    def strike(self, request: AWSPreparedRequest) -> AWSResponse:
        content = self._answer(json.loads(_bytes(request.body))) if callable(self._answer) else self._answer
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        headers = HTTPHeaders.from_dict({"content-length": str(len(data))})
        return AWSResponse(request.url, self._status, headers, _Raw(data))


class BrokenRead(Fault):
    """The answer's body breaks off after `after` bytes, as if the connection had been reset."""

    def __init__(self, after: int, *, times: int = 1) -> None:
        super().__init__(times=times)
        self._after = after
        self.ranges: list[str] = []
        """The Range header of each request that went through this fault."""

    def __call__(self, request: AWSPreparedRequest, **more: Any) -> AWSResponse | None:
        wanted = request.headers.get("Range", "")
        self.ranges.append(wanted.decode() if isinstance(wanted, bytes) else wanted)
        return super().__call__(request, **more)

    def strike(self, request: AWSPreparedRequest) -> AWSResponse:
        request.stream_output = True
        answer = self._session.send(request)
        headers = HTTPHeaders.from_dict(dict(answer.headers))
        return AWSResponse(request.url, answer.status_code, headers, _Breaking(answer.raw, self._after))


class _Raw:
    """A body as urllib3 gives it to botocore."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self, *_: Any, **__: Any) -> list[bytes]:
        return [self._data]


class _Breaking:
    def __init__(self, raw: Any, after: int) -> None:
        self._raw = raw
        self._left = after

    def read(self, amt: int | None = None, **more: Any) -> bytes:
        if self._left <= 0:
            raise ProtocolError("Connection broken: reset by the test")
        data: bytes = self._raw.read(self._left if amt is None else min(amt, self._left), **more)
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._raw.close()


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else body.read()
