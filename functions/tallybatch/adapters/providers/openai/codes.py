"""What an error code or a status means for a record or a job, as data with its source.

Sources: [guide] the vendor's Batch guide and error reference; [sdk] literals in the SDK (openai 3.57,
types/responses/response_error.py); [clone] OpenAI-compatible servers; [report] a public issue, named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tallybatch.adapters.providers.common.failures import RETRYABLE_STATUSES
from tallybatch.domain.outcomes import OutcomeClass

_ROWS: tuple[tuple[OutcomeClass, str, tuple[str, ...]], ...] = (
    (OutcomeClass.EXPIRED, "[guide] rows not executed within the window; not charged", ("batch_expired",)),
    (OutcomeClass.CANCELLED, "[clone] llm-d-batch-gateway#121; OpenAI may write no line at all", ("batch_cancelled",)),
    (
        OutcomeClass.RETRYABLE,
        "[guide] load, rate and server errors; the same request may succeed later",
        ("rate_limit_exceeded", "server_error", "internal_error", "service_unavailable", "timeout", "request_timeout"),
    ),
    (
        OutcomeClass.RETRYABLE,
        "[guide] a spend cap: nothing is wrong with the record, an operator raises the cap",
        ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "token_limit_exceeded"),
    ),
    (
        OutcomeClass.RETRYABLE,
        "[sdk] fetching something for the model failed; says nothing about the record",
        ("vector_store_timeout", "failed_to_download_image"),
    ),
    (
        OutcomeClass.PERMANENT,
        "[guide] the request itself is wrong, or the account may not make it",
        (
            "context_length_exceeded",
            "invalid_request_error",
            "invalid_api_key",
            "model_not_found",
            "unsupported_parameter",
            "unsupported_value",
            "invalid_value",
            "invalid_type",
            "missing_required_parameter",
            "string_above_max_length",
            "permission_error",
            "permission_denied",
            "authentication_error",
            "not_found_error",
        ),
    ),
    (
        OutcomeClass.PERMANENT,
        "[sdk] response errors about the input",
        (
            "invalid_prompt",
            "data_residency_mismatch",
            "invalid_image",
            "invalid_image_format",
            "invalid_base64_image",
            "invalid_image_url",
            "invalid_image_mode",
            "image_too_large",
            "image_too_small",
            "image_parse_error",
            "image_file_too_large",
            "image_file_not_found",
            "unsupported_image_media_type",
            "empty_image_file",
        ),
    ),
    (
        OutcomeClass.REFUSED,
        "[sdk] [guide] a policy or a filter declined",
        (
            "content_filter",
            "content_policy_violation",
            "image_content_policy_violation",
            "moderation_blocked",
            "bio_policy",
            "misalignment_policy_violation",
        ),
    ),
)

RECORD_CODES: Mapping[str, OutcomeClass] = {code: outcome for outcome, _, codes in _ROWS for code in codes}
SOURCES: Mapping[str, str] = {code: source for _, source, codes in _ROWS for code in codes}

QUOTA_CODES = frozenset({"token_limit_exceeded"})
"""Job level: no room for more enqueued prompt tokens. Told minutes after create ([report] openai-python#2084)."""

SPEND_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
"""A spend cap. Waiting does not help: an operator has to raise it."""

_FILE_CODES = frozenset(
    {
        "invalid_json_line",
        "missing_required_parameter",
        "invalid_request",
        "invalid_method",
        "invalid_url",
        "url_mismatch",
        "streaming_unsupported",
        "duplicate_custom_id",
        "mismatched_model",
        "model_mismatch",
        "model_not_found",
        "empty_file",
        "empty_batch",
        "too_many_tasks",
    }
)
"""Job level: what asynchronous validation finds wrong with the file itself ([guide]; [clone] and Azure's spellings).
A file that "cannot be found" is not among them: seen to pass by itself."""


def job_failure(codes: Collection[str]) -> OutcomeClass | None:
    """The class of all records of a job that failed as a whole with these codes; None where the same file may do better
    in another job (also for codes that nobody knows: the retry policy bounds that)."""
    if not _FILE_CODES.isdisjoint(codes):
        return OutcomeClass.PERMANENT
    return OutcomeClass.RETRYABLE if not SPEND_CODES.isdisjoint(codes) else None


def classify(status: int | None, code: str, kind: str) -> OutcomeClass | None:
    """The class of a failed record. `kind` is the error object's `type`.

    A known code decides, then an HTTP error status, then a known type. None for what nobody knows.
    """
    known = RECORD_CODES.get(code)
    if known is not None:
        return known
    if status is not None and 400 <= status < 500 and status not in RETRYABLE_STATUSES:
        return OutcomeClass.PERMANENT
    if status is not None and (status >= 500 or status in RETRYABLE_STATUSES):
        return OutcomeClass.RETRYABLE
    return RECORD_CODES.get(kind)
