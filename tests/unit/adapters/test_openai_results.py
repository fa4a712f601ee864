"""Result lines: every shape of the providers' contract sheet, and the degenerate ones from public reports."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tallybatch.adapters.providers.openai.codes import RECORD_CODES, SOURCES
from tallybatch.adapters.providers.openai.results import parse
from tallybatch.domain.outcomes import OutcomeClass, RecordResult, Usage

ID = "row-000017"
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)


def line(response: Any, error: Any = None, **more: Any) -> bytes:
    return json.dumps(
        {"id": "batch_req_1", "custom_id": ID, "response": response, "error": error, **more}, ensure_ascii=False
    ).encode()


def ok(body: Any, status: Any = 200) -> bytes:
    return line({"status_code": status, "request_id": "req_9", "body": body})


def chat(content: Any = "pong", finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-6-luna-2026-09-01",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
        ],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 20,
            "total_tokens": 29,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 12},
        },
    }


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(parts)}


def text(value: str) -> dict[str, Any]:
    return {"type": "output_text", "text": value, "annotations": []}


def response(*items: dict[str, Any], status: str = "completed", reason: str | None = None) -> dict[str, Any]:
    return {
        "object": "response",
        "model": "gpt-6-luna-2026-09-01",
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}, *items],
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 12},
        },
    }


def embeddings(*vectors: tuple[int, Any]) -> dict[str, Any]:
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in vectors]
    return {"object": "list", "data": data, "model": "text-embedding-3-small", "usage": {"prompt_tokens": 7}}


def packed(*values: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


@pytest.mark.parametrize("body", [chat(), response(message(text("pong")))])
def test_given_an_answer_when_read_then_all_that_is_accounted_for_is_there(body: dict[str, Any]) -> None:
    assert parse(ok(body)) == RecordResult(
        ID,
        OutcomeClass.SUCCEEDED,
        "pong",
        finish_reason="stop" if "choices" in body else "completed",
        model_version="gpt-6-luna-2026-09-01",
        request_id="req_9",
        usage=Usage(input=9, cached_input=4, output=20, reasoning=12),
    )


S, T, R, E, C, P, F = (
    OutcomeClass.SUCCEEDED,
    OutcomeClass.TRUNCATED,
    OutcomeClass.REFUSED,
    OutcomeClass.EXPIRED,
    OutcomeClass.CANCELLED,
    OutcomeClass.PERMANENT,
    OutcomeClass.RETRYABLE,
)


def refused(status: int, code: str | None, kind: str | None = "invalid_request_error") -> bytes:
    return ok({"error": {"message": "no", "type": kind, "param": None, "code": code}}, status)


@pytest.mark.parametrize(
    ("raw", "outcome", "answer", "code"),
    [
        # answers
        (ok(chat(), 201), S, "pong", ""),
        (ok(json.dumps(chat())), S, "pong", ""),
        (line({"status_code": 200, "body": chat()}), S, "pong", ""),
        (json.dumps({"custom_id": ID, "response": {"status_code": 200, "body": chat()}}).encode(), S, "pong", ""),
        (line({"status_code": 200, "request_id": "r", "body": chat()}, {}), S, "pong", ""),
        (ok({**chat(), "error": None}), S, "pong", ""),
        (ok(chat([{"type": "text", "text": "po"}, {"type": "text", "text": "ng"}])), S, "pong", ""),
        (ok(chat("pong", None)), S, "pong", ""),
        (ok(response(message(text("po")), message(text("ng")))), S, "pong", ""),
        (ok(chat(), "200"), S, "pong", ""),
        (b"\xef\xbb\xbf" + ok(chat()), S, "pong", ""),
        (ok(chat()) + b"\r", S, "pong", ""),
        (ok(chat("a\u2028b\x85\x1cc")), S, "a\u2028b\x85\x1cc", ""),
        (ok(chat("XX")).replace(b"XX", b"a\\ud800b"), S, "a\ufffdb", ""),
        (ok(chat(None, "tool_calls", tool_calls=[{"id": "c1"}])), S, '[{"id": "c1"}]', ""),
        (ok(response({"type": "function_call", "name": "f"})), S, '[{"type":"function_call","name":"f"}]', ""),
        (ok(embeddings((0, [0.1, -0.2]))), S, "[0.1,-0.2]", ""),
        (ok(embeddings((1, [2]), (0, [1]))), S, "[[1.0],[2.0]]", ""),
        (ok(embeddings((0, packed(0.5, -2)))), S, "[0.5,-2.0]", ""),
        # cut short: an answer of its own class
        (ok(chat("po", "length")), T, "po", "length"),
        (ok(chat("", "length")), T, None, "length"),
        (
            ok(response(message(text("po")), status="incomplete", reason="max_output_tokens")),
            T,
            "po",
            "max_output_tokens",
        ),
        (ok(response(status="incomplete", reason="max_output_tokens")), T, None, "max_output_tokens"),
        # declined
        (ok(chat(None, "stop", refusal="I cannot")), R, None, "refusal"),
        (ok(chat([{"type": "refusal", "refusal": "I cannot"}])), R, None, "refusal"),
        (ok(chat("half", "content_filter")), R, None, "content_filter"),
        (ok(response(message({"type": "refusal", "refusal": "I cannot"}))), R, None, "refusal"),
        (ok(response(message(text("half")), status="incomplete", reason="content_filter")), R, None, "content_filter"),
        (refused(400, "content_filter"), R, None, "content_filter"),
        (refused(400, "content_policy_violation"), R, None, "content_policy_violation"),
        # an HTTP error inside `response` while `error` is null
        (refused(400, "context_length_exceeded"), P, None, "context_length_exceeded"),
        (refused(400, None), P, None, "invalid_request_error"),
        (refused(400, "a_code_of_tomorrow"), P, None, "a_code_of_tomorrow"),
        (refused(401, "invalid_api_key"), P, None, "invalid_api_key"),
        (refused(403, None, None), P, None, "http_403"),
        (refused(404, "model_not_found"), P, None, "model_not_found"),
        (refused(408, None, None), F, None, "http_408"),
        (refused(429, "rate_limit_exceeded", "tokens"), F, None, "rate_limit_exceeded"),
        (refused(429, None), F, None, "invalid_request_error"),
        (refused(429, "insufficient_quota"), F, None, "insufficient_quota"),
        (refused(500, "server_error", "server_error"), F, None, "server_error"),
        (refused(503, "a_code_of_tomorrow", None), F, None, "a_code_of_tomorrow"),
        (ok("<html>bad gateway</html>", 502), F, None, "http_502"),
        (ok(None, 400), P, None, "http_400"),
        # 2xx with an error in the body
        (refused(200, "server_error"), F, None, "server_error"),
        (refused(200, "context_length_exceeded"), P, None, "context_length_exceeded"),
        (refused(200, "a_code_of_tomorrow", None), F, None, "a_code_of_tomorrow"),
        (refused(200, None), P, None, "invalid_request_error"),
        (ok({"error": "overloaded"}), F, None, "http_200"),
        (ok({**response(status="failed"), "error": {"code": "invalid_prompt"}}), P, None, "invalid_prompt"),
        # never executed
        (line(None, {"code": "batch_expired", "message": "too late"}), E, None, "batch_expired"),
        (line(None, {"code": "batch_cancelled", "message": "stopped"}), C, None, "batch_cancelled"),
        (line(None, {"code": "a_code_of_tomorrow"}), F, None, "a_code_of_tomorrow"),
        (line(None, "something broke"), F, None, "unreadable_result"),
        (line(None), F, None, "no_response"),
        (json.dumps({"custom_id": ID}).encode(), F, None, "no_response"),
        (line({"status_code": 0, "request_id": "", "body": {}}), F, None, "http_0"),
        (line({"status_code": 0, "request_id": "", "body": None}), F, None, "http_0"),
        (line({"body": chat()}), F, None, "unreadable_result"),
        # both an error and an answer: the error counts
        (line({"status_code": 200, "body": chat()}, {"code": "server_error"}), F, None, "server_error"),
        # a success without an answer
        (ok(chat(None)), F, None, "no_answer"),
        (ok(chat("")), F, None, "no_answer"),
        (ok({**chat(), "choices": []}), F, None, "no_answer"),
        (ok({**chat(), "choices": [{"index": 0}]}), F, None, "no_answer"),
        (ok({}), F, None, "no_answer"),
        (ok(None), F, None, "no_answer"),
        (ok("not json"), F, None, "no_answer"),
        (ok(response()), F, None, "no_answer"),
        (ok(response(status="failed")), F, None, "failed"),
        (ok(response(message(text("x")), status="in_progress")), F, None, "in_progress"),
        (ok(response(message(text("x")), status="incomplete", reason="steered")), F, None, "steered"),
        (ok(response(status="cancelled")), C, None, "cancelled"),
        (ok(embeddings()), F, None, "no_answer"),
        (ok(embeddings((0, []))), F, None, "no_answer"),
        (ok(embeddings((0, None))), F, None, "no_answer"),
        (ok(embeddings((0, [1]), (0, [2]))), F, None, "no_answer"),
        (ok(embeddings((0, [1]), (2, [2]))), F, None, "no_answer"),
        (ok(embeddings((0, "!!"))), F, None, "no_answer"),
        (ok(embeddings((0, base64.b64encode(b"abc").decode()))), F, None, "no_answer"),
        (ok(embeddings((0, packed(float("nan"))))), F, None, "no_answer"),
        # JSON of another shape
        (ok([1, 2]), F, None, "unreadable_result"),
        (ok([1, 2], 400), P, None, "http_400"),
        (ok({**chat(), "choices": "none"}), F, None, "unreadable_result"),
        (line("gone"), F, None, "unreadable_result"),
    ],
)
def test_given_a_line_when_read_then_its_class_answer_and_code(
    raw: bytes, outcome: OutcomeClass, answer: str | None, code: str
) -> None:
    result = parse(raw)
    assert (result.record_id, result.outcome, result.answer, result.code) == (ID, outcome, answer, code)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"not json",
        b'"text"',
        b"[]",
        b"null",
        ok(chat("SECRET"))[:-5],
        json.dumps({"response": {"status_code": 200, "body": chat("SECRET")}}).encode(),
        json.dumps({"custom_id": 17, "response": {"status_code": 200, "body": chat("SECRET")}}).encode(),
        json.dumps({"custom_id": "", "response": {"status_code": 200, "body": chat("SECRET")}}).encode(),
        b'{"custom_id":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        ok(chat("SECRET"))[:60] + b"\xff\xfe",
    ],
)
def test_given_a_line_that_holds_no_record_when_read_then_value_error_without_its_content(raw: bytes) -> None:
    with pytest.raises(ValueError) as caught:
        parse(raw)
    assert "SECRET" not in str(caught.value)


def test_given_a_failure_that_was_billed_when_read_then_its_usage_and_message_are_kept() -> None:
    body = {**chat(), "error": {"message": "x" * 5000, "code": "server_error"}}
    result = parse(ok(body, 500))
    assert result.usage == Usage(9, 4, 20, 12)
    assert len(result.message) == 2000
    assert result.request_id == "req_9"


@pytest.mark.parametrize("raw", [ok(chat("po", "length")), ok(chat(None, "stop", refusal="No."))])
def test_given_a_cut_or_refused_answer_when_read_then_it_was_billed(raw: bytes) -> None:
    assert parse(raw).usage == Usage(9, 4, 20, 12)


def test_given_null_usage_when_read_then_zero() -> None:
    for usage in (None, {}, {"prompt_tokens": None, "prompt_tokens_details": None}):
        assert parse(ok({**chat(), "usage": usage})).usage == Usage()
    assert parse(ok({**chat(), "usage": {"prompt_tokens": "9", "completion_tokens": 2.0}})).usage == Usage(9, 0, 2, 0)


@given(answer=texts, as_text=st.booleans(), ascii_only=st.booleans(), shape=st.sampled_from(["chat", "responses"]))
def test_given_any_unicode_when_it_comes_back_then_it_is_read_whole(
    answer: str, as_text: bool, ascii_only: bool, shape: str
) -> None:
    body: Any = chat(answer) if shape == "chat" else response(message(text(answer)))
    body = json.dumps(body, ensure_ascii=ascii_only) if as_text else body
    assert parse(ok(body)).answer == answer


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_given_any_vector_when_as_base64_or_as_numbers_then_the_same_answer(vector: list[float]) -> None:
    numbers = parse(ok(embeddings((0, vector)))).answer
    assert numbers == parse(ok(embeddings((0, packed(*vector))))).answer
    assert numbers is not None
    assert json.loads(numbers) == vector


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "error",
                        "body",
                        "code",
                        "choices",
                        "output",
                        "data",
                        "usage",
                        "message",
                        "status_code",
                        "model",
                        "content",
                    ]
                ),
                inner,
            )
        ),
        max_leaves=12,
    )
)
def test_given_any_json_around_a_known_id_when_read_then_it_is_a_result_of_that_record(response_value: Any) -> None:
    result = parse(line(response_value))
    assert result.record_id == ID
    assert (result.answer is not None) <= (result.outcome in (S, T))


SOME_TEXT = st.sampled_from(["", "pong", "é\u2028"])
PARTS = st.one_of(SOME_TEXT.map(text), SOME_TEXT.map(lambda refusal: {"type": "refusal", "refusal": refusal}))
ITEMS = st.one_of(
    st.lists(PARTS, max_size=2).map(lambda parts: message(*parts)),
    SOME_TEXT.map(lambda content: {"type": "message", "content": content}),
    st.builds(lambda parts: {**message(*parts), "type": "reasoning"}, st.lists(PARTS, max_size=1)),
    st.just({"type": "function_call", "name": "rate", "arguments": "{}"}),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(ITEMS, max_size=3))
@example([message(text("ping")), message(text("pong"))])
@example([message(text("ping"), text("pong"))])
def test_given_any_items_when_the_response_is_completed_then_it_reads_as_one_that_tells_no_status(
    items: list[dict[str, Any]],
) -> None:
    body = {**response(), "output": items}
    silent = {**body, "status": None}
    assert parse(ok(body)) == replace(parse(ok(silent)), finish_reason="completed")


def test_given_the_table_of_codes_when_looked_at_then_each_has_one_class_and_a_source() -> None:
    assert RECORD_CODES.keys() == SOURCES.keys()
    assert all(source.startswith("[") for source in SOURCES.values())
    assert set(RECORD_CODES.values()) <= {E, C, F, P, R}
