"""Small parts of HTTP that every provider answers with: JSON, and byte ranges of a file."""

from __future__ import annotations

import re
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def json_answer(document: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(document), status_code=status, headers=headers, media_type="application/json")


def file_answer(request: Request, data: bytes, *, filename: str) -> Response:
    """The raw bytes; `Range: bytes=…` gives 206, or 416 when it begins behind the end."""
    headers = {"accept-ranges": "bytes", "content-disposition": f'attachment; filename="{filename}"'}
    match = _RANGE.fullmatch(request.headers.get("range", ""))
    if match is None or match.groups() == ("", ""):
        return Response(data, headers=headers, media_type="application/octet-stream")
    size = len(data)
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if start >= size or start > end:
        return Response(status_code=416, headers={"content-range": f"bytes */{size}"})
    headers["content-range"] = f"bytes {start}-{end}/{size}"
    return Response(data[start : end + 1], 206, headers=headers, media_type="application/octet-stream")
