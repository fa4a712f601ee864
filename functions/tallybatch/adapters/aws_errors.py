"""What the AWS adapters share: error codes, and the translation of transport faults into our own errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from tallybatch.domain.errors import Permanent, Retryable

BUSY_CODES = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",
    }
)
"""Codes after which the same call may succeed later, in the spelling of each service's API reference."""

DENIED_CODES = frozenset({"AccessDenied", "AccessDeniedException", "403"})


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def is_busy(error: Exception) -> bool:
    """Whether a call failed in a way that says nothing about its content: throttled, 5xx, or no answer at all."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return error_code(error) in BUSY_CODES or status >= 500
    return isinstance(error, HTTPClientError | NoConnection)


@contextmanager
def calling(where: str, busy: type[Retryable] = Retryable) -> Iterator[None]:
    """Run AWS calls about `where`: what is left after the SDK's own retries becomes `busy` if it may pass with time and
    `Permanent` if access is denied. Other answers are raised as they came."""
    try:
        yield
    except (ClientError, HTTPClientError, NoConnection) as error:
        if is_busy(error):
            raise busy(
                "AWS did not carry out the call", where=where, why=str(error), do="the same call may be repeated later"
            ) from error
        if isinstance(error, ClientError) and error_code(error) in DENIED_CODES:
            raise Permanent(
                "AWS denied access",
                where=where,
                why=str(error),
                do="grant this function's role the action on this resource and on its KMS key",
            ) from error
        raise
