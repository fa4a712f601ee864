"""One request at a time through OpenAI's synchronous endpoints, with the official SDK, imported on first use.

The body is the one that a batch line holds, and so is the answer (Batch guide: `response.body` is what the endpoint
answers). The SDK's retries are off: a repeated request is another one, with its own bill.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from tallybatch.adapters.providers.common.failures import RECORD_STATUSES, answer_unknown, is_api_answer
from tallybatch.adapters.providers.common.texts import embedded
from tallybatch.adapters.providers.openai.failures import create_failure
from tallybatch.domain.errors import CreateUnknown, Permanent, TallybatchError

if TYPE_CHECKING:
    import httpx2
    import openai


class _Request(msgspec.Struct):
    custom_id: str
    body: msgspec.Raw


_request = msgspec.json.Decoder(_Request).decode


class OpenAIOnDemand:
    """`ports.OnDemand`. `api_key` is called before each request and may read a secret. `timeout_s` is for each of
    connect, read and write; a model thinks for minutes."""

    name = "openai"

    def __init__(self, api_key: Callable[[], str], *, base_url: str | None = None, timeout_s: float = 120) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._timeout_s = timeout_s

    def answer(self, line: bytes, *, endpoint: str, model: str) -> bytes:
        """The body names the model. A refusal for the account's spend limit is `ProviderRefused`."""
        del model
        import httpx2
        import openai

        request = _request(line)
        where = f"OpenAI {endpoint} for {request.custom_id}"
        self._key()
        path = endpoint.removeprefix("/v1")
        headers = {"Content-Type": "application/json"}
        try:
            reply = self._client.post(
                path, content=bytes(request.body), cast_to=httpx2.Response, options={"headers": headers}
            )
        except openai.APIStatusError as error:
            told = _line(request.custom_id, error.response)
            if error.status_code in RECORD_STATUSES or _names_a_missing_part(error):
                return told
            raise _failure(error, where, told) from None
        except openai.APIError as error:
            raise _failure(error, where) from None
        except TallybatchError:
            raise
        except Exception as error:
            raise answer_unknown(where, type(error).__name__) from None
        return _line(request.custom_id, reply)

    def close(self) -> None:
        """Close the connections, if any were made."""
        if "_client" in self.__dict__:
            self._client.close()
            del self._client

    @cached_property
    def _client(self) -> openai.OpenAI:
        import openai

        return openai.OpenAI(api_key=self._key, base_url=self._base_url, timeout=self._timeout_s, max_retries=0)

    def _key(self) -> str:
        key = self._api_key().strip()
        if not key:
            raise Permanent("the OpenAI API key is empty", where="the secret", do="store a key in it")
        return key


def _names_a_missing_part(error: openai.APIStatusError) -> bool:
    """Whether a 404 is about something that the request refers to, and not about the model."""
    return error.status_code == 404 and is_api_answer(error.response) and error.code not in (None, "model_not_found")


def _failure(error: openai.APIError, where: str, reply: bytes = b"") -> TallybatchError:
    """As for create, which costs as much to repeat."""
    failure = create_failure(error, where)
    return answer_unknown(where, failure.why, reply) if isinstance(failure, CreateUnknown) else failure


def _line(custom_id: str, reply: httpx2.Response) -> bytes:
    parts = (
        b'{"custom_id":',
        msgspec.json.encode(custom_id),
        b',"response":{"status_code":',
        str(reply.status_code).encode(),
        b',"request_id":',
        msgspec.json.encode(reply.headers.get("x-request-id", "")),
        b',"body":',
        embedded(reply.content),
        b'},"error":null}',
    )
    return b"".join(parts)
