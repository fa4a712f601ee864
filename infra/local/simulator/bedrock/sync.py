"""`bedrock-runtime`: Converse and InvokeModel. The same request gives the same answer as in a batch."""

from __future__ import annotations

import fnmatch
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from infra.local.simulator.bedrock.bodies import reply_to
from infra.local.simulator.bedrock.model import PROVIDER, ApiError, Json, invalid
from infra.local.simulator.bill import priced
from infra.local.simulator.core import Core
from infra.local.simulator.execution import canonical_bytes, digest_of
from infra.local.simulator.guard import Handler
from infra.local.simulator.http import json_answer
from infra.local.simulator.scenario import ANSWER_FAULTS

_NAMES = {400: "ValidationException", 429: "ThrottlingException", 503: "ServiceUnavailableException"}


class SyncHandlers:
    def __init__(self, core: Core) -> None:
        self._core = core

    def handler(self, invocation_type: str) -> Handler:
        async def answer(request: Request) -> Response:
            model = str(request.path_params["model"])
            if any(fnmatch.fnmatchcase(model, pattern) for pattern in self._core.scenario.models.refuse):
                raise ApiError(404, "ResourceNotFoundException", "The model does not exist.")
            body = _object(await request.body())
            content = canonical_bytes(body)
            digest = digest_of(content)
            fault = self._core.faults.record(PROVIDER, digest, content, only=ANSWER_FAULTS)
            reply = reply_to(model, invocation_type, body, digest=digest, key=digest.hex(), fault=fault)
            if reply.failed:
                raise _error(reply.part["error"])
            spent = priced(PROVIDER, model, "on_demand", reply.tokens)
            self._core.journal.billed(PROVIDER, self._core.clock.now(), job_id="", marker="", tokens=spent)
            return json_answer(reply.part["modelOutput"])

        return answer


def _error(error: Json) -> ApiError:
    """A record's error as the answer to a call of its own."""
    status = error["errorCode"] if isinstance(error["errorCode"], int) else 500
    return ApiError(status, _NAMES.get(status, "InternalServerException"), error["errorMessage"])


def _object(raw: bytes) -> Json:
    try:
        body: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise invalid("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise invalid("The body is not an object.")
    return body
