"""`models/…:batchGenerateContent`, `:asyncBatchEmbedContent` and `/batches`. What is wrong with a file shows later."""

from __future__ import annotations

import fnmatch
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from infra.local.simulator.core import Core
from infra.local.simulator.gemini.model import PROVIDER, ApiError, Batch
from infra.local.simulator.gemini.requests import member
from infra.local.simulator.gemini.service import GeminiService
from infra.local.simulator.gemini.wire import FIRST_PAGE, json_object, paged
from infra.local.simulator.guard import Handler
from infra.local.simulator.http import json_answer

MAX_INLINE_BYTES = 20_000_000


class BatchHandlers:
    def __init__(self, core: Core, service: GeminiService) -> None:
        self._core = core
        self._service = service

    def create(self, method: str) -> Handler:
        async def answer(request: Request) -> Response:
            """Not idempotent: each call that succeeds makes a batch."""
            model = request.path_params["model"]
            if any(fnmatch.fnmatchcase(model, pattern) for pattern in self._core.scenario.models.refuse):
                raise ApiError(404, f"models/{model} is not found, or is not supported for {method}.")
            about = member(await json_object(request), "batch")
            config = member(about, "inputConfig")
            file_name = member(config, "fileName")
            inlined = member(member(config, "requests"), "requests")
            if (file_name is None) == (inlined is None):
                raise ApiError(400, "batch.input_config must hold either a file_name or requests.")
            data = _lines(inlined) if inlined is not None else self._uploaded(file_name)
            batch = self._service.create(
                method=method,
                model=model,
                marker=str(member(about, "displayName") or ""),
                input_file=file_name or "",
                data=data,
            )
            return json_answer(batch.to_json())

        return answer

    async def get(self, request: Request) -> Response:
        return json_answer(self._named(request).to_json())

    async def list(self, request: Request) -> Response:
        """Newest first. There is no filter: whoever looks for a displayName walks the pages."""
        self._service.add_strangers(getattr(request.state, "strangers", 0))
        if getattr(request.state, "empty_page", False):
            return json_answer({"nextPageToken": request.query_params.get("pageToken") or FIRST_PAGE})
        if self._core.scenario.gemini.list_needs_page_size and "pageSize" not in request.query_params:
            return json_answer({})
        now = self._core.clock.now()
        visible = [
            batch for batch in reversed(self._service.batches.values()) if not batch.gone and batch.listed_from <= now
        ]
        shown, token = paged(request, visible, [batch.name for batch in visible], default=50)
        operations = [self._service.batch(batch.name).to_json(inline=False) for batch in shown]
        return json_answer({"operations": operations, **token} if operations else {})

    async def cancel(self, request: Request) -> Response:
        batch, now = self._named(request), self._core.clock.now()
        self._core.journal.record(PROVIDER, "cancels", now, job_id=batch.name, marker=batch.marker, state=batch.state)
        self._service.cancel(batch, now)
        return json_answer({})

    async def delete(self, request: Request) -> Response:
        batch, now = self._named(request), self._core.clock.now()
        self._core.journal.record(PROVIDER, "deletes", now, job_id=batch.name, marker=batch.marker)
        self._service.delete(batch, now)
        return json_answer({})

    def _named(self, request: Request) -> Batch:
        return self._service.batch(f"batches/{request.path_params['batch_id']}")

    def _uploaded(self, name: Any) -> bytes:
        file = self._service.file(str(name))
        if file.generated:
            raise ApiError(400, f"The file {name} was not uploaded.")
        return file.data


def _lines(requests: Any) -> bytes:
    """Inline requests as the lines that a file would have; one without a key is known by its place."""
    if not isinstance(requests, list) or not requests:
        raise ApiError(400, "batch.input_config.requests must hold at least one request.")
    rows = [
        {"key": str(member(item.get("metadata"), "key") or f"request-{place}"), "request": item.get("request")}
        for place, item in enumerate(requests)
        if isinstance(item, dict)
    ]
    data = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    if len(data) > MAX_INLINE_BYTES:
        raise ApiError(400, "Request payload size exceeds the limit: 20 MB.")
    return data
