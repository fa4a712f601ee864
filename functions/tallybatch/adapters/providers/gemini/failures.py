"""What a failed call to Gemini means: errors of the SDK and of plain HTTP turned into ours.

No text here holds a prompt, an answer or a key: of the provider's words only the status, its name and a scrubbed
message of refusals are kept, and of an exception only its class name. The SDK's own errors carry the whole reply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tallybatch.adapters.providers.common.failures import (
    ACCOUNT_STATUSES,
    REFUSED_CREATE_STATUSES,
    create_unknown,
    may_pass,
    never_connected,
    retry_after_s,
    scrubbed,
)
from tallybatch.adapters.providers.gemini.codes import code_name
from tallybatch.domain.errors import ProviderRefused, ProviderUnavailable, QuotaRefused, TallybatchError

if TYPE_CHECKING:
    import httpx2

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


@dataclass(frozen=True, slots=True)
class Told:
    """What an error says. `status` is the HTTP status, None if no answer came; `own`: it is the API's own answer."""

    status: int | None
    kind: str
    name: str = ""
    message: str = ""
    retry_after_s: float | None = None
    own: bool = False

    @property
    def why(self) -> str:
        if self.status is None:
            return self.kind
        parts = [f"HTTP {self.status}", scrubbed(self.name)]
        if self.status in (400, 403, 404, 413, 429):
            parts.append(scrubbed(self.message))
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class _Status:
    """The `error` member of a reply: a google.rpc.Status."""

    name: str = ""
    message: str = ""
    details: list[Any] = field(default_factory=list)


def told_by(error: Exception) -> Told:
    """`error` is one of httpx2's, or one of the SDK's that wraps a reply."""
    import httpx2

    if isinstance(error, httpx2.HTTPStatusError):
        return told_by_reply(error.response)
    reply = getattr(error, "response", None)
    if isinstance(reply, httpx2.Response):
        return told_by_reply(reply)
    return Told(None, type(error).__name__)


def told_by_reply(reply: httpx2.Response) -> Told:
    status = _status(reply)
    known = status or _Status()
    return Told(
        reply.status_code,
        "HTTP",
        known.name,
        known.message,
        _advised_pause_s(reply.headers, known.details),
        own=status is not None,
    )


def call_failure(told: Told, where: str) -> TallybatchError:
    """For a call that may be repeated: `ProviderUnavailable` or `ProviderRefused`."""
    if told.status is None or may_pass(told.status):
        return ProviderUnavailable("Gemini did not answer", where=where, why=told.why, do="repeat the call later")
    return _refused("Gemini refused the call", where, told)


def create_failure(error: Exception, where: str) -> TallybatchError:
    """For create, which may have happened although it failed.

    `QuotaRefused` and `ProviderRefused` only for answers that say that nothing was created; `ProviderUnavailable` only
    if the request provably never left; `CreateUnknown` for everything else, redirects and 2xx of no meaning included.
    A 429 does not tell which quota it is about: concurrent jobs, enqueued tokens, storage or rate.
    """
    told = told_by(error)
    if told.status is None and never_connected(error):
        return ProviderUnavailable(
            "Gemini could not be reached; create was not sent", where=where, why=told.why, do="try again later"
        )
    if told.status == 429:
        return QuotaRefused(
            "Gemini refused create for lack of quota", retry_after_s=told.retry_after_s, where=where, why=told.why
        )
    if told.status in REFUSED_CREATE_STATUSES:
        return _refused("Gemini refused to create the job", where, told)
    return create_unknown(where, told.why)


def _refused(what: str, where: str, told: Told) -> ProviderRefused:
    """Gemini says of a wrong key, and of a project without billing, that the request is a bad one."""
    account = told.status in ACCOUNT_STATUSES or told.name == "FAILED_PRECONDITION" or "API key" in told.message
    return ProviderRefused(what, account=account, where=where, why=told.why, do=_advice(told))


def _advice(told: Told) -> str:
    if told.status == 401 or "API key" in told.message:
        return "check the API key in the secret"
    if told.status == 403 or told.name == "FAILED_PRECONDITION":
        return "check what the key's project may do, and its billing"
    return "correct the request or the account; the same call will fail again"


def _status(reply: httpx2.Response) -> _Status | None:
    try:
        body = reply.json()
    except ValueError:
        return None
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not error:
        return None
    code, status, details = error.get("code"), error.get("status"), error.get("details")
    name = code_name(code if isinstance(code, int) else 0, status if isinstance(status, str) else "")
    return _Status(name, str(error.get("message") or ""), details if isinstance(details, list) else [])


def _advised_pause_s(headers: Mapping[str, str], details: list[Any]) -> float | None:
    """From a header, or from a google.rpc.RetryInfo among the details (`"retryDelay": "30s"`)."""
    advised = retry_after_s(headers)
    if advised is not None:
        return advised
    for detail in details:
        delay = _SECONDS.fullmatch(str(detail.get("retryDelay", ""))) if isinstance(detail, dict) else None
        if delay is not None:
            return float(delay[1])
    return None
