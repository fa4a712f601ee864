"""Request lines: what goes out, for every endpoint, and what is refused before a cent is spent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybatch.adapters.providers.openai import OpenAIFormat, native_problem
from tallybatch.adapters.providers.openai.requests import CHAT, EMBEDDINGS, RESPONSES
from tallybatch.domain.errors import BadInput
from tallybatch.ports import ProviderFormat

MODEL = "gpt-6-luna-2026-09-01"
ID = "0123456789abcdef" * 2
LOOSE = {"type": "object", "required": ["genre"], "properties": {"genre": {"type": "string"}}}
STRICT = {**LOOSE, "additionalProperties": False}

texts = st.text(st.characters(codec="utf-8"), max_size=200)


def body_of(line: bytes) -> dict[str, Any]:
    envelope = json.loads(line)
    assert set(envelope) == {"custom_id", "method", "url", "body"}
    assert envelope["custom_id"] == ID
    assert envelope["method"] == "POST"
    body: dict[str, Any] = envelope["body"]
    return body


def test_given_a_system_and_a_user_prompt_when_for_responses_then_they_are_instructions_and_input() -> None:
    form: ProviderFormat = OpenAIFormat(MODEL, RESPONSES, {"max_output_tokens": 60, "temperature": 0})
    line = form.request_line(ID, system="You label films.", user="Heat")
    assert json.loads(line)["url"] == RESPONSES
    assert body_of(line) == {
        "model": MODEL,
        "instructions": "You label films.",
        "input": "Heat",
        "max_output_tokens": 60,
        "temperature": 0,
    }


def test_given_a_system_and_a_user_prompt_when_for_chat_then_they_are_messages_and_the_cap_has_its_chat_name() -> None:
    line = OpenAIFormat(MODEL, CHAT, {"max_output_tokens": 60}).request_line(ID, system="S", user="U")
    assert body_of(line) == {
        "model": MODEL,
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
        "max_completion_tokens": 60,
    }


def test_given_embeddings_when_built_then_the_text_is_the_input_and_a_system_prompt_is_refused() -> None:
    form = OpenAIFormat("text-embedding-3-small", EMBEDDINGS, {"dimensions": 512})
    assert body_of(form.request_line(ID, system="", user="a text")) == {
        "model": "text-embedding-3-small",
        "dimensions": 512,
        "input": "a text",
    }
    with pytest.raises(BadInput, match="system"):
        form.request_line(ID, system="S", user="U")


@pytest.mark.parametrize("endpoint", [RESPONSES, CHAT])
def test_given_no_system_prompt_when_built_then_none_is_sent(endpoint: str) -> None:
    body = body_of(OpenAIFormat(MODEL, endpoint).request_line(ID, system="", user="U"))
    assert "instructions" not in body
    assert body.get("input", body.get("messages")) in ("U", [{"role": "user", "content": "U"}])


def test_given_changing_system_prompts_when_built_then_each_line_carries_its_own() -> None:
    form = OpenAIFormat(MODEL)
    seen = [body_of(form.request_line(ID, system=s, user="U")).get("instructions") for s in ("a", "b", "", "a")]
    assert seen == ["a", "b", None, "a"]


@given(system=texts, user=texts, endpoint=st.sampled_from([RESPONSES, CHAT]))
def test_given_any_unicode_when_built_then_it_is_read_back_and_no_reader_splits_the_line(
    system: str, user: str, endpoint: str
) -> None:
    line = OpenAIFormat(MODEL, endpoint, {}, STRICT).request_line(ID, system=system, user=user)
    body = body_of(line)
    if endpoint == RESPONSES:
        assert (body.get("instructions", ""), body["input"]) == (system, user)
    else:
        assert [message["content"] for message in body["messages"]] == ([system] if system else []) + [user]
    assert line.decode().splitlines() == [line.decode()]


def test_given_a_lone_surrogate_when_built_then_a_value_error_names_the_record_and_not_the_prompt() -> None:
    form = OpenAIFormat(MODEL)
    for system, user in (("", "secret \ud800"), ("secret \ud800", "")):
        with pytest.raises(ValueError, match="surrogate") as caught:
            form.request_line(ID, system=system, user=user)
        assert "secret" not in str(caught.value)


def test_given_effort_and_verbosity_when_for_responses_then_they_join_what_is_nested_there() -> None:
    settings = {"reasoning": {"summary": "auto"}, "reasoning_effort": "low", "verbosity": "low"}
    body = body_of(OpenAIFormat(MODEL, RESPONSES, settings, LOOSE, "Genre V1").request_line(ID, system="", user="U"))
    assert body["reasoning"] == {"summary": "auto", "effort": "low"}
    assert body["text"]["verbosity"] == "low"
    assert body["text"]["format"] == {"type": "json_schema", "name": "Genre_V1", "strict": False, "schema": LOOSE}
    chat = body_of(OpenAIFormat(MODEL, CHAT, {"reasoning_effort": "low"}).request_line(ID, system="", user="U"))
    assert chat["reasoning_effort"] == "low"


def test_given_a_schema_within_strict_rules_when_built_then_it_is_sent_strict() -> None:
    form = OpenAIFormat(MODEL, CHAT, {}, STRICT, "GenreV1")
    body = body_of(form.request_line(ID, system="", user="U"))
    assert form.strict_gap == ""
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "GenreV1", "strict": True, "schema": STRICT},
    }


def obj(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    whole = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {**whole, **more}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = obj({"a": schema})
    return schema


@pytest.mark.parametrize(
    ("schema", "gap"),
    [
        (LOOSE, "additionalProperties"),
        (obj({"a": {"type": "string"}}, required=[]), "required"),
        (obj({"a": {"type": "array"}}), "items"),
        (obj({"a": {}}), "type is missing"),
        (obj({"a": {"type": "string", "minLength": 1}}), "minLength"),
        (obj({"a": {"type": "string", "format": "uri"}}), "format"),
        (obj({"a": {"type": "array", "items": LOOSE}}), r"\$.a\[\].*additionalProperties"),
        (obj({"a": {"anyOf": [{"type": "null"}, LOOSE]}}), r"anyOf\[1\]"),
        (obj({"a": True}), "not supported"),
        (obj({}, allOf=[]), "allOf"),
        ({"type": "array", "items": {"type": "string"}}, "root"),
        (obj({}, anyOf=[obj({})]), "root"),
        (obj({}, **{"$defs": {"x": LOOSE}}), r"\$.x"),
        (obj({"a": {"type": "text"}}), "type is not supported"),
        (nested(11), "nested"),
        (obj({"a": {"enum": [*range(1001)]}}), "enum values"),
    ],
)
def test_given_a_schema_outside_strict_rules_when_built_then_it_is_sent_without_strict_and_the_gap_is_told(
    schema: dict[str, Any], gap: str
) -> None:
    form = OpenAIFormat(MODEL, RESPONSES, {}, schema)
    assert re.search(gap, form.strict_gap)
    assert body_of(form.request_line(ID, system="", user="U"))["text"]["format"]["strict"] is False


@pytest.mark.parametrize(
    "schema",
    [
        obj({"a": {"type": ["string", "null"]}, "b": {"enum": ["x"]}, "c": {"type": "number", "minimum": 0}}),
        obj({"a": {"$ref": "#/$defs/n"}}, **{"$defs": {"n": obj({"v": {"type": "integer"}})}}),
        obj({"a": {"anyOf": [{"type": "null"}, obj({})]}, "b": {"type": "array", "items": {"type": "string"}}}),
        nested(9),
    ],
)
def test_given_a_schema_inside_strict_rules_when_checked_then_there_is_no_gap(schema: dict[str, Any]) -> None:
    assert OpenAIFormat(MODEL, RESPONSES, {}, schema).strict_gap == ""


def test_given_a_fine_tuned_model_when_the_schema_has_bounds_then_it_is_not_strict() -> None:
    schema = obj({"a": {"type": "number", "minimum": 0}})
    assert "minimum" in OpenAIFormat("ft:gpt-4.1-mini:acme::1", RESPONSES, {}, schema).strict_gap


@pytest.mark.parametrize(
    ("endpoint", "generation", "schema"),
    [
        ("/v1/completions", {}, None),
        (RESPONSES, {"stream": True}, None),
        (RESPONSES, {"model": "other"}, None),
        (CHAT, {"messages": []}, None),
        (CHAT, {"n": 2}, None),
        (CHAT, {"max_output_tokens": 5, "max_completion_tokens": 6}, None),
        (CHAT, {"response_format": {"type": "json_object"}}, LOOSE),
        (RESPONSES, {"text": {"format": {"type": "json_object"}}}, LOOSE),
        (EMBEDDINGS, {}, LOOSE),
        (EMBEDDINGS, {"max_output_tokens": 5}, None),
    ],
)
def test_given_settings_that_cannot_work_when_the_format_is_made_then_bad_input(
    endpoint: str, generation: dict[str, Any], schema: dict[str, Any] | None
) -> None:
    with pytest.raises(BadInput):
        OpenAIFormat(MODEL, endpoint, generation, schema)


def native(**changes: Any) -> dict[str, Any]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "SECRET"}]}
    return {"custom_id": "row-1", "method": "POST", "url": CHAT, "body": body, **changes}


def native_body(**changes: Any) -> dict[str, Any]:
    line = native()
    return native(body={**line["body"], **changes})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (native(custom_id=""), "custom_id"),
        (native(custom_id=7), "custom_id"),
        (native(custom_id="x" * 513), "custom_id"),
        ({"method": "POST"}, "custom_id"),
        (native(method="GET"), "method"),
        (native(url=RESPONSES), "url"),
        (native(body="{}"), "body must be an object"),
        (native(body=None), "body must be an object"),
        (native_body(model="gpt-4o"), "body.model"),
        (native_body(stream=True), "stream"),
        (native_body(background=True), "background"),
        (native_body(n=3), "body.n"),
        (native_body(messages=[]), "messages"),
        (native_body(messages="SECRET"), "messages"),
    ],
)
def test_given_a_native_line_that_would_be_refused_hours_later_when_checked_then_the_problem_is_named(
    line: dict[str, Any], problem: str
) -> None:
    told = native_problem(line, model=MODEL, endpoint=CHAT)
    assert problem in told
    assert "SECRET" not in told


def test_given_a_native_embedding_of_too_many_inputs_when_checked_then_refused() -> None:
    body = {"model": MODEL, "input": ["x"] * 2049}
    assert "2048" in native_problem(native(url=EMBEDDINGS, body=body), model=MODEL, endpoint=EMBEDDINGS)


def test_given_good_native_lines_when_checked_then_no_problem() -> None:
    assert native_problem(native(), model=MODEL, endpoint=CHAT) == ""
    assert OpenAIFormat(MODEL, CHAT).native_problem(native_body(stream=False, n=1)) == ""
    with_prompt = native(url=RESPONSES, body={"model": MODEL, "prompt": {"id": "pmpt_1"}})
    assert native_problem(with_prompt, model=MODEL, endpoint=RESPONSES) == ""


def test_given_a_native_request_when_taken_over_then_only_the_id_changes_and_a_raw_body_keeps_its_bytes() -> None:
    form = OpenAIFormat(MODEL, CHAT)
    assert json.loads(form.native_line(ID, native())) == native(custom_id=ID)
    raw = b'{"model": "m", "seed": 1.50e1, "messages": [ ] }'
    line = form.native_line(ID, {"custom_id": "row-1", "body": msgspec.Raw(raw)})
    assert raw in line
    assert json.loads(line)["custom_id"] == ID
    split = form.native_line(ID, native_body(user="a\u2028b\x85c"))
    assert len(split.decode().splitlines()) == 1
    assert json.loads(split)["body"]["user"] == "a\u2028b\x85c"


def test_given_the_package_when_imported_then_no_sdk_is_loaded() -> None:
    code = (
        "import sys, tallybatch.adapters.providers.openai; sys.exit('openai' in sys.modules or 'httpx2' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)}, timeout=60)
