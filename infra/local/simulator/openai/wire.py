"""Small parts of HTTP that several handlers need: JSON in and out, query numbers, pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from starlette.requests import Request

from infra.local.simulator.execution import Json
from infra.local.simulator.openai.model import ApiError


async def json_object(request: Request) -> Json:
    """The body as a JSON object. Raises `ApiError` 400."""
    try:
        document = orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"The body is not JSON: {error.msg}.") from None
    if not isinstance(document, dict):
        raise ApiError(400, "The body is not a JSON object.")
    return document


def limit_of(request: Request, *, default: int, most: int) -> int:
    """The `limit` of a list call. Raises `ApiError` 400 outside 1..most."""
    text = request.query_params.get("limit", str(default))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise ApiError(400, f"'limit' is {text!r}; it must be a whole number from 1 to {most}.", param="limit")
    return int(text)


def page(items: Sequence[Json], ids: Sequence[str], *, has_more: bool) -> Json:
    """A list object. `ids` are those of `items`."""
    return {
        "object": "list",
        "data": list(items),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": has_more,
    }


def live_s(value: Any, name: str) -> float:
    """The seconds of an `expires_after` object. Raises `ApiError` 400 [3600..2592000, SDK file_create_params.py]."""
    if not isinstance(value, dict) or value.get("anchor") != "created_at":
        raise ApiError(400, f"'{name}' must hold the anchor 'created_at' and seconds.", param=name)
    seconds = value.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 3_600 <= seconds <= 2_592_000:
        raise ApiError(400, f"'{name}.seconds' must be from 3600 to 2592000.", param=name)
    return float(seconds)
