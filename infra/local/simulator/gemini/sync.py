"""`models/…:generateContent` and `:embedContent`. The same request gives the same answer as in a batch."""

from __future__ import annotations

import fnmatch

from starlette.requests import Request
from starlette.responses import Response

from infra.local.simulator.bill import priced
from infra.local.simulator.core import Core
from infra.local.simulator.execution import canonical_bytes, digest_of
from infra.local.simulator.gemini.bodies import GeminiLines
from infra.local.simulator.gemini.model import PROVIDER, RPC_NUMBERS, RPC_OF_HTTP, ApiError
from infra.local.simulator.gemini.wire import json_object
from infra.local.simulator.guard import Handler
from infra.local.simulator.http import json_answer
from infra.local.simulator.scenario import ANSWER_FAULTS

_HTTP_OF_RPC = {RPC_NUMBERS[name]: status for status, name in RPC_OF_HTTP.items()}


class SyncHandlers:
    def __init__(self, core: Core) -> None:
        self._core = core

    def handler(self, method: str) -> Handler:
        """`method`: the batch's, which the lines of this model and kind have."""

        async def answer(request: Request) -> Response:
            model = request.path_params["model"]
            if any(fnmatch.fnmatchcase(model, pattern) for pattern in self._core.scenario.models.refuse):
                raise ApiError(404, f"models/{model} is not found.")
            body = await json_object(request)
            content = canonical_bytes(body)
            digest = digest_of(content)
            now = self._core.clock.now()
            fault = self._core.faults.record(PROVIDER, digest, content, only=ANSWER_FAULTS)
            reply = GeminiLines(method, model).reply(body, digest=digest, moment=now, fault=fault)
            if reply.failed:
                error = reply.body["error"]
                raise ApiError(_HTTP_OF_RPC.get(error["code"], 500), error["message"])
            self._core.journal.billed(
                PROVIDER, now, job_id="", marker="", tokens=priced(PROVIDER, model, "on_demand", reply.tokens)
            )
            return json_answer(reply.body)

        return answer
