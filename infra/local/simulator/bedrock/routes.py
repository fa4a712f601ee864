"""The routes under `/bedrock`: rest-json over HTTP, as botocore's `bedrock` and `bedrock-runtime` clients call them.

An ARN comes percent-encoded in one path segment; the server has decoded the path when it gets here, so the route takes
slashes too.
"""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from infra.local.simulator.bedrock.model import PROVIDER, ApiError, Json, invalid
from infra.local.simulator.bedrock.service import BedrockService
from infra.local.simulator.bedrock.sync import SyncHandlers
from infra.local.simulator.core import Core
from infra.local.simulator.guard import Handler, guarded
from infra.local.simulator.scenario import Call

_MEMBERS = frozenset(
    {"jobName", "roleArn", "clientRequestToken", "modelId", "inputDataConfig", "outputDataConfig", "vpcConfig"}
    | {"timeoutDurationInHours", "tags", "modelInvocationType"}
)
_JOB_NAME = re.compile(r"(?=.{1,63}$)[a-zA-Z0-9]{1,63}(-*[a-zA-Z0-9+\-.]){0,63}")
_TOKEN = re.compile(r"(?=.{1,256}$)[a-zA-Z0-9]{1,256}(-*[a-zA-Z0-9]){0,256}")
_S3_URI = re.compile(r"s3://[a-z0-9.\-]{3,63}/[-!_*'().a-z0-9A-Z/]*")
_ROLE = re.compile(r"arn:aws(-[^:]+)?:iam::\d{12}:role/.+")
_FAULTS = {400: "ValidationException", 403: "AccessDeniedException", 404: "ResourceNotFoundException"} | {
    409: "ConflictException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


class BedrockSimulator:
    """See `core.ProviderSimulator`."""

    name = PROVIDER

    def __init__(self, core: Core) -> None:
        self._core = core
        self._service = BedrockService(core)

    def reset(self) -> None:
        self._service.reset()

    def jobs(self) -> dict[str, dict[str, Any]]:
        return self._service.table()

    def routes(self) -> list[BaseRoute]:
        sync = SyncHandlers(self._core)
        return [
            self._route("POST", "/model-invocation-job", "create", self.create),
            self._route("GET", "/model-invocation-jobs", "list", self.list),
            self._route("POST", "/model-invocation-job/{job:path}/stop", "cancel", self.stop),
            self._route("GET", "/model-invocation-job/{job:path}", "get", self.get),
            self._route("POST", "/model/{model:path}/converse", "sync", sync.handler("Converse")),
            self._route("POST", "/model/{model:path}/invoke", "sync", sync.handler("InvokeModel")),
            Route("/{rest:path}", _nowhere, methods=["GET", "POST", "PUT", "DELETE"]),
        ]

    async def create(self, request: Request) -> Response:
        body = _checked(await request.body())
        return _answer({"jobArn": self._service.create(body).arn})

    async def get(self, request: Request) -> Response:
        return _answer(self._service.job(request.path_params["job"]).to_json())

    async def stop(self, request: Request) -> Response:
        job = self._service.job(request.path_params["job"])
        now = self._core.clock.now()
        self._core.journal.record(PROVIDER, "cancels", now, job_id=job.arn, marker=job.token, state=job.status)
        self._service.stop(job, now)
        return _answer({})

    async def list(self, request: Request) -> Response:
        query = request.query_params
        if getattr(request.state, "empty_page", False):
            return _answer({"invocationJobSummaries": [], "nextToken": query.get("nextToken") or "start"})
        limit = int(query.get("maxResults", "100"))
        if not 1 <= limit <= 1000:
            raise invalid("maxResults must be between 1 and 1000")
        now = self._core.clock.now()
        after, before = _moment(query.get("submitTimeAfter")), _moment(query.get("submitTimeBefore"))
        found = [
            job
            for job in self._service.jobs.values()
            if not job.gone
            and job.listed_from <= now
            and query.get("nameContains", "") in job.request["jobName"]
            and query.get("statusEquals", job.status) == job.status
            and (after is None or job.created_at > after)
            and (before is None or job.created_at < before)
        ]
        if query.get("sortOrder", "Descending") == "Descending":
            found.reverse()
        token = query.get("nextToken", "start")
        arns = [job.arn for job in found]
        start = arns.index(token) if token in arns else 0
        shown = found[start : start + limit]
        page: Json = {"invocationJobSummaries": [self._service.job(job.arn).to_json() for job in shown]}
        if start + limit < len(found):
            page["nextToken"] = arns[start + limit]
        return _answer(page)

    def _route(self, method: str, path: str, kind: Call, handler: Handler) -> Route:
        async def answer(request: Request) -> Response:
            try:
                _check_signature(request)
                response = await guarded(self._core, PROVIDER, kind, handler, request, _fault)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it; the request never arrived whole
            except ApiError as error:
                response = _error(error.status, error.name, error.message)
            response.headers["x-amzn-requestid"] = str(uuid.uuid4())
            return response

        return Route(path, answer, methods=[method])


def _checked(raw: bytes) -> Json:
    """The body of create. Raises `ApiError` for what the service refuses at once: shapes, patterns and ranges."""
    try:
        body: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise ApiError(400, "SerializationException", "The body is not JSON.") from None
    if not isinstance(body, dict):
        raise ApiError(400, "SerializationException", "The body is not an object.")
    if unknown := sorted(body.keys() - _MEMBERS):
        raise invalid(f"{unknown[0]} is no member of this request")
    for name in ("jobName", "roleArn", "modelId", "inputDataConfig", "outputDataConfig"):
        if not body.get(name):
            raise invalid(f"{name} is required")
    source = body["inputDataConfig"].get("s3InputDataConfig") or {}
    target = body["outputDataConfig"].get("s3OutputDataConfig") or {}
    for name, value, pattern in (
        ("jobName", body["jobName"], _JOB_NAME),
        ("clientRequestToken", body.get("clientRequestToken", "none"), _TOKEN),
        ("roleArn", body["roleArn"], _ROLE),
        ("inputDataConfig.s3Uri", source.get("s3Uri", ""), _S3_URI),
        ("outputDataConfig.s3Uri", target.get("s3Uri", ""), _S3_URI),
    ):
        if not isinstance(value, str) or len(value) > 1024 or not pattern.fullmatch(value):
            raise invalid(f"{name} does not satisfy the pattern {pattern.pattern}")
    if not 24 <= body.get("timeoutDurationInHours", 24) <= 168:
        raise invalid("timeoutDurationInHours must be between 24 and 168")
    if body.get("modelInvocationType", "InvokeModel") not in ("InvokeModel", "Converse"):
        raise invalid("modelInvocationType must be InvokeModel or Converse")
    return body


def _check_signature(request: Request) -> None:
    """Any signature of SigV4, or a Bedrock API key: they are looked for, not verified."""
    scheme = request.headers.get("authorization", "").partition(" ")[0]
    if scheme not in ("AWS4-HMAC-SHA256", "Bearer"):
        raise ApiError(403, "MissingAuthenticationTokenException", "Missing Authentication Token")


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise invalid(f"{text!r} is no timestamp") from None


def _answer(document: Json) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")


def _error(status: int, name: str, message: str, headers: dict[str, str] | None = None) -> Response:
    told = {**(headers or {}), "x-amzn-errortype": name}
    return Response(orjson.dumps({"message": message}), status_code=status, headers=told, media_type="application/json")


def _fault(status: int, headers: dict[str, str]) -> Response:
    name = _FAULTS.get(status, "InternalServerException" if status >= 500 else "ValidationException")
    return _error(status, name, f"The scenario answers this call with HTTP {status}.", headers)


async def _nowhere(request: Request) -> Response:
    return _error(404, "UnknownOperationException", f"There is nothing at {request.method} {request.url.path}.")
