"""What happens in `validating`: every line is read, every fault is named with its 1-based line."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from typing import Any

import orjson

from infra.local.simulator.execution import Json
from infra.local.simulator.openai.model import EMBEDDINGS, ApiError
from infra.local.simulator.openai.requests import canonical, embedding_inputs, input_tokens
from infra.local.simulator.scenario import Limits, Models

_SUSPICIOUS_BRACKETS = 200
_MESSAGES = {
    "billing_hard_limit_reached": "The spend limit of this account is reached.",
    "empty_file": "The input file holds no requests.",
    "file_not_found": "The input file cannot be found, or this project has no access to it.",
    "model_not_found": "The model does not exist, or this project has no access to it.",
    "token_limit_exceeded": "The enqueued tokens of this model are at their limit; try again when other batches ended.",
    "too_many_tasks": "The input file holds more requests than a batch may have.",
}


@dataclass(slots=True)
class Validated:
    """`spans` are the byte ranges of the request lines; `errors` are entries of a batch's `errors.data`."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    model: str = ""
    prompt_tokens: int = 0
    errors: list[Json] = field(default_factory=list)


def job_error(code: str, *, message: str = "", param: str | None = None, line: int | None = None) -> Json:
    return {"code": code, "message": message or _MESSAGES.get(code, f"{code}."), "param": param, "line": line}


class _LineError(Exception):
    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        self.entry = (code, message, param)


def validate(data: bytes, *, endpoint: str, limits: Limits, models: Models) -> Validated:
    """Blank lines are passed over; their numbers count. Errors end at `limits.max_validation_errors`."""
    found = Validated()
    first_line_of: dict[str, int] = {}
    inputs = start = number = 0
    while start < len(data) and len(found.errors) < limits.max_validation_errors:
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        line = data[start:end]
        if line.strip():
            try:
                body = _request(line, number, endpoint, first_line_of)
                inputs += len(embedding_inputs(body)) if endpoint == EMBEDDINGS else 0
                found.prompt_tokens += input_tokens(endpoint, body)
                _check_model(body["model"], number, found, models)
            except _LineError as error:
                code, message, param = error.entry
                found.errors.append(job_error(code, message=message, param=param, line=number))
            found.spans.append((start, end))
        start = end + 1
    if not found.spans:
        found.errors.append(job_error("empty_file"))
    elif len(found.spans) > limits.max_requests or inputs > limits.max_embedding_inputs:
        found.errors.insert(0, job_error("too_many_tasks"))
    return found


def _request(line: bytes, number: int, endpoint: str, first_line_of: dict[str, int]) -> Json:
    try:
        request: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _LineError("invalid_json_line", f"This line is not JSON: {error.msg}.") from None
    if not isinstance(request, dict):
        raise _LineError("invalid_request", "This line is not a JSON object.")
    for name in ("custom_id", "method", "url", "body"):
        if request.get(name) is None:
            raise _LineError("missing_required_parameter", f"{name!r} is missing.", name)
    custom_id, body = request["custom_id"], request["body"]
    if not isinstance(custom_id, str) or not custom_id:
        raise _LineError("invalid_request", "'custom_id' is not a non-empty string.", "custom_id")
    if custom_id in first_line_of:
        first = first_line_of[custom_id]
        raise _LineError("duplicate_custom_id", f"{custom_id!r} is the id of line {first} already.", "custom_id")
    first_line_of[custom_id] = number
    if request["method"] != "POST":
        raise _LineError("invalid_method", "'method' is not POST.", "method")
    if request["url"] != endpoint:
        raise _LineError("invalid_url", f"'url' is not the endpoint of the batch, {endpoint}.", "url")
    if not isinstance(body, dict):
        raise _LineError("invalid_request", "'body' is not a JSON object.", "body")
    if line.count(b"{") + line.count(b"[") > _SUSPICIOUS_BRACKETS:
        try:
            canonical({"response": {"body": {"echo": body}}})
        except ApiError:
            raise _LineError("invalid_request", "'body' is nested too deeply.", "body") from None
    if body.get("stream"):
        raise _LineError("streaming_unsupported", "A batch cannot stream.", "body.stream")
    if body.get("model") is None:
        raise _LineError("missing_required_parameter", "'body.model' is missing.", "body.model")
    if not isinstance(body["model"], str):
        raise _LineError("invalid_request", "'body.model' is not a string.", "body.model")
    return body


def _check_model(model: str, number: int, found: Validated, models: Models) -> None:
    if not found.model:
        found.model = model
        if not model or any(fnmatch.fnmatchcase(model, pattern) for pattern in models.refuse):
            message = f"The model {model!r} does not exist, or this project has no access to it."
            raise _LineError("model_not_found", message, "body.model")
    elif model != found.model:
        message = f"Line {number} names {model!r}, but the file began with {found.model!r}."
        raise _LineError("mismatched_model", message, "body.model")
