"""Gemini's request lines: raw REST bodies, one line each, of the size that was announced."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybatch.adapters.providers.gemini import GeminiFormat
from tallybatch.adapters.providers.gemini.requests import EMBED, GENERATE, native_problem
from tallybatch.domain.errors import BadInput

MODEL = "gemini-2.5-flash"
KEY = "0" * 32
SCHEMA = {"type": "object", "properties": {"genre": {"type": "string"}}}
CONTENTS = [{"role": "user", "parts": [{"text": "hi"}]}]


def request(form: GeminiFormat, *, system: str = "", user: str = "hi") -> Any:
    row = json.loads(form.request_line(KEY, system=system, user=user))
    assert set(row) == {"key", "request"}
    assert row["key"] == KEY
    return row["request"]


def test_given_all_settings_when_rendered_then_each_is_under_its_rest_name() -> None:
    generation = {
        "max_output_tokens": 60,
        "temperature": 0,
        "top_p": 0.9,
        "top_k": 40,
        "seed": 7,
        "stop": ["END"],
        "reasoning_effort": "low",
        "responseModalities": ["TEXT"],
        "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
    }
    assert request(GeminiFormat(MODEL, GENERATE, generation, SCHEMA), system="You label.") == {
        "contents": CONTENTS,
        "systemInstruction": {"parts": [{"text": "You label."}]},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "generationConfig": {
            "maxOutputTokens": 60,
            "temperature": 0,
            "topP": 0.9,
            "topK": 40,
            "seed": 7,
            "stopSequences": ["END"],
            "thinkingConfig": {"thinkingLevel": "LOW"},
            "responseModalities": ["TEXT"],
            "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMA,
        },
    }


def test_given_nothing_but_a_prompt_when_rendered_then_nothing_else_is_sent() -> None:
    assert request(GeminiFormat(MODEL)) == {"contents": CONTENTS}


@pytest.mark.parametrize(
    ("generation", "thinking"),
    [
        ({"reasoning_effort": "none"}, {"thinkingBudget": 0}),
        ({"thinking_budget": -1}, {"thinkingBudget": -1}),
        ({"reasoning_effort": "xhigh"}, {"thinkingLevel": "XHIGH"}),
    ],
)
def test_given_a_wish_for_thinking_when_rendered_then_its_thinking_config(
    generation: dict[str, Any], thinking: dict[str, Any]
) -> None:
    config = request(GeminiFormat(MODEL, GENERATE, generation))["generationConfig"]
    assert config == {"thinkingConfig": thinking}


def test_given_embeddings_when_rendered_then_content_and_dimensions() -> None:
    form = GeminiFormat("gemini-embedding-001", EMBED, {"dimensions": 256, "task_type": "CLUSTERING"})
    assert request(form) == {
        "content": {"parts": [{"text": "hi"}]},
        "output_dimensionality": 256,
        "task_type": "CLUSTERING",
    }


@pytest.mark.parametrize(
    ("endpoint", "generation", "schema", "key"),
    [
        ("/v1/responses", {}, None, "endpoint"),
        (GENERATE, {"candidateCount": 2}, None, "generation.candidateCount"),
        (GENERATE, {"reasoning_effort": "low", "thinking_budget": 5}, None, "generation.thinking_budget"),
        (GENERATE, {"reasoning_effort": "max"}, None, "generation.reasoning_effort"),
        (GENERATE, {"max_output_tokens": 5, "maxOutputTokens": 6}, None, "generation.maxOutputTokens"),
        (EMBED, {"temperature": 0}, None, "generation.temperature"),
        (EMBED, {}, SCHEMA, "output.schema"),
    ],
)
def test_given_settings_that_cannot_work_when_made_then_refused_by_name(
    endpoint: str, generation: dict[str, Any], schema: Any, key: str
) -> None:
    with pytest.raises(BadInput) as caught:
        GeminiFormat(MODEL, endpoint, generation, schema)
    assert [problem.key for problem in caught.value.problems] == [key]


@given(st.text(), st.text(max_size=20), st.sampled_from([GENERATE, EMBED]))
def test_given_any_text_when_rendered_then_one_line_of_the_announced_size(
    user: str, system: str, endpoint: str
) -> None:
    form = GeminiFormat(MODEL, endpoint)
    system = "" if endpoint == EMBED else system
    try:
        line = form.request_line(KEY, system=system, user=user)
    except ValueError:
        assert any("\ud800" <= char <= "\udfff" for char in user + system)
        return
    assert form.request_bytes(system=system, user=user) == len(line)
    assert len(line.decode().splitlines()) == 1
    sent = json.loads(line)["request"]
    content = sent["content"] if endpoint == EMBED else sent["contents"][0]
    assert content["parts"] == [{"text": user}]


def test_given_a_native_request_when_taken_over_then_only_its_id_changes() -> None:
    native = {"key": "mine", "request": {"contents": CONTENTS, "somethingNew": [1, 2.5, None]}}
    form = GeminiFormat(MODEL)
    assert form.native_problem(native) == ""
    assert json.loads(form.native_line(KEY, native)) == {**native, "key": KEY}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"request": {"contents": CONTENTS}}, "key must be"),
        ({"key": "", "request": {"contents": CONTENTS}}, "key must be"),
        ({"key": "a" * 513, "request": {"contents": CONTENTS}}, "key must be"),
        ({"key": "a"}, "request must be"),
        ({"key": "a", "request": {"contents": CONTENTS}, "config": {}}, "'config' beside request"),
        ({"key": "a", "request": {"contents": []}}, "request.contents"),
        ({"key": "a", "request": {"contents": CONTENTS, "temperature": 1}}, "request.temperature belongs under"),
        ({"key": "a", "request": {"contents": CONTENTS, "model": "models/other"}}, "request.model"),
        ({"key": "a", "request": {"contents": CONTENTS, "generationConfig": {"candidateCount": 2}}}, "candidateCount"),
    ],
)
def test_given_a_native_line_that_cannot_be_sent_when_checked_then_why(line: dict[str, Any], reason: str) -> None:
    assert reason in native_problem(line, model=MODEL, endpoint=GENERATE)


def test_given_a_native_embedding_when_checked_then_it_needs_content() -> None:
    good = {"key": "a", "request": {"model": "models/e", "content": {"parts": [{"text": "x"}]}}}
    assert native_problem(good, model="e", endpoint=EMBED) == ""
    assert "request.content" in native_problem({"key": "a", "request": {}}, model="e", endpoint=EMBED)
