"""Lines of `.out` objects: every family's shape, errors in place of answers, and what is not quite as documented."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.loaders import Loader
from hypothesis import given
from hypothesis import strategies as st

from tallybatch.adapters.providers.bedrock.codes import STOP_REASONS, job_failure
from tallybatch.adapters.providers.bedrock.results import Reader
from tallybatch.domain.outcomes import OutcomeClass, RecordResult, Usage
from tests.support.bedrock import CLAUDE, NOVA

ID = "R0000000017"
CONVERSE: dict[str, Any] = {
    "output": {"message": {"role": "assistant", "content": [{"text": "po"}, {"text": "ng"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 9, "outputTokens": 2, "totalTokens": 16, "cacheReadInputTokens": 4}
    | {"cacheWriteInputTokens": 1},
}
CLAUDES = {
    "model": "claude-haiku-4-5-20251001",
    "id": "msg_bdrk_01",
    "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "pong"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 9, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 4, "output_tokens": 2},
}


def line(**members: Any) -> bytes:
    return json.dumps({"recordId": ID, "modelInput": {"recordId": "x", "error": 1}, **members}).encode()


def parse(data: bytes, model: str = NOVA) -> RecordResult:
    return Reader(model).parse(data)


def read(output: Any, model: str = NOVA) -> RecordResult:
    return parse(line(modelOutput=output), model)


def test_given_converse_when_read_then_cache_reads_and_writes_are_part_of_the_input() -> None:
    assert read(CONVERSE) == RecordResult(
        ID, OutcomeClass.SUCCEEDED, answer="pong", finish_reason="end_turn", usage=Usage(14, 4, 2, 0, 1)
    )


def test_given_claudes_own_body_when_read_then_its_id_and_model_are_kept_and_thoughts_are_no_answer() -> None:
    assert read(CLAUDES, CLAUDE) == RecordResult(
        ID,
        OutcomeClass.SUCCEEDED,
        answer="pong",
        finish_reason="end_turn",
        model_version=CLAUDE,
        request_id="msg_bdrk_01",
        usage=Usage(14, 4, 2, 0, 1),
    )


@pytest.mark.parametrize(
    ("told", "model", "version"),
    [
        ("claude-haiku-4-5-20251001", CLAUDE, CLAUDE),
        ("claude-haiku-4-5", CLAUDE, "claude-haiku-4-5"),
        ("claude-sonnet-5", "anthropic.claude-sonnet-5", "anthropic.claude-sonnet-5"),
        ("claude-sonnet-5", "anthropic.claude-sonnet-5-5", "claude-sonnet-5"),
        ("claude-opus-4-6", "global.anthropic.claude-opus-4-6-v1", "global.anthropic.claude-opus-4-6-v1"),
    ],
)
def test_given_the_makers_name_of_a_model_when_read_then_it_is_the_jobs_model_only_if_it_is_the_same(
    told: str, model: str, version: str
) -> None:
    assert read({**CLAUDES, "model": told}, model).model_version == version


def test_given_novas_own_body_when_read_then_its_cache_counts_have_other_names() -> None:
    usage = {"inputTokens": 9, "outputTokens": 2, "cacheReadInputTokenCount": 4}
    assert read({**CONVERSE, "usage": usage}).usage == Usage(13, 4, 2)


@pytest.mark.parametrize(
    ("output", "answer", "tokens"),
    [
        ({"embedding": [0.5, -1], "embeddingsByType": {"float": [0.5, -1]}, "inputTextTokenCount": 4}, [0.5, -1.0], 4),
        ({"embeddingsByType": {"float": [0.5]}, "inputTextTokenCount": 4}, [0.5], 4),
        ({"embeddings": [[0.5, 1]], "id": "a"}, [0.5, 1.0], 0),
        ({"embeddings": {"float": [[0.5], [1]]}, "id": "a"}, [[0.5], [1.0]], 0),
    ],
)
def test_given_vectors_when_read_then_they_are_the_answer(output: Any, answer: Any, tokens: int) -> None:
    result = read(output)
    assert (result.outcome, json.loads(result.answer or ""), result.usage) == (
        OutcomeClass.SUCCEEDED,
        answer,
        Usage(tokens),
    )


@pytest.mark.parametrize(
    "output", [{"embedding": []}, {"embeddings": []}, {"embeddings": {"int8": [[1]]}}, {"embeddingsByType": {}}, {}]
)
def test_given_no_usable_vector_or_answer_when_read_then_it_is_tried_again(output: Any) -> None:
    assert (read(output).outcome, read(output).code) == (OutcomeClass.RETRYABLE, "no_answer")


def test_given_every_stop_reason_of_the_sdk_when_read_then_it_has_its_class() -> None:
    shapes = Loader().load_service_model("bedrock-runtime", "service-2")["shapes"]
    assert set(shapes["StopReason"]["enum"]) <= set(STOP_REASONS)


@pytest.mark.parametrize(("reason", "outcome"), sorted(STOP_REASONS.items()))
@pytest.mark.parametrize("claudes", [False, True])
def test_given_a_stop_reason_when_read_then_its_class_and_only_a_cut_answer_is_kept(
    reason: str, outcome: OutcomeClass, claudes: bool
) -> None:
    result = read({**CLAUDES, "stop_reason": reason} if claudes else {**CONVERSE, "stopReason": reason})
    kept = outcome in (OutcomeClass.SUCCEEDED, OutcomeClass.TRUNCATED)
    assert (result.outcome, result.answer, result.finish_reason) == (outcome, "pong" if kept else None, reason)
    assert result.usage == Usage(14, 4, 2, 0, 1)


def test_given_tool_calls_when_read_then_they_are_the_answer() -> None:
    tool = {"toolUseId": "t", "name": "f", "input": {"a": 1}}
    message = {"output": {"message": {"content": [{"toolUse": tool}]}}, "stopReason": "tool_use"}
    own = {"content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}], "stop_reason": "tool_use"}
    assert json.loads(read(message).answer or "") == [tool]
    assert json.loads(read(own).answer or "") == [{"id": "t", "name": "f", "input": {"a": 1}}]


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        ({"errorCode": 400, "errorMessage": "Malformed"}, OutcomeClass.PERMANENT, "400"),
        ({"errorCode": 400.0, "errorMessage": "Malformed"}, OutcomeClass.PERMANENT, "400"),
        ({"errorCode": "403"}, OutcomeClass.PERMANENT, "403"),
        ({"errorCode": 429}, OutcomeClass.RETRYABLE, "429"),
        ({"errorCode": 500}, OutcomeClass.RETRYABLE, "500"),
        ({"errorCode": 0}, OutcomeClass.RETRYABLE, "0"),
        ({"errorCode": "ThrottlingException"}, OutcomeClass.RETRYABLE, "ThrottlingException"),
        ({"errorCode": "ValidationException"}, OutcomeClass.PERMANENT, "ValidationException"),
        ({"errorCode": "SomethingNew"}, OutcomeClass.RETRYABLE, "SomethingNew"),
        ({"errorMessage": "words"}, OutcomeClass.RETRYABLE, "unreadable_result"),
        ("words", OutcomeClass.RETRYABLE, "unreadable_result"),
    ],
)
def test_given_an_error_in_place_of_the_answer_when_read_then_its_code_decides(
    error: Any, outcome: OutcomeClass, code: str
) -> None:
    result = parse(line(error=error))
    assert (result.outcome, result.code, result.answer) == (outcome, code, None)
    assert parse(line(error=error, modelOutput=CONVERSE)).outcome is outcome


@pytest.mark.parametrize("members", [{}, {"modelOutput": None}, {"modelOutput": None, "error": None}])
def test_given_neither_answer_nor_error_when_read_then_it_is_tried_again(members: Any) -> None:
    assert (parse(line(**members)).outcome, parse(line(**members)).code) == (OutcomeClass.RETRYABLE, "no_answer")


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + line(modelOutput=CONVERSE),
        line(modelOutput=CONVERSE) + b"\r",
        line(modelOutput=json.dumps(CONVERSE)),
        line(modelOutput={**CONVERSE, "usage": {**CONVERSE["usage"], "inputTokens": "9"}}),
    ],
)
def test_given_a_line_that_is_not_quite_right_when_read_then_it_is_the_same_answer(data: bytes) -> None:
    assert parse(data) == read(CONVERSE)


def test_given_a_lone_surrogate_when_read_then_the_rest_of_the_answer_stands() -> None:
    data = line(modelOutput=CONVERSE).replace(b'"po"', b'"p\\ud800o"')
    assert parse(data).answer == "p\ufffdong"


@pytest.mark.parametrize("data", [b"", b"{", b"<html>", b"[]", b"{}", b'{"recordId": 7}', b'{"recordId": ""}', b"\xff"])
def test_given_what_names_no_record_when_read_then_value_error_that_does_not_quote_it(data: bytes) -> None:
    with pytest.raises(ValueError, match="line") as caught:
        parse(data)
    assert "html" not in str(caught.value)


def test_given_an_answer_of_another_shape_when_read_then_the_record_is_known_and_tried_again() -> None:
    assert read({"output": 7}).code == "unreadable_result"
    assert read({"output": 7}).outcome is OutcomeClass.RETRYABLE


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=100))
def test_given_any_answer_when_read_then_it_comes_back(text: str) -> None:
    message = {"output": {"message": {"content": [{"text": text}]}}, "stopReason": "end_turn"}
    data = json.dumps({"recordId": ID, "modelOutput": message}, ensure_ascii=False).encode()
    assert parse(data).answer == text


@pytest.mark.parametrize(
    ("message", "code", "outcome"),
    [
        ("contains less records (7) than the required minimum of: 100", "below_minimum", OutcomeClass.RETRYABLE),
        ("contains more records than the maximum", "above_maximum", OutcomeClass.PERMANENT),
        ("The provided role has no permission", "access_denied", OutcomeClass.RETRYABLE),
        ("Malformed input", "invalid_input", OutcomeClass.PERMANENT),
        ("", "failed", None),
    ],
)
def test_given_the_message_of_a_failed_job_when_read_then_its_code(
    message: str, code: str, outcome: OutcomeClass | None
) -> None:
    assert job_failure(message) == (code, outcome)
