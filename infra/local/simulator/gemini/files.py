"""`/upload/{version}/files` in two steps, metadata, list, delete, and both download paths."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from infra.local.simulator.core import Core
from infra.local.simulator.gemini.model import PROVIDER, ApiError, StoredFile, new_id
from infra.local.simulator.gemini.requests import member
from infra.local.simulator.gemini.service import GeminiService
from infra.local.simulator.gemini.wire import json_object, paged
from infra.local.simulator.http import file_answer, json_answer

UPLOADS_LIVE_S = 48 * 3_600
"""An uploaded file is deleted after 48 hours."""
MAX_ID_CHARS = 40


@dataclass(slots=True)
class _Upload:
    display_name: str
    mime_type: str
    size: int
    data: bytearray = field(default_factory=bytearray)


class FileHandlers:
    def __init__(self, core: Core, service: GeminiService) -> None:
        self._core = core
        self._service = service
        self._open: dict[str, _Upload] = {}

    async def start(self, request: Request) -> Response:
        """The first step: what comes, and where to send it."""
        if request.headers.get("x-goog-upload-command") != "start":
            raise ApiError(400, "X-Goog-Upload-Command must be start.")
        options = self._core.scenario.gemini
        about = member(await json_object(request), "file") or {}
        mime_type = request.headers.get("x-goog-upload-header-content-type") or member(about, "mimeType") or ""
        size = request.headers.get("x-goog-upload-header-content-length", "")
        if mime_type not in options.mime_types:
            raise ApiError(400, f"Unsupported MIME type: {mime_type}")
        if not size.isdecimal() or int(size) > options.max_file_bytes:
            raise ApiError(400, f"The size of the file must be from 0 to {options.max_file_bytes} bytes.")
        upload_id = new_id(32)
        self._open[upload_id] = _Upload(member(about, "displayName") or "", mime_type, int(size))
        url = request.url.replace(query=f"upload_id={upload_id}&upload_protocol=resumable")
        return json_answer({}, headers={"x-goog-upload-url": str(url), "x-goog-upload-status": "active"})

    async def put(self, request: Request) -> Response:
        """The second step, once or in parts; the last part finalizes."""
        upload = self._open.get(request.query_params.get("upload_id", ""))
        if upload is None:
            raise ApiError(404, "There is no such upload.")
        commands = {part.strip() for part in request.headers.get("x-goog-upload-command", "").split(",")}
        if request.headers.get("x-goog-upload-offset") != str(len(upload.data)):
            raise ApiError(400, f"The offset of this upload is {len(upload.data)}.")
        upload.data += await request.body()
        if "finalize" not in commands:
            return json_answer({}, headers={"x-goog-upload-status": "active"})
        del self._open[request.query_params["upload_id"]]
        if len(upload.data) != upload.size:
            raise ApiError(400, f"{upload.size} bytes were announced, {len(upload.data)} came.")
        self._service.uploads_answered += 1
        if self._service.uploads_answered <= self._core.scenario.gemini.upload_error_bodies:
            error = {"error": {"code": 400, "message": "The upload failed.", "status": "INVALID_ARGUMENT"}}
            return json_answer(error, headers={"x-goog-upload-status": "final"})
        file = self._stored(upload)
        return json_answer({"file": file.to_json()}, headers={"x-goog-upload-status": "final"})

    async def get(self, request: Request) -> Response:
        return json_answer(self._named(request).to_json())

    async def list(self, request: Request) -> Response:
        now = self._core.clock.now()
        living = [file for file in self._service.files.values() if file.expires_at is None or file.expires_at > now]
        living.reverse()
        shown, token = paged(request, living, [file.name for file in living], default=10)
        return json_answer({"files": [file.to_json() for file in shown], **token} if shown else {})

    async def delete(self, request: Request) -> Response:
        file = self._named(request)
        del self._service.files[file.name]
        self._core.journal.record(PROVIDER, "deletes", self._core.clock.now(), file_id=file.name)
        return json_answer({})

    async def download(self, request: Request) -> Response:
        file = self._service.file(f"files/{request.path_params['file_id']}")
        if request.query_params.get("alt") != "media":
            raise ApiError(400, "A download needs alt=media.")
        if not file.generated:
            raise ApiError(400, "Only generated files can be downloaded.", status="FAILED_PRECONDITION")
        if file.readable_from > self._core.clock.now():
            raise ApiError(404, f"The file {file.name} does not exist, or you may not read it.")
        return file_answer(request, file.data, filename=file.name.removeprefix("files/") + ".jsonl")

    def _named(self, request: Request) -> StoredFile:
        file_id = request.path_params["file_id"]
        if len(file_id) > MAX_ID_CHARS:
            raise ApiError(400, f"* GetFileRequest.name: files/{file_id} has more than {MAX_ID_CHARS} characters.")
        return self._service.file(f"files/{file_id}")

    def _stored(self, upload: _Upload) -> StoredFile:
        now, data = self._core.clock.now(), bytes(upload.data)
        file = self._service.store(
            StoredFile(
                name=f"files/{new_id(12)}",
                display_name=upload.display_name,
                mime_type=upload.mime_type,
                data=data,
                created_at=now,
                expires_at=now + UPLOADS_LIVE_S,
            )
        )
        self._core.journal.record(
            PROVIDER,
            "uploads",
            now,
            file_id=file.name,
            filename=file.display_name,
            bytes=len(data),
            sha256=sha256(data).hexdigest(),
        )
        return file
