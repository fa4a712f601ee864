"""One request at a time through Bedrock's runtime: Converse, or InvokeModel with the model's own body.

The body is the `modelInput` of a batch line, and the answer is what such a line holds under `modelOutput` (user guide,
"Monitor batch inference results"). Converse takes its body as parameters; botocore writes the same JSON from them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
from botocore.exceptions import ClientError, ParamValidationError

from tallybatch.adapters.aws_errors import error_code
from tallybatch.adapters.providers.bedrock.bodies import CONVERSE
from tallybatch.adapters.providers.bedrock.failures import CALL_ERRORS, create_failure
from tallybatch.adapters.providers.common.failures import answer_unknown
from tallybatch.adapters.providers.common.texts import MAX_MESSAGE_CHARS, embedded
from tallybatch.domain.errors import CreateUnknown, TallybatchError

_RAW = "TallybatchRaw"
_OF_THE_RECORD = frozenset({"ValidationException", "SerializationException", "ModelErrorException"})
"""Answers that are about one request (botocore bedrock-runtime, InvokeModel). A status does not tell: a quota may have
400 as well, and a failed model 424."""


class _Request(msgspec.Struct):
    recordId: str  # noqa: N815 - the wire's name
    modelInput: msgspec.Raw  # noqa: N815


_request = msgspec.json.Decoder(_Request).decode


class BedrockOnDemand:
    """`ports.OnDemand`. `client` makes a boto3 client of `bedrock-runtime`, without retries; it is called once."""

    name = "bedrock"

    def __init__(self, client: Callable[[], Any]) -> None:
        self._make_client = client

    def answer(self, line: bytes, *, endpoint: str, model: str) -> bytes:
        """`modelInput` is not echoed, as a batch would: the request file has it."""
        request = _request(line)
        where = f"Bedrock {endpoint} for {request.recordId}"
        try:
            raw = self._call(bytes(request.modelInput), endpoint, model)
        except ParamValidationError:
            return _failed(request.recordId, "ValidationException", "not a request of this operation")
        except ClientError as error:
            told = _failed(request.recordId, error_code(error), str(error.response.get("Error", {}).get("Message", "")))
            if error_code(error) in _OF_THE_RECORD:
                return told
            raise _failure(error, where, told) from None
        except CALL_ERRORS as error:
            raise _failure(error, where) from None
        except TallybatchError:
            raise
        except Exception as error:
            raise answer_unknown(where, type(error).__name__) from None
        return b'{"recordId":' + msgspec.json.encode(request.recordId) + b',"modelOutput":' + embedded(raw) + b"}"

    def _call(self, body: bytes, endpoint: str, model: str) -> bytes:
        if endpoint == CONVERSE:
            reply = self._client.converse(modelId=model, **msgspec.json.decode(body))
            raw: bytes = reply[_RAW]
            return raw
        reply = self._client.invoke_model(
            modelId=model, body=body, contentType="application/json", accept="application/json"
        )
        answer: bytes = reply["body"].read()
        return answer

    @cached_property
    def _client(self) -> Any:
        client = self._make_client()
        client.meta.events.register("after-call.bedrock-runtime.Converse", _keep_raw, unique_id=_RAW)
        return client


def _keep_raw(http_response: Any, parsed: dict[str, Any], **_: Any) -> None:
    parsed[_RAW] = http_response.content


def _failure(error: Exception, where: str, reply: bytes = b"") -> TallybatchError:
    """As for create, which costs as much to repeat."""
    failure = create_failure(error, where)
    return answer_unknown(where, failure.why, reply) if isinstance(failure, CreateUnknown) else failure


def _failed(record_id: str, code: str, message: str) -> bytes:
    error = {"errorCode": code, "errorMessage": message[:MAX_MESSAGE_CHARS]}
    return msgspec.json.encode({"recordId": record_id, "error": error})
