"""The reply of a function that was called directly, with its errors as ours."""

from __future__ import annotations

import json
from typing import Any

from tallybatch.domain import errors


def read_reply(function: str, function_error: str, payload: bytes) -> dict[str, Any]:
    """The function's JSON object. `function_error` is Lambda's `FunctionError`, "" for success; the payload then has
    `errorType` and `errorMessage` (AWS Lambda developer guide, "Python function errors"). Raises the error of our own
    that `errorType` names, else `Permanent`."""
    document: Any = json.loads(payload or b"null")
    if not function_error:
        return dict(document or {})
    told = document if isinstance(document, dict) else {}
    kind = getattr(errors, str(told.get("errorType", "")), None)
    message = str(told.get("errorMessage", function_error))
    if isinstance(kind, type) and issubclass(kind, errors.TallybatchError):
        raise kind(message)
    raise errors.Permanent("the function failed", where=function, why=message, do="look at its log")
