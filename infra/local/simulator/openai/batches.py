"""`/batches`: create, get, list, cancel. What is wrong with a file's content shows later, in `validating`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from infra.local.simulator.core import Core
from infra.local.simulator.http import json_answer
from infra.local.simulator.openai.execution import PROVIDER
from infra.local.simulator.openai.model import ENDPOINTS, ApiError
from infra.local.simulator.openai.service import OpenAIService
from infra.local.simulator.openai.wire import json_object, limit_of, live_s, page

_FIELDS = frozenset({"completion_window", "endpoint", "input_file_id", "metadata", "output_expires_after"})


class BatchHandlers:
    def __init__(self, core: Core, service: OpenAIService) -> None:
        self._core = core
        self._service = service

    async def create(self, request: Request) -> Response:
        """Not idempotent, whatever headers come along: each call that succeeds makes a batch."""
        body = await json_object(request)
        for name in ("input_file_id", "endpoint", "completion_window"):
            if not isinstance(body.get(name), str):
                raise ApiError(400, f"{name!r} is required.", param=name, code="missing_required_parameter")
        for name in sorted(body.keys() - _FIELDS):
            raise ApiError(400, f"{name!r} is not a parameter of this call.", param=name, code="unknown_parameter")
        if body["endpoint"] not in ENDPOINTS:
            raise ApiError(400, f"'endpoint' must be one of {', '.join(ENDPOINTS)}.", param="endpoint")
        if body["completion_window"] != "24h":
            raise ApiError(400, "'completion_window' must be 24h.", param="completion_window")
        metadata = _metadata(body.get("metadata"))
        expires_after = body.get("output_expires_after")
        output_live_s = None if expires_after is None else live_s(expires_after, "output_expires_after")
        try:
            file = self._service.file(body["input_file_id"])
        except ApiError as error:
            error.status = 400
            error.body["error"]["param"] = "input_file_id"
            raise
        if file.purpose != "batch":
            raise ApiError(400, f"The purpose of the file is {file.purpose!r}, not 'batch'.", param="input_file_id")
        if len(file.data) > self._core.scenario.limits.max_file_bytes:
            raise ApiError(400, "File is too large.")
        batch = self._service.create(
            endpoint=body["endpoint"], input_file=file, metadata=metadata, output_live_s=output_live_s
        )
        return json_answer(batch.to_json())

    async def get(self, request: Request) -> Response:
        return json_answer(self._service.batch(request.path_params["batch_id"]).to_json())

    async def list(self, request: Request) -> Response:
        """Newest first. There is no filter: whoever looks for metadata walks the pages."""
        limit = limit_of(request, default=20, most=100)
        self._service.add_strangers(getattr(request.state, "strangers", 0))
        if getattr(request.state, "empty_page", False):
            return json_answer(page([], [], has_more=True))
        now = self._core.clock.now()
        after = request.query_params.get("after")
        if after is not None and after not in self._service.batches:
            raise ApiError(400, f"No batch with the id {after!r}.", param="after")
        ids = list(reversed(self._service.batches))
        ids = ids[ids.index(after) + 1 :] if after is not None else ids
        visible = (
            batch
            for batch in map(self._service.batches.__getitem__, ids)
            if not batch.gone and batch.listed_from <= now
        )
        shown = [batch for batch, _ in zip(visible, range(limit + 1), strict=False)]
        has_more = len(shown) > limit
        data = [self._service.batch(batch.id).to_json() for batch in shown[:limit]]
        return json_answer(page(data, [item["id"] for item in data], has_more=has_more))

    async def cancel(self, request: Request) -> Response:
        batch = self._service.batch(request.path_params["batch_id"])
        now = self._core.clock.now()
        self._core.journal.record(PROVIDER, "cancels", now, job_id=batch.id, marker=batch.marker, state=batch.status)
        self._service.cancel(batch, now)
        return json_answer(batch.to_json())


def _metadata(value: Any) -> dict[str, str] | None:
    """16 pairs of strings, keys up to 64 and values up to 512 characters [openai SDK types/shared/metadata.py]."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ApiError(400, "'metadata' must be an object.", param="metadata", code="invalid_type")
    if len(value) > 16:
        raise ApiError(
            400, "'metadata' holds more than 16 pairs.", param="metadata", code="object_above_max_properties"
        )
    for key, text in value.items():
        if len(key) > 64:
            raise ApiError(400, f"The key {key[:70]!r} has more than 64 characters.", param="metadata")
        if not isinstance(text, str) or len(text) > 512:
            raise ApiError(400, f"'metadata.{key}' must be a string of at most 512 characters.", param="metadata")
    return value
