"""What a status, a finish reason or a block means for a record or a job, as data with its source.

Sources: [rpc] google.rpc.Code, with the vendor's advice on what may be repeated; [sdk] enums of google-genai 3.6
(types.FinishReason, types.BlockedReason); [guide] the vendor's Batch guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tallybatch.adapters.providers.common.failures import may_pass
from tallybatch.domain.outcomes import OutcomeClass

_O = OutcomeClass


class Code(NamedTuple):
    name: str
    outcome: OutcomeClass
    source: str


RPC_CODES: Mapping[int, Code] = {
    1: Code("CANCELLED", _O.CANCELLED, "[rpc] cancelled, by the provider or with the job"),
    2: Code("UNKNOWN", _O.RETRYABLE, "[rpc] says nothing about the request"),
    3: Code("INVALID_ARGUMENT", _O.PERMANENT, "[rpc] wrong whatever the state of the system"),
    4: Code("DEADLINE_EXCEEDED", _O.RETRYABLE, "[rpc] out of time"),
    5: Code("NOT_FOUND", _O.PERMANENT, "[rpc] a model or a file that the request names is not there"),
    6: Code("ALREADY_EXISTS", _O.PERMANENT, "[rpc] not to be repeated"),
    7: Code("PERMISSION_DENIED", _O.PERMANENT, "[rpc] the account may not make this request"),
    8: Code("RESOURCE_EXHAUSTED", _O.RETRYABLE, "[rpc] [guide] quota or capacity"),
    9: Code("FAILED_PRECONDITION", _O.PERMANENT, "[rpc] [guide] e.g. billing or region of the project"),
    10: Code("ABORTED", _O.RETRYABLE, "[rpc] repeat at a higher level"),
    11: Code("OUT_OF_RANGE", _O.PERMANENT, "[rpc] a value outside its range, e.g. more tokens than the context has"),
    12: Code("UNIMPLEMENTED", _O.PERMANENT, "[rpc] the model has no such method"),
    13: Code("INTERNAL", _O.RETRYABLE, "[rpc] a fault of the provider"),
    14: Code("UNAVAILABLE", _O.RETRYABLE, "[rpc] a fault that passes"),
    15: Code("DATA_LOSS", _O.RETRYABLE, "[rpc] a fault of the provider"),
    16: Code("UNAUTHENTICATED", _O.PERMANENT, "[rpc] no valid key"),
}
BY_NAME: Mapping[str, Code] = {code.name: code for code in RPC_CODES.values()}

_FINISHES: tuple[tuple[OutcomeClass, str, tuple[str, ...]], ...] = (
    (_O.SUCCEEDED, "[sdk] a natural end or a stop sequence; absent: an enum's zero is left out", ("STOP", "")),
    (_O.TRUNCATED, "[sdk] the token limit of the request", ("MAX_TOKENS", "CONTINUATION")),
    (
        _O.REFUSED,
        "[sdk] a policy or a filter declined",
        (
            "SAFETY",
            "RECITATION",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "ESCALATION",
            "MODEL_ARMOR",
        ),
    ),
    (_O.PERMANENT, "[sdk] the request itself is wrong for this model", ("LANGUAGE", "MISSING_THOUGHT_SIGNATURE")),
    (
        _O.RETRYABLE,
        "[sdk] the model lost its way, or the account is at fault; another try may do",
        (
            "OTHER",
            "MALFORMED_FUNCTION_CALL",
            "MALFORMED_RESPONSE",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "IMAGE_OTHER",
            "NO_IMAGE",
            "PUP_LIMITED_DISABLED",
        ),
    ),
)
FINISH_REASONS: Mapping[str, OutcomeClass] = {name: outcome for outcome, _, names in _FINISHES for name in names}
FINISH_SOURCES: Mapping[str, str] = {name: source for _, source, names in _FINISHES for name in names}

JOB_FAILURES: Mapping[str, OutcomeClass] = {
    "INVALID_ARGUMENT": _O.PERMANENT,
    "OUT_OF_RANGE": _O.PERMANENT,
    "UNIMPLEMENTED": _O.PERMANENT,
    "FAILED_PRECONDITION": _O.RETRYABLE,
    "PERMISSION_DENIED": _O.RETRYABLE,
    "UNAUTHENTICATED": _O.RETRYABLE,
}
"""Of a job that failed as a whole and would fail again as it is: the file is wrong (PERMANENT), or an operator has to
mend the account (RETRYABLE). Any other code may pass by itself."""

QUOTA_JOB_CODES = frozenset({"RESOURCE_EXHAUSTED"})


def code_name(code: int, status: str) -> str:
    """The canonical name of a status; "" if it has none. `status` is the name if the provider sent one."""
    if status in BY_NAME:
        return status
    known = RPC_CODES.get(code)
    return known.name if known is not None else status


def classify(code: int, status: str) -> OutcomeClass | None:
    """The class of a failed record. `code` is a google.rpc.Code, or an HTTP status from 400 on; 0 if there was none.
    None for what nobody knows."""
    known = BY_NAME.get(status) or RPC_CODES.get(code)
    if known is not None:
        return known.outcome
    if code < 400:
        return None
    return _O.RETRYABLE if may_pass(code) else _O.PERMANENT
