"""Lines of Gemini result files: what each shape means for its record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from tallybatch.adapters.providers.gemini.codes import FINISH_REASONS, FINISH_SOURCES, RPC_CODES
from tallybatch.adapters.providers.gemini.results import parse
from tallybatch.domain.outcomes import OutcomeClass, RecordResult, Usage

KEY = "0" * 32
USAGE = {
    "promptTokenCount": 9,
    "candidatesTokenCount": 2,
    "thoughtsTokenCount": 120,
    "cachedContentTokenCount": 4,
    "toolUsePromptTokenCount": 3,
    "totalTokenCount": 134,
}


def line(**fields: Any) -> bytes:
    return json.dumps({"key": KEY, **fields}).encode()


def candidate(*parts: Any, finish: str | None = "STOP") -> dict[str, Any]:
    shown: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {**shown, "finishReason": finish} if finish is not None else shown


def answered(*parts: Any, finish: str | None = "STOP", **more: Any) -> RecordResult:
    return parse(line(response={"candidates": [candidate(*parts, finish=finish)], **more}))


def test_given_an_answer_when_parsed_then_text_usage_model_and_request_id() -> None:
    result = answered({"text": "po"}, {"text": "ng"}, usageMetadata=USAGE, modelVersion="models/g-1", responseId="aB3x")
    assert result == RecordResult(
        KEY,
        OutcomeClass.SUCCEEDED,
        "pong",
        finish_reason="STOP",
        model_version="g-1",
        request_id="aB3x",
        usage=Usage(input=12, cached_input=4, output=122, reasoning=120),
    )


def test_given_counters_as_texts_or_left_out_when_parsed_then_numbers_and_zeros() -> None:
    result = answered({"text": "x"}, usageMetadata={"promptTokenCount": "9"})
    assert result.usage == Usage(input=9)


def test_given_thoughts_among_the_parts_when_parsed_then_they_are_no_answer() -> None:
    assert answered({"text": "let me see", "thought": True}, {"text": "pong"}).answer == "pong"
    assert answered({"text": "let me see", "thought": True}).code == "no_answer"


def test_given_a_tool_call_when_parsed_then_its_json_is_the_answer() -> None:
    result = answered({"functionCall": {"name": "label", "args": {"genre": "War"}}})
    assert json.loads(result.answer or "") == [{"name": "label", "args": {"genre": "War"}}]


@pytest.mark.parametrize(
    ("finish", "outcome", "answer"),
    [
        ("STOP", OutcomeClass.SUCCEEDED, "x"),
        (None, OutcomeClass.SUCCEEDED, "x"),
        ("MAX_TOKENS", OutcomeClass.TRUNCATED, "x"),
        ("SAFETY", OutcomeClass.REFUSED, None),
        ("RECITATION", OutcomeClass.REFUSED, None),
        ("LANGUAGE", OutcomeClass.PERMANENT, None),
        ("MALFORMED_RESPONSE", OutcomeClass.RETRYABLE, None),
        ("A_WORD_OF_TOMORROW", OutcomeClass.RETRYABLE, None),
    ],
)
def test_given_a_finish_reason_when_parsed_then_its_class(
    finish: str | None, outcome: OutcomeClass, answer: str | None
) -> None:
    result = answered({"text": "x"}, finish=finish)
    assert (result.outcome, result.answer, result.finish_reason) == (outcome, answer, finish or "")


def test_given_the_finish_reasons_of_the_sdk_when_compared_then_each_has_a_class_and_a_source() -> None:
    known = {reason.value for reason in types.FinishReason} - {"FINISH_REASON_UNSPECIFIED"}
    assert known == FINISH_REASONS.keys() - {""} == FINISH_SOURCES.keys() - {""}


def test_given_a_blocked_prompt_when_parsed_then_refused_and_paid_for() -> None:
    result = parse(
        line(response={"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}})
    )
    assert (result.outcome, result.code, result.usage) == (OutcomeClass.REFUSED, "SAFETY", Usage(input=3))


@pytest.mark.parametrize("response", [{}, {"candidates": []}, {"candidates": [{"finishReason": "STOP"}]}])
def test_given_no_candidate_and_no_block_when_parsed_then_retryable(response: Any) -> None:
    result = parse(line(response=response))
    assert (result.outcome, result.answer, result.code) == (OutcomeClass.RETRYABLE, None, "no_answer")


@pytest.mark.parametrize(
    "fields",
    [
        {"error": {"code": 3, "message": "wrong"}},
        {"error": {"code": "3", "message": "wrong", "status": "INVALID_ARGUMENT"}},
        {"status": {"code": 3, "message": "wrong"}},
        {"code": 3, "message": "wrong"},
        {"code": 3, "message": "wrong", "status": "INVALID_ARGUMENT"},
        {"response": {"error": {"code": 3, "message": "wrong"}}},
        {"response": {"candidates": []}, "error": {"status": "INVALID_ARGUMENT", "message": "wrong"}},
    ],
)
def test_given_an_error_in_any_of_its_places_when_parsed_then_the_same_failure(fields: dict[str, Any]) -> None:
    result = parse(line(**fields))
    assert (result.outcome, result.code, result.message) == (OutcomeClass.PERMANENT, "INVALID_ARGUMENT", "wrong")


@pytest.mark.parametrize("number", sorted(RPC_CODES))
def test_given_each_rpc_code_when_parsed_then_its_name_and_class(number: int) -> None:
    result = parse(line(error={"code": number}))
    assert (result.code, result.outcome) == (RPC_CODES[number].name, RPC_CODES[number].outcome)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (400, OutcomeClass.PERMANENT),
        (429, OutcomeClass.RETRYABLE),
        (503, OutcomeClass.RETRYABLE),
        (77, OutcomeClass.RETRYABLE),
    ],
)
def test_given_a_code_that_is_no_rpc_code_when_parsed_then_read_as_http(code: int, outcome: OutcomeClass) -> None:
    assert parse(line(error={"code": code})).outcome is outcome


def test_given_an_embedding_when_parsed_then_its_numbers_and_tokens() -> None:
    result = parse(line(response={"tokenCount": "4", "embedding": {"values": [0.5, -0.25]}}))
    assert (result.outcome, result.answer, result.usage) == (OutcomeClass.SUCCEEDED, "[0.5,-0.25]", Usage(input=4))
    assert parse(line(response={"tokenCount": "4", "embedding": {"values": []}})).outcome is OutcomeClass.RETRYABLE


@pytest.mark.parametrize("fields", [{}, {"response": None}, {"response": "not json"}, {"response": [1]}])
def test_given_no_readable_response_when_parsed_then_retryable_under_its_key(fields: dict[str, Any]) -> None:
    result = parse(line(**fields))
    assert (result.record_id, result.outcome) == (KEY, OutcomeClass.RETRYABLE)


def test_given_the_key_in_the_metadata_when_parsed_then_found() -> None:
    row = {"response": {"candidates": [candidate({"text": "x"})]}, "metadata": {"key": KEY}}
    assert parse(json.dumps(row).encode()).record_id == KEY


def test_given_a_byte_order_mark_or_a_lone_surrogate_when_parsed_then_read_all_the_same() -> None:
    good = line(response={"candidates": [candidate({"text": "x"})]})
    assert parse(b"\xef\xbb\xbf" + good).answer == "x"
    assert parse(good.replace(b'"x"', b'"x\\ud800"')).answer == "x\ufffd"


@pytest.mark.parametrize(
    "text", [b"", b"<html>", b"[]", b'{"response":{}}', b'{"key":7}', b'{"key":""}', b'{"code":3}']
)
def test_given_a_line_that_names_no_record_when_parsed_then_value_error_that_quotes_nothing(text: bytes) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert not text.strip(b"[]") or text.decode() not in str(caught.value)


@given(
    st.binary(max_size=200) | st.dictionaries(st.text(max_size=5), st.integers()).map(lambda d: json.dumps(d).encode())
)
def test_given_any_bytes_when_parsed_then_a_result_or_value_error(text: bytes) -> None:
    try:
        parse(text)
    except ValueError:
        return
