"""Every code of the contract sheet has its class, as data with a source; any other is told from the known ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tallybatch.adapters.providers.bedrock import codes as bedrock
from tallybatch.adapters.providers.bedrock.results import Reader
from tallybatch.adapters.providers.gemini import codes as gemini
from tallybatch.adapters.providers.gemini.results import parse as parse_gemini
from tallybatch.adapters.providers.openai import codes as openai
from tallybatch.adapters.providers.openai.results import parse as parse_openai
from tallybatch.domain.outcomes import RecordResult

ID = "0" * 32
OPENAI_RECORDS = {
    "retryable": "rate_limit_exceeded server_error",
    "expired": "batch_expired",
    "cancelled": "batch_cancelled",
    "permanent": "context_length_exceeded invalid_request_error model_not_found permission_denied",
    "refused": "content_filter content_policy_violation",
}
OPENAI_FILES = (
    "invalid_json_line missing_required_parameter invalid_request invalid_method invalid_url url_mismatch "
    "streaming_unsupported duplicate_custom_id mismatched_model model_mismatch model_not_found empty_file empty_batch "
    "too_many_tasks"
)
BEDROCK_STOPS = {
    "succeeded": "end_turn tool_use stop_sequence",
    "truncated": "max_tokens model_context_window_exceeded",
    "refused": "guardrail_intervened content_filtered",
    "retryable": "malformed_model_output malformed_tool_use",
}
BEDROCK_ERRORS = {
    "retryable": "ThrottlingException InternalServerException ServiceUnavailableException ModelTimeoutException "
    "ModelNotReadyException ModelErrorException 429 500 503 408",
    "permanent": "ValidationException AccessDeniedException ResourceNotFoundException 400 401 403 404",
}
GEMINI_FINISHES = {
    "succeeded": "STOP",
    "truncated": "MAX_TOKENS",
    "refused": "SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII",
    "permanent": "LANGUAGE",
    "retryable": "OTHER MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL",
}


def rows(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(code, name) for name, codes in table.items() for code in codes.split()]


@pytest.mark.parametrize(("code", "name"), rows(OPENAI_RECORDS))
def test_given_a_code_of_openai_when_looked_up_then_it_has_its_class_and_a_source(code: str, name: str) -> None:
    outcome = openai.classify(None, code, "")
    assert outcome is not None
    assert outcome.value == name
    assert openai.SOURCES[code].startswith("[")


@pytest.mark.parametrize("code", OPENAI_FILES.split())
def test_given_a_file_that_openai_refuses_when_looked_up_then_its_records_are_permanent(code: str) -> None:
    failure = openai.job_failure([code])
    assert failure is not None
    assert failure.value == "permanent"


@pytest.mark.parametrize(("code", "name"), rows(BEDROCK_ERRORS))
def test_given_a_code_of_bedrock_when_looked_up_then_it_has_its_class(code: str, name: str) -> None:
    outcome = bedrock.error_class(code)
    assert outcome is not None
    assert outcome.value == name


@pytest.mark.parametrize(("code", "name"), rows(BEDROCK_STOPS))
def test_given_a_stop_reason_of_bedrock_when_looked_up_then_it_has_its_class(code: str, name: str) -> None:
    assert bedrock.STOP_REASONS[code].value == name


@pytest.mark.parametrize(("code", "name"), rows(GEMINI_FINISHES))
def test_given_a_finish_reason_of_gemini_when_looked_up_then_it_has_its_class_and_a_source(
    code: str, name: str
) -> None:
    assert gemini.FINISH_REASONS[code].value == name
    assert gemini.FINISH_SOURCES[code].startswith("[")


def test_given_the_canonical_codes_when_looked_up_then_all_sixteen_have_a_class_and_a_source() -> None:
    assert sorted(gemini.RPC_CODES) == list(range(1, 17))
    assert all(code.source.startswith("[rpc]") for code in gemini.RPC_CODES.values())


def openai_line(*, error: Any = None, response: Any = None) -> RecordResult:
    return parse_openai(json.dumps({"custom_id": ID, "response": response, "error": error}).encode())


def failed(status: int, code: str) -> dict[str, Any]:
    return {"status_code": status, "request_id": "r", "body": {"error": {"code": code, "message": "m"}}}


def bedrock_line(error: Any) -> RecordResult:
    return Reader("m").parse(json.dumps({"recordId": ID, "error": error}).encode())


def gemini_line(**fields: Any) -> RecordResult:
    return parse_gemini(json.dumps({"key": ID, **fields}).encode())


INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "quantum_flux"}, "output": []}
UNKNOWN = {
    "openai error": openai_line(error={"code": "quantum_flux", "message": "m"}),
    "openai type": openai_line(error={"type": "quantum_flux"}),
    "openai incomplete": openai_line(response={"status_code": 200, "request_id": "r", "body": INCOMPLETE}),
    "bedrock": bedrock_line({"errorCode": "QuantumFluxException", "errorMessage": "m"}),
    "gemini status": gemini_line(error={"code": 99, "status": "QUANTUM_FLUX"}),
    "gemini number": gemini_line(error={"code": 99}),
    "gemini finish": gemini_line(response={"candidates": [{"finishReason": "QUANTUM_FLUX"}]}),
}
KNOWN = {
    "openai code": openai_line(error={"code": "batch_expired"}),
    "openai status": openai_line(response=failed(503, "quantum_flux")),
    "openai status 4xx": openai_line(response=failed(400, "quantum_flux")),
    "openai status 0": openai_line(response={"status_code": 0, "request_id": "", "body": {}}),
    "openai nothing": openai_line(),
    "openai no words": openai_line(error={"message": "m"}),
    "openai no answer": openai_line(response={"status_code": 200, "request_id": "r", "body": {"output": []}}),
    "bedrock number": bedrock_line({"errorCode": 500}),
    "bedrock name": bedrock_line({"errorCode": "ThrottlingException"}),
    "bedrock words": bedrock_line("something"),
    "gemini code": gemini_line(error={"code": 13}),
    "gemini http": gemini_line(error={"code": 503}),
    "gemini nothing": gemini_line(),
    "gemini no answer": gemini_line(response={"candidates": []}),
    "gemini other": gemini_line(response={"candidates": [{"finishReason": "OTHER"}]}),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_given_a_code_in_no_table_when_read_then_it_may_pass_and_is_marked(name: str) -> None:
    result = UNKNOWN[name]
    assert (result.outcome.value, result.unknown_code) == ("retryable", True)
    assert result.code.lower() in ("quantum_flux", "quantumfluxexception", "code_99")


@pytest.mark.parametrize("name", KNOWN)
def test_given_a_code_or_status_that_decides_when_read_then_it_is_not_marked(name: str) -> None:
    assert not KNOWN[name].unknown_code
