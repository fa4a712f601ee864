"""The synchronous endpoints: the same request gives the same answer as in a batch."""

from __future__ import annotations

import fnmatch

from starlette.requests import Request
from starlette.responses import Response

from infra.local.simulator.bill import priced
from infra.local.simulator.core import Core
from infra.local.simulator.execution import digest_of
from infra.local.simulator.guard import Handler
from infra.local.simulator.http import json_answer
from infra.local.simulator.openai.bodies import reply_to
from infra.local.simulator.openai.execution import PROVIDER
from infra.local.simulator.openai.model import ApiError
from infra.local.simulator.openai.requests import canonical
from infra.local.simulator.openai.wire import json_object
from infra.local.simulator.scenario import ANSWER_FAULTS


class SyncHandlers:
    def __init__(self, core: Core) -> None:
        self._core = core

    def handler(self, endpoint: str) -> Handler:
        async def answer(request: Request) -> Response:
            body = await json_object(request)
            model = body.get("model")
            if not isinstance(model, str) or not model:
                raise ApiError(400, "'model' is required.", param="model", code="missing_required_parameter")
            models = self._core.scenario.models
            if any(fnmatch.fnmatchcase(model, pattern) for pattern in models.refuse):
                raise ApiError(404, f"The model {model!r} does not exist.", param="model", code="model_not_found")
            if body.get("stream"):
                raise ApiError(400, "The simulator does not stream.", param="stream", code="streaming_unsupported")
            content = canonical(body)
            digest = digest_of(content)
            fault = self._core.faults.record(PROVIDER, digest, content, only=ANSWER_FAULTS)
            now = self._core.clock.now()
            resolved = models.resolve.get(model, model)
            reply = reply_to(endpoint, body, digest=digest, model=resolved, moment=now, fault=fault)
            if reply.status == 200:
                spent = priced(PROVIDER, resolved, "on_demand", reply.tokens)
                self._core.journal.billed(PROVIDER, now, job_id="", marker="", tokens=spent)
            return json_answer(reply.body, status=reply.status)

        return answer
