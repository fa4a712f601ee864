"""Request lines: each family's body as the contract sheet shows it, one line each, sizes exact."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.loaders import Loader
from hypothesis import given
from hypothesis import strategies as st

from tallybatch.adapters.providers.bedrock import BedrockFormat
from tallybatch.domain.errors import BadInput
from tests.support.bedrock import CLAUDE, COHERE, NOVA, TITAN, claude, converse

ID = "0123456789abcdef0123456789abcdef"
SCHEMA = {"type": "object", "properties": {"genre": {"type": "string"}}}
SETTINGS = {"max_output_tokens": 64, "temperature": 0.2, "top_p": 0.9, "stop": ["###"], "top_k": 50}
MESSAGES = [{"role": "user", "content": [{"text": "ping"}]}]
texts = st.text(st.characters(codec="utf-8"), max_size=80)


def body(form: BedrockFormat, *, system: str = "be short", user: str = "ping") -> dict[str, Any]:
    line = json.loads(form.request_line(ID, system=system, user=user))
    assert set(line) == {"recordId", "modelInput"}
    assert line["recordId"] == ID
    found: dict[str, Any] = line["modelInput"]
    return found


def test_given_converse_when_rendered_then_settings_have_its_names_and_others_go_to_the_model() -> None:
    assert body(BedrockFormat(NOVA, "Converse", SETTINGS)) == {
        "inferenceConfig": {"maxTokens": 64, "temperature": 0.2, "topP": 0.9, "stopSequences": ["###"]},
        "additionalModelRequestFields": {"top_k": 50},
        "system": [{"text": "be short"}],
        "messages": MESSAGES,
    }


def test_given_converse_when_rendered_then_its_members_are_those_of_the_sdk() -> None:
    shapes = Loader().load_service_model("bedrock-runtime", "service-2")["shapes"]
    rendered = body(BedrockFormat(NOVA, "Converse", SETTINGS))

    assert set(rendered) <= set(shapes["ConverseRequest"]["members"]) - {"modelId"}
    assert set(rendered["inferenceConfig"]) <= set(shapes["InferenceConfiguration"]["members"])


def test_given_claude_when_rendered_by_its_own_body_then_the_version_and_the_cap_are_there() -> None:
    assert body(BedrockFormat(CLAUDE, "InvokeModel", SETTINGS)) == {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 64,
        "temperature": 0.2,
        "top_p": 0.9,
        "stop_sequences": ["###"],
        "top_k": 50,
        "system": "be short",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "ping"}]}],
    }


def test_given_nova_when_rendered_by_its_own_body_then_it_has_the_schema_version() -> None:
    assert body(BedrockFormat(NOVA, "InvokeModel", {"max_output_tokens": 64}), system="") == {
        "schemaVersion": "messages-v1",
        "inferenceConfig": {"maxTokens": 64},
        "messages": MESSAGES,
    }


def test_given_embeddings_when_rendered_then_each_family_has_its_own_names() -> None:
    titan = BedrockFormat(TITAN, "InvokeModel", {"dimensions": 512, "normalize": True})
    cohere = BedrockFormat(COHERE, "InvokeModel", {"dimensions": 512, "input_type": "search_query"})

    assert body(titan, system="") == {
        "embeddingTypes": ["float"],
        "dimensions": 512,
        "normalize": True,
        "inputText": "ping",
    }
    assert body(cohere, system="") == {
        "input_type": "search_query",
        "embedding_types": ["float"],
        "output_dimension": 512,
        "texts": ["ping"],
    }
    assert body(BedrockFormat("amazon.titan-embed-text-v1", "InvokeModel"), system="") == {"inputText": "ping"}


@pytest.mark.parametrize(("model", "endpoint"), [(NOVA, "Converse"), (CLAUDE, "InvokeModel"), (NOVA, "InvokeModel")])
def test_given_a_schema_when_rendered_then_the_system_prompt_asks_for_it_in_words(model: str, endpoint: str) -> None:
    form = BedrockFormat(model, endpoint, {"max_output_tokens": 9}, SCHEMA)

    for system in ("be short", ""):
        shown = body(form, system=system)["system"]
        text = shown if isinstance(shown, str) else shown[0]["text"]
        assert text.startswith(system)
        assert json.loads(text[text.index("{") :]) == SCHEMA


@pytest.mark.parametrize(
    ("model", "endpoint", "generation", "schema"),
    [
        (NOVA, "/v1/responses", {}, None),
        (TITAN, "Converse", {}, None),
        (TITAN, "InvokeModel", {}, SCHEMA),
        (NOVA, "Converse", {"messages": []}, None),
        (NOVA, "Converse", {"toolConfig": {}}, None),
    ],
)
def test_given_settings_that_cannot_work_when_made_then_refused(
    model: str, endpoint: str, generation: dict[str, Any], schema: Any
) -> None:
    with pytest.raises(BadInput):
        BedrockFormat(model, endpoint, generation, schema)


def test_given_an_embedding_with_a_system_prompt_when_rendered_then_refused() -> None:
    with pytest.raises(BadInput):
        BedrockFormat(TITAN, "InvokeModel").request_line(ID, system="be short", user="x")


@given(system=texts, user=texts, other=texts)
def test_given_any_text_when_rendered_then_it_comes_back_in_one_line_of_the_size_foretold(
    system: str, user: str, other: str
) -> None:
    form = BedrockFormat(NOVA, "Converse", {}, SCHEMA)
    for said in (user, other):
        line = form.request_line(ID, system=system, user=said)
        assert len(line) == form.request_bytes(system=system, user=said)
        assert len(line.decode().splitlines()) == 1
        assert json.loads(line)["modelInput"]["messages"][0]["content"][0]["text"] == said


def test_given_a_lone_surrogate_when_rendered_then_the_record_is_named() -> None:
    with pytest.raises(ValueError, match=ID):
        BedrockFormat(NOVA).request_line(ID, system="", user="\ud800")


class TestNative:
    @pytest.mark.parametrize(
        ("model", "endpoint", "request_body", "word"),
        [
            (NOVA, "Converse", converse("x"), ""),
            (CLAUDE, "InvokeModel", claude("x"), ""),
            (TITAN, "InvokeModel", {"inputText": "x"}, ""),
            (COHERE, "InvokeModel", {"texts": ["x"], "input_type": "search_document"}, ""),
            ("meta.llama3-3-70b-instruct-v1:0", "InvokeModel", {"prompt": "x"}, ""),
            (NOVA, "Converse", {}, "messages"),
            (NOVA, "Converse", {**converse("x"), "modelId": NOVA}, "modelId"),
            (NOVA, "Converse", {**converse("x"), "toolConfig": {}}, "toolConfig"),
            (CLAUDE, "InvokeModel", {"max_tokens": 5, "messages": [{}]}, "anthropic_version"),
            (TITAN, "InvokeModel", {"inputText": ""}, "inputText"),
            (COHERE, "InvokeModel", {"texts": ["x"]}, "input_type"),
        ],
    )
    def test_given_a_native_request_when_checked_then_what_would_fail_hours_later_is_named(
        self, model: str, endpoint: str, request_body: dict[str, Any], word: str
    ) -> None:
        problem = BedrockFormat(model, endpoint).native_problem({"recordId": "a", "modelInput": request_body})
        assert (word in problem) if word else problem == ""

    @pytest.mark.parametrize("line", [{}, {"recordId": 7}, {"recordId": ""}, {"recordId": "a", "modelInput": "x"}])
    def test_given_a_line_of_another_shape_when_checked_then_it_is_a_problem(self, line: dict[str, Any]) -> None:
        assert BedrockFormat(NOVA).native_problem(line)

    def test_given_a_native_request_when_rendered_then_only_its_id_is_another(self) -> None:
        request = converse("line\u2028break", top="kept")
        line = BedrockFormat(NOVA).native_line(ID, {"modelInput": request})
        assert json.loads(line) == {"recordId": ID, "modelInput": request}
        assert len(line.decode().splitlines()) == 1
