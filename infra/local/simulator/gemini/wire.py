"""Small parts of HTTP in Google's manner: JSON bodies and page tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import orjson
from starlette.requests import Request

from infra.local.simulator.execution import Json
from infra.local.simulator.gemini.model import ApiError

MAX_PAGE = 1_000
FIRST_PAGE = "first"
"""The token that leads to the beginning: what an empty page that promises more has to give."""
T = TypeVar("T")


async def json_object(request: Request) -> Json:
    """The body as a JSON object; an empty one is empty. Raises `ApiError` 400."""
    try:
        document = orjson.loads(await request.body() or b"{}")
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"Invalid JSON payload received. {error.msg}") from None
    if not isinstance(document, dict):
        raise ApiError(400, "Invalid JSON payload received. The body is no object.")
    return document


def paged(request: Request, items: Sequence[T], names: Sequence[str], *, default: int) -> tuple[Sequence[T], Json]:
    """The page asked for, and the member that leads to the next one. A token is the name of the last item before."""
    size = request.query_params.get("pageSize", "0")
    if not size.isascii() or not size.isdigit():
        raise ApiError(400, "Invalid value for pageSize.")
    wanted = min(int(size) or default, MAX_PAGE)
    token = request.query_params.get("pageToken", "")
    if token not in ("", FIRST_PAGE, *names):
        raise ApiError(400, "Invalid page token.")
    start = names.index(token) + 1 if token in names else 0
    end = start + wanted
    return items[start:end], {"nextPageToken": names[end - 1]} if end < len(items) else {}
