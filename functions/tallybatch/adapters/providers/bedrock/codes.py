"""What a record's error code, a stop reason or a job's failure message means, as data with its source.

Sources: [sdk] botocore's bedrock and bedrock-runtime models (exceptions, StopReason); [guide] user guide, batch
inference; [anthropic] Messages API; [words] message texts from public reports, which no document fixes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tallybatch.adapters.providers.common.failures import may_pass
from tallybatch.domain.outcomes import OutcomeClass

_ERRORS: Mapping[str, OutcomeClass] = {
    # [sdk] exceptions of InvokeModel and Converse
    "ThrottlingException": OutcomeClass.RETRYABLE,
    "InternalServerException": OutcomeClass.RETRYABLE,
    "ServiceUnavailableException": OutcomeClass.RETRYABLE,
    "ModelTimeoutException": OutcomeClass.RETRYABLE,
    "ModelNotReadyException": OutcomeClass.RETRYABLE,
    "ModelErrorException": OutcomeClass.RETRYABLE,
    "ServiceQuotaExceededException": OutcomeClass.RETRYABLE,
    "ValidationException": OutcomeClass.PERMANENT,
    "AccessDeniedException": OutcomeClass.PERMANENT,
    "ResourceNotFoundException": OutcomeClass.PERMANENT,
    "ConflictException": OutcomeClass.PERMANENT,
}

STOP_REASONS: Mapping[str, OutcomeClass] = {
    # [sdk] StopReason
    "end_turn": OutcomeClass.SUCCEEDED,
    "stop_sequence": OutcomeClass.SUCCEEDED,
    "tool_use": OutcomeClass.SUCCEEDED,
    "max_tokens": OutcomeClass.TRUNCATED,
    "model_context_window_exceeded": OutcomeClass.TRUNCATED,
    "guardrail_intervened": OutcomeClass.REFUSED,
    "content_filtered": OutcomeClass.REFUSED,
    "malformed_model_output": OutcomeClass.RETRYABLE,
    "malformed_tool_use": OutcomeClass.RETRYABLE,
    # [anthropic]
    "refusal": OutcomeClass.REFUSED,
    "pause_turn": OutcomeClass.RETRYABLE,
}
"""Any other reason with an answer is a success: a new word says nothing against the answer."""

BELOW_MINIMUM = "below_minimum"
ACCESS_DENIED = "access_denied"

_JOB_FAILURES: tuple[tuple[re.Pattern[str], str, OutcomeClass], ...] = (
    (re.compile(r"(less|fewer) records|minimum", re.IGNORECASE), BELOW_MINIMUM, OutcomeClass.RETRYABLE),
    (
        re.compile(r"(more|many) records|maximum|exceed|too large", re.IGNORECASE),
        "above_maximum",
        OutcomeClass.PERMANENT,
    ),
    (re.compile(r"access|permission|not authorized|role\b", re.IGNORECASE), ACCESS_DENIED, OutcomeClass.RETRYABLE),
    (re.compile(r"json|malformed|format", re.IGNORECASE), "invalid_input", OutcomeClass.PERMANENT),
)
"""[words] Which of them are the records' fault: a role is mended by an operator, a missing record is not."""


def error_class(code: str) -> OutcomeClass | None:
    """`code` is a number in the documented example, and may be a name. None for what nobody knows."""
    if code.isascii() and code.isdigit():
        return OutcomeClass.RETRYABLE if may_pass(int(code)) else OutcomeClass.PERMANENT
    return _ERRORS.get(code)


def job_failure(message: str) -> tuple[str, OutcomeClass | None]:
    """Code and class of all records for the `message` of a job that failed as a whole; unknown words: `failed` and no
    class, for the same records may do better in another job."""
    for words, code, failure in _JOB_FAILURES:
        if words.search(message):
            return code, failure
    return "failed", None
