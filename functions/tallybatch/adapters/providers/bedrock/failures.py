"""What a failed call to Bedrock's control plane means: botocore's exceptions turned into ours.

Of the service's words only the error code, the request id and, for refusals, a shortened message are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
)

from tallybatch.adapters.aws_errors import error_code
from tallybatch.adapters.providers.common.failures import (
    ACCOUNT_STATUSES,
    RETRYABLE_STATUSES,
    create_unknown,
    retry_after_s,
    scrubbed,
)
from tallybatch.domain.errors import (
    Permanent,
    ProviderRefused,
    ProviderUnavailable,
    QuotaRefused,
    TallybatchError,
)

NOT_FOUND = "ResourceNotFoundException"
CONFLICT = "ConflictException"

_QUOTA = frozenset({"ServiceQuotaExceededException", "ThrottlingException", "TooManyRequestsException"})
_ACCOUNT = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "NotAuthorized",
        "OptInRequired",
        "UnrecognizedClientException",
    }
)
"""Common errors of AWS's APIs about the caller (IAM, "Common errors"); some of them come with HTTP 400."""
_BUSY_400 = frozenset({*_QUOTA, "RequestTimeout", "RequestTimeoutException"})
_NEVER_SENT = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)
_OURS_TO_MEND = (NoCredentialsError, NoRegionError, ParamValidationError, PartialCredentialsError)


def call_failure(error: Exception, where: str) -> TallybatchError:
    """For a call that may be repeated: `ProviderUnavailable`, or `ProviderRefused` for what stays refused."""
    if isinstance(error, _OURS_TO_MEND):
        return _misconfigured(error, where)
    if isinstance(error, ClientError) and 400 <= _status(error) < 500 and not _is_busy(error):
        return _refused("Bedrock refused the call", where, error)
    return ProviderUnavailable("Bedrock did not answer", where=where, why=_why(error), do="repeat the call later")


def create_failure(error: Exception, where: str) -> TallybatchError:
    """For create, which may have happened although it failed. A ConflictException is not judged here: look first.

    `QuotaRefused` and `ProviderRefused` only for answers that say that this call created nothing; `ProviderUnavailable`
    only if the request provably never left; `CreateUnknown` for everything else.
    """
    if isinstance(error, _OURS_TO_MEND):
        return _misconfigured(error, where)
    if isinstance(error, _NEVER_SENT):
        return ProviderUnavailable(
            "Bedrock could not be reached; create was not sent", where=where, why=_why(error), do="try again later"
        )
    if isinstance(error, ClientError):
        if error_code(error) in _QUOTA or _status(error) == 429:
            return QuotaRefused(
                "Bedrock refused create for lack of quota",
                retry_after_s=retry_after_s(_headers(error)),
                where=where,
                why=_why(error),
            )
        if 400 <= _status(error) < 500 and not _is_busy(error):
            return _refused("Bedrock refused to create the job", where, error)
    return create_unknown(where, _why(error))


def _refused(what: str, where: str, error: ClientError) -> ProviderRefused:
    account = _status(error) in ACCOUNT_STATUSES or error_code(error) in _ACCOUNT
    return ProviderRefused(what, account=account, where=where, why=_why(error), do=_advice(error))


def _misconfigured(error: Exception, where: str) -> Permanent:
    return Permanent(
        "the call to Bedrock cannot be made",
        where=where,
        why=type(error).__name__,
        do="check the function's role, region and settings",
    )


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _headers(error: ClientError) -> Mapping[str, str]:
    headers: Mapping[str, str] = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers


def _is_busy(error: ClientError) -> bool:
    return error_code(error) in _BUSY_400 or _status(error) in RETRYABLE_STATUSES


def _why(error: Exception) -> str:
    if not isinstance(error, ClientError):
        return type(error).__name__
    told = error.response.get("ResponseMetadata", {})
    parts = [f"HTTP {_status(error)}", error_code(error), f"request {told.get('RequestId', '')}"]
    if 400 <= _status(error) < 500:
        parts.append(scrubbed(str(error.response.get("Error", {}).get("Message", ""))))
    return ", ".join(part for part in parts if part.strip() and part != "request ")


def _advice(error: ClientError) -> str:
    if _status(error) == 403 or "not authorized" in str(error):
        return "check the function's role, iam:PassRole, and the account's access to the model"
    return "correct the request or the account; the same call will fail again"


CALL_ERRORS = (ClientError, BotoCoreError)
"""All that botocore raises for a call."""
