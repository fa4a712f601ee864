"""The routes under `/openai/v1`, and what every answer shares: the key check, `x-request-id`, the error shape."""

from __future__ import annotations

import uuid
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from infra.local.simulator.core import Core
from infra.local.simulator.guard import Handler, guarded
from infra.local.simulator.http import json_answer
from infra.local.simulator.openai.batches import BatchHandlers
from infra.local.simulator.openai.execution import PROVIDER
from infra.local.simulator.openai.files import FileHandlers
from infra.local.simulator.openai.model import CHAT, EMBEDDINGS, RESPONSES, ApiError, error_body
from infra.local.simulator.openai.service import OpenAIService
from infra.local.simulator.openai.sync import SyncHandlers
from infra.local.simulator.scenario import Call


class OpenAISimulator:
    """See `core.ProviderSimulator`."""

    name = PROVIDER

    def __init__(self, core: Core) -> None:
        self._core = core
        self._service = OpenAIService(core)

    def reset(self) -> None:
        self._service.reset()

    def jobs(self) -> dict[str, dict[str, Any]]:
        return self._service.jobs()

    def routes(self) -> list[BaseRoute]:
        files = FileHandlers(self._core, self._service)
        batches = BatchHandlers(self._core, self._service)
        sync = SyncHandlers(self._core)
        return [
            Mount(
                "/v1",
                routes=[
                    self._route("POST", "/files", "upload", files.upload),
                    self._route("GET", "/files", "file_list", files.list),
                    self._route("GET", "/files/{file_id}", "file_get", files.get),
                    self._route("DELETE", "/files/{file_id}", "delete", files.delete),
                    self._route("GET", "/files/{file_id}/content", "content", files.content),
                    self._route("POST", "/batches", "create", batches.create),
                    self._route("GET", "/batches", "list", batches.list),
                    self._route("GET", "/batches/{batch_id}", "get", batches.get),
                    self._route("POST", "/batches/{batch_id}/cancel", "cancel", batches.cancel),
                    *(
                        self._route("POST", endpoint.removeprefix("/v1"), "sync", sync.handler(endpoint))
                        for endpoint in (CHAT, RESPONSES, EMBEDDINGS)
                    ),
                    Route("/{rest:path}", _nowhere, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
                ],
            )
        ]

    def _route(self, method: str, path: str, kind: Call, handler: Handler) -> Route:
        async def answer(request: Request) -> Response:
            try:
                _check_key(request)
                response = await guarded(self._core, PROVIDER, kind, handler, request, _fault)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it; the request never arrived whole
            except ApiError as error:
                response = json_answer(error.body, status=error.status, headers=error.headers)
            return _stamped(response)

        return Route(path, answer, methods=[method])


async def _nowhere(request: Request) -> Response:
    message = f"There is nothing at {request.method} {request.url.path}."
    body = error_body(message, kind="invalid_request_error", code="unknown_url")
    return _stamped(json_answer(body, status=404))


def _stamped(response: Response) -> Response:
    response.headers["x-request-id"] = f"req_{uuid.uuid4().hex}"
    response.headers["openai-version"] = "2020-10-01"
    return response


def _check_key(request: Request) -> None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise ApiError(
            401, "No API key: send 'Authorization: Bearer KEY'. Any key will do here.", code="invalid_api_key"
        )


def _fault(status: int, headers: dict[str, str]) -> Response:
    kind, code = {
        401: ("invalid_request_error", "invalid_api_key"),
        403: ("invalid_request_error", "unsupported_country_region_territory"),
        404: ("invalid_request_error", None),
        429: ("rate_limit_error", "rate_limit_exceeded"),
    }.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    body = error_body(f"The scenario answers this call with HTTP {status}.", kind=kind, code=code)
    return Response(orjson.dumps(body), status_code=status, headers=headers, media_type="application/json")
