"""What a failed call to OpenAI means: the SDK's exceptions turned into ours.

No text here holds a prompt, an answer or a key: of the provider's words only the code, the request id and a scrubbed
message of refusals are kept, and of the SDK's exception only its class name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tallybatch.adapters.providers.common.failures import (
    ACCOUNT_STATUSES,
    REFUSED_CREATE_STATUSES,
    create_unknown,
    may_pass,
    never_connected,
    retry_after_s,
    scrubbed,
)
from tallybatch.adapters.providers.openai.codes import SPEND_CODES
from tallybatch.domain.errors import ProviderRefused, ProviderUnavailable, QuotaRefused, TallybatchError

if TYPE_CHECKING:
    import openai


def call_failure(error: openai.APIError, where: str) -> TallybatchError:
    """For a call that may be repeated: `ProviderUnavailable` or `ProviderRefused`."""
    status = _status(error)
    if status is None or may_pass(status):
        return ProviderUnavailable("OpenAI did not answer", where=where, why=_why(error), do="repeat the call later")
    return _refused("OpenAI refused the call", where, status, error)


def create_failure(error: openai.APIError, where: str) -> TallybatchError:
    """For create, which may have happened although it failed.

    `QuotaRefused` and `ProviderRefused` only for answers that say that nothing was created; `ProviderUnavailable` only
    if the request provably never left; `CreateUnknown` for everything else, redirects and 2xx of no meaning included.
    """
    status = _status(error)
    if status is None and never_connected(error.__cause__, error.request):
        return ProviderUnavailable(
            "OpenAI could not be reached; create was not sent", where=where, why=_why(error), do="try again later"
        )
    if status == 429 and not _is_spend_cap(error):
        return QuotaRefused(
            "OpenAI refused create for lack of quota",
            retry_after_s=retry_after_s(_headers(error)),
            where=where,
            why=_why(error),
        )
    if status == 429 or status in REFUSED_CREATE_STATUSES:
        return _refused("OpenAI refused to create the job", where, status, error)
    return create_unknown(where, _why(error))


def _refused(what: str, where: str, status: int | None, error: openai.APIError) -> ProviderRefused:
    account = status in ACCOUNT_STATUSES or _is_spend_cap(error)
    return ProviderRefused(what, account=account, where=where, why=_why(error), do=_advice(status, error))


def _status(error: openai.APIError) -> int | None:
    import openai

    return error.status_code if isinstance(error, openai.APIStatusError) else None


def _headers(error: openai.APIError) -> Mapping[str, str]:
    import openai

    return error.response.headers if isinstance(error, openai.APIStatusError) else {}


def _words(error: openai.APIError) -> list[str]:
    """The error object's code and type, as far as they are words."""
    return [word for word in (error.code, error.type) if isinstance(word, str) and word]


def _is_spend_cap(error: openai.APIError) -> bool:
    return not SPEND_CODES.isdisjoint(_words(error))


def _why(error: openai.APIError) -> str:
    status = _status(error)
    if status is None:
        cause = error.__cause__
        return type(error).__name__ + (f" after {type(cause).__name__}" if cause is not None else "")
    parts = [f"HTTP {status}"]
    words = _words(error)
    if words:
        parts.append(scrubbed(words[0]))
    request_id = _headers(error).get("x-request-id", "")
    if request_id:
        parts.append(f"request {scrubbed(request_id)}")
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    if isinstance(message, str) and status in (400, 403, 404, 413, 422, 429):
        parts.append(scrubbed(message))
    return ", ".join(parts)


def _advice(status: int | None, error: openai.APIError) -> str:
    if status == 401:
        return "check the API key in the secret"
    if _is_spend_cap(error):
        return "raise the account's spend limit, then resume the job"
    if status == 403:
        return "check what the key's project may do"
    return "correct the request or the account; the same call will fail again"
