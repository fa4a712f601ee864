"""The routes under `/gemini`, in each API version, and what every answer shares: the key check, the error shape."""

from __future__ import annotations

from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from infra.local.simulator.core import Core
from infra.local.simulator.gemini.batches import BatchHandlers
from infra.local.simulator.gemini.files import FileHandlers
from infra.local.simulator.gemini.model import EMBED, GENERATE, PROVIDER, ApiError, error_body
from infra.local.simulator.gemini.service import GeminiService
from infra.local.simulator.gemini.sync import SyncHandlers
from infra.local.simulator.guard import Handler, guarded
from infra.local.simulator.http import json_answer
from infra.local.simulator.scenario import Call

VERSIONS = ("v1", "v1beta", "v1alpha")


class GeminiSimulator:
    """See `core.ProviderSimulator`."""

    name = PROVIDER

    def __init__(self, core: Core) -> None:
        self._core = core
        self._service = GeminiService(core)

    def reset(self) -> None:
        self._service.reset()

    def jobs(self) -> dict[str, dict[str, Any]]:
        return self._service.jobs()

    def routes(self) -> list[BaseRoute]:
        """The more exact path comes first: a file's id may hold any character but a slash."""
        files = FileHandlers(self._core, self._service)
        batches = BatchHandlers(self._core, self._service)
        sync = SyncHandlers(self._core)
        routes: list[BaseRoute] = []
        for version in VERSIONS:
            at = f"/{version}"
            routes += [
                self._upload(f"/upload{at}/files", files),
                self._route("GET", f"/download{at}/files/{{file_id}}:download", "content", files.download),
                self._route("GET", f"{at}/files/{{file_id}}:download", "content", files.download),
                self._route("GET", f"{at}/files", "file_list", files.list),
                self._route("GET", f"{at}/files/{{file_id}}", "file_get", files.get),
                self._route("DELETE", f"{at}/files/{{file_id}}", "delete", files.delete),
                *(
                    self._route("POST", f"{at}/models/{{model}}:{method}", "create", batches.create(method))
                    for method in (GENERATE, EMBED)
                ),
                self._route("POST", f"{at}/models/{{model}}:generateContent", "sync", sync.handler(GENERATE)),
                self._route("POST", f"{at}/models/{{model}}:embedContent", "sync", sync.handler(EMBED)),
                self._route("GET", f"{at}/batches", "list", batches.list),
                self._route("POST", f"{at}/batches/{{batch_id}}:cancel", "cancel", batches.cancel),
                self._route("GET", f"{at}/batches/{{batch_id}}", "get", batches.get),
                self._route("DELETE", f"{at}/batches/{{batch_id}}", "delete", batches.delete),
            ]
        return [*routes, Route("/{rest:path}", _nowhere, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])]

    def _route(self, method: str, path: str, kind: Call, handler: Handler) -> Route:
        async def answer(request: Request) -> Response:
            return await self._answer(request, kind, handler)

        return Route(path, answer, methods=[method])

    def _upload(self, path: str, files: FileHandlers) -> Route:
        """Both steps of an upload go to one path. A scenario counts and disturbs the first one; the second knows the
        upload by its id and needs no key."""

        async def answer(request: Request) -> Response:
            if "upload_id" in request.query_params:
                return await _told(files.put, request)
            return await self._answer(request, "upload", files.start)

        return Route(path, answer, methods=["POST", "PUT"])

    async def _answer(self, request: Request, kind: Call, handler: Handler) -> Response:
        async def checked(inner: Request) -> Response:
            _check_key(inner)
            return await handler(inner)

        async def guard(outer: Request) -> Response:
            return await guarded(self._core, PROVIDER, kind, checked, outer, _fault)

        return await _told(guard, request)


async def _told(handler: Handler, request: Request) -> Response:
    try:
        return await handler(request)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody reads it; the request never arrived whole
    except ApiError as error:
        return json_answer(error.body, status=error.code)


async def _nowhere(request: Request) -> Response:
    return json_answer(error_body(404, f"There is nothing at {request.method} {request.url.path}."), status=404)


def _check_key(request: Request) -> None:
    if not (request.headers.get("x-goog-api-key") or request.query_params.get("key")):
        raise ApiError(403, "Method doesn't allow unregistered callers: send x-goog-api-key. Any key will do here.")


def _fault(status: int, headers: dict[str, str]) -> Response:
    body = error_body(status, f"The scenario answers this call with HTTP {status}.")
    return json_answer(body, status=status, headers=headers)
