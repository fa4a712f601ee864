"""Failed calls of any provider: what may be repeated, what says that nothing was created, and words fit to be kept."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from tallybatch.domain.errors import AnswerUnknown, CreateUnknown

if TYPE_CHECKING:
    import httpx2

MAX_WHY_CHARS = 300
RETRYABLE_STATUSES = frozenset({0, 408, 409, 425, 429, 499})
"""Below 500. 0: seen in error files whose job counts no failure ([report] tidyverse/ellmer#830)."""
RECORD_STATUSES = frozenset({400, 413, 422})
"""Answers to a synchronous call that are about its request alone."""
REFUSED_CREATE_STATUSES = frozenset({400, 401, 402, 403, 404, 405, 410, 413, 414, 415, 422, 431, 451})
"""Answers to create that say that nothing was created. Every other failure leaves that open."""
ACCOUNT_STATUSES = frozenset({401, 402, 403, 407})
"""The key, its rights or its bill are refused, not the request."""

_SECRET = re.compile(r"\b(?:sk|sess|rk)-[\w*.-]+|\bAIza[\w*.-]+|Bearer\s+\S+", re.IGNORECASE)


def scrubbed(message: str) -> str:
    """At most 300 characters, without anything that looks like a key (also a masked one)."""
    return _SECRET.sub("[key]", message)[:MAX_WHY_CHARS]


def may_pass(status: int) -> bool:
    """Whether the same call may succeed later."""
    return status < 400 or status >= 500 or status in RETRYABLE_STATUSES


def create_unknown(where: str, why: str) -> CreateUnknown:
    return CreateUnknown(
        "create was sent, and no trustworthy answer came back",
        where=where,
        why=why,
        do="look for the submission_key in the provider's job list before anything is created again",
    )


def answer_unknown(where: str, why: str, reply: bytes = b"") -> AnswerUnknown:
    return AnswerUnknown("the call was sent, and no answer came that counts", reply=reply, where=where, why=why)


def never_connected(error: BaseException | None, request: httpx2.Request | None = None) -> bool:
    """Whether a failure proves that no byte of the request left: no connection came to be. With `request`, only for
    that one: after a redirect the failed request is another one, and the first may have created the job."""
    import httpx2

    if not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return False
    return request is None or error.request is request


def retry_after_s(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """The provider's advice in seconds: `retry-after-ms`, or `retry-after` as seconds or as an HTTP date."""
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name, "")
        try:
            seconds = float(value) / per_second
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, moment - (time.time() if now is None else now))


def is_api_answer(response: httpx2.Response) -> bool:
    """Whether an error came from the API itself (`{"error": …}`) and not from something on the way to it."""
    try:
        body = response.json()
    except ValueError:
        return False
    return isinstance(body, dict) and bool(body.get("error"))
