"""`/files`: multipart upload, metadata, list, delete, and content with byte ranges."""

from __future__ import annotations

from hashlib import sha256

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from infra.local.simulator.core import Core
from infra.local.simulator.http import file_answer, json_answer
from infra.local.simulator.openai.execution import PROVIDER
from infra.local.simulator.openai.model import ApiError
from infra.local.simulator.openai.service import OpenAIService
from infra.local.simulator.openai.wire import limit_of, live_s, page

PURPOSES = frozenset({"assistants", "batch", "fine-tune", "vision", "user_data", "evals"})
MAX_FILE_BYTES = 512 * 1024 * 1024
"""Of `/files` [openai SDK resources/files.py]; a batch takes less, see `scenario.Limits.max_file_bytes`."""


class FileHandlers:
    def __init__(self, core: Core, service: OpenAIService) -> None:
        self._core = core
        self._service = service

    async def upload(self, request: Request) -> Response:
        """Fields: `purpose`, `file`, `expires_after[anchor]`, `expires_after[seconds]`."""
        async with request.form(max_files=1, max_fields=10) as form:
            upload, purpose = form.get("file"), form.get("purpose")
            if not isinstance(upload, UploadFile):
                raise ApiError(400, "'file' is required, as a file part.", param="file")
            if not isinstance(purpose, str) or purpose not in PURPOSES:
                raise ApiError(400, f"'purpose' must be one of {', '.join(sorted(PURPOSES))}.", param="purpose")
            live = self._core.scenario.input_files_live_s if purpose == "batch" else None
            if "expires_after[anchor]" in form or "expires_after[seconds]" in form:
                seconds = str(form.get("expires_after[seconds]", ""))
                value = {
                    "anchor": form.get("expires_after[anchor]"),
                    "seconds": int(seconds) if seconds.isdecimal() else None,
                }
                live = live_s(value, "expires_after")
            data = await upload.read()
        if len(data) > MAX_FILE_BYTES:
            raise ApiError(413, f"The file has more than {MAX_FILE_BYTES} bytes.", param="file")
        now = self._core.clock.now()
        file = self._service.store(upload.filename or "upload", purpose, data, live_s=live, moment=now)
        self._core.journal.record(
            PROVIDER,
            "uploads",
            now,
            file_id=file.id,
            filename=file.filename,
            purpose=purpose,
            bytes=len(data),
            sha256=sha256(data).hexdigest(),
        )
        return json_answer(file.to_json())

    async def get(self, request: Request) -> Response:
        return json_answer(self._service.file(request.path_params["file_id"]).to_json())

    async def list(self, request: Request) -> Response:
        """Newest first unless `order=asc`; `after` is the last id of the page before."""
        query = request.query_params
        limit = limit_of(request, default=10_000, most=10_000)
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise ApiError(400, "'order' must be asc or desc.", param="order")
        files = [file for file in self._service.living_files() if query.get("purpose", file.purpose) == file.purpose]
        if order == "desc":
            files.reverse()
        if "after" in query:
            places = [place for place, file in enumerate(files) if file.id == query["after"]]
            if not places:
                raise ApiError(400, f"No file with the id {query['after']!r}.", param="after")
            files = files[places[0] + 1 :]
        shown = files[:limit]
        items = [file.to_json() for file in shown]
        return json_answer(page(items, [file.id for file in shown], has_more=len(files) > limit))

    async def delete(self, request: Request) -> Response:
        file = self._service.file(request.path_params["file_id"])
        del self._service.files[file.id]
        self._core.journal.record(PROVIDER, "deletes", self._core.clock.now(), file_id=file.id)
        return json_answer({"id": file.id, "object": "file", "deleted": True})

    async def content(self, request: Request) -> Response:
        """The raw bytes; `Range: bytes=…` gives 206, or 416 when it begins behind the end."""
        file = self._service.file(request.path_params["file_id"])
        if file.readable_from > self._core.clock.now():
            raise ApiError(404, f"No such file: {file.id}", param="id")
        return file_answer(request, file.data, filename=file.filename)
