"""One request at a time through Gemini's `generateContent` and `embedContent`, over plain HTTP.

The body is the `request` of a batch line, and the answer is what such a line holds under `response` (Batch guide).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from tallybatch.adapters.providers.common.failures import RECORD_STATUSES, answer_unknown
from tallybatch.adapters.providers.common.texts import embedded
from tallybatch.adapters.providers.gemini.failures import create_failure, told_by
from tallybatch.adapters.providers.gemini.transport import Transport
from tallybatch.domain.errors import CreateUnknown, TallybatchError

_VERSION = "v1beta"


class _Request(msgspec.Struct):
    key: str
    request: msgspec.Raw


class _Told(msgspec.Struct):
    error: msgspec.Raw = msgspec.Raw()


_request = msgspec.json.Decoder(_Request).decode


class GeminiOnDemand:
    """`ports.OnDemand`. `api_key` is called before each request and may read a secret; `base_url` "" is Google's own.
    `timeout_s` is for each of connect, read and write."""

    name = "gemini"

    def __init__(self, api_key: Callable[[], str], *, base_url: str = "", timeout_s: float = 120) -> None:
        self._transport = Transport(api_key, base_url=base_url, timeout_s=timeout_s, max_retries=0, sleep=time.sleep)

    def answer(self, line: bytes, *, endpoint: str, model: str) -> bytes:
        """A 400 about the API key is `ProviderRefused`, for every record would have it."""
        import httpx2

        request = _request(line)
        where = f"Gemini {endpoint} for {request.key}"
        resource = model if "/" in model else f"models/{model}"
        path = f"/{_VERSION}/{quote(resource)}:{endpoint}"
        try:
            reply = self._transport.send("POST", path, content=bytes(request.request))
        except httpx2.HTTPStatusError as error:
            told, failed = told_by(error), _failed(request.key, error.response.content)
            ours = "API key" in told.message or told.name == "FAILED_PRECONDITION"
            if told.status in RECORD_STATUSES and told.own and not ours:
                return failed
            raise _failure(error, where, failed if told.own else b"") from None
        except httpx2.HTTPError as error:
            raise _failure(error, where) from None
        except TallybatchError:
            raise
        except Exception as error:
            raise answer_unknown(where, type(error).__name__) from None
        return b'{"key":' + msgspec.json.encode(request.key) + b',"response":' + embedded(reply.content) + b"}"

    def close(self) -> None:
        self._transport.close()


def _failure(error: Exception, where: str, reply: bytes = b"") -> TallybatchError:
    """As for create, which costs as much to repeat."""
    failure = create_failure(error, where)
    return answer_unknown(where, failure.why, reply) if isinstance(failure, CreateUnknown) else failure


def _failed(key: str, body: bytes) -> bytes:
    """The line of a refused request: the `error` of its reply."""
    try:
        error = bytes(msgspec.json.decode(body, type=_Told).error) or b"null"
    except (ValueError, RecursionError):
        error = b"null"
    return b'{"key":' + msgspec.json.encode(key) + b',"error":' + embedded(error) + b"}"
