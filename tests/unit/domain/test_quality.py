"""Record-level checks of an answer: whatever a model says is accepted or refused, and never an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.quality import FENCED, MOST_ERRORS, AnswerCheck, Verdict

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["genre", "confidence"],
    "properties": {
        "genre": {"enum": ["Drama", "Comedy"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
CHECK = AnswerCheck(SCHEMA)


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ('{"genre":"Drama","confidence":0.5}', b'{"genre":"Drama","confidence":0.5}'),
        (' {"confidence" : 1 , "genre" : "Comedy"}\n', b'{"confidence":1,"genre":"Comedy"}'),
        ('{"genre":"Drama","confidence":0,"tags":["\\u00e9","\\ud83d\\ude00"]}',
         '{"genre":"Drama","confidence":0,"tags":["é","😀"]}'.encode()),
    ],
)  # fmt: skip
def test_given_an_answer_that_fits_when_checked_then_it_is_the_output(answer: str, output: bytes) -> None:
    assert CHECK.check(answer) == Verdict(output)


@pytest.mark.parametrize(
    "answer",
    [
        "", " ", "Drama", "{", '{"genre":"Drama","confidence":0.5', "```json\n{\n```", "```json {} ```", "```\n{}",
        '{"genre":"Drama"} ok', "{'a':1}",
        '{"genre":"Drama","confidence":NaN}', '{"genre":"Drama","confidence":1e999}', '{"genre":"\\ud800"}', "nul",
    ],
)  # fmt: skip
def test_given_an_answer_that_is_no_json_when_checked_then_it_is_refused_without_a_quote(answer: str) -> None:
    assert CHECK.check(answer) == Verdict(b"", "the answer is not JSON")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"genre":"Drama"}', "/ breaks /required"),
        ('{"genre":"SECRET","confidence":0.5}', "/genre breaks /properties/genre/enum"),
        ('{"genre":"Drama","confidence":1.5}', "/confidence breaks /properties/confidence/maximum"),
        ('{"genre":"Drama","confidence":"SECRET"}', "/confidence breaks /properties/confidence/type"),
        ('{"genre":"Drama","confidence":0,"SECRET":1}', "/ breaks /additionalProperties"),
        ('{"genre":"Drama","confidence":0,"tags":["a",1]}', "/tags/1 breaks /properties/tags/items/type"),
        ("[]", "/ breaks /type"),
        ("null", "/ breaks /type"),
        ('"Drama"', "/ breaks /type"),
        ('{"genre":"Drama","confidence":' + "9" * 400 + "}", "/confidence breaks /properties/confidence/maximum"),
    ],
)
def test_given_an_answer_that_breaks_the_schema_when_checked_then_the_place_is_named_and_the_answer_is_not(
    answer: str, reason: str
) -> None:
    verdict = CHECK.check(answer)
    assert verdict.output == b""
    assert verdict.reason.startswith("the answer does not fit the schema: ")
    assert reason in verdict.reason
    assert "SECRET" not in verdict.reason


def test_given_many_faults_when_checked_then_each_is_told_up_to_a_bound() -> None:
    reason = CHECK.check(json.dumps({"genre": "X", "confidence": 2, "tags": [1] * 50})).reason
    assert reason.count(" breaks ") == 52

    reason = CHECK.check(json.dumps({"genre": "X", "confidence": 2, "tags": [1] * 5000})).reason
    assert reason.count(" breaks ") == MOST_ERRORS
    assert reason.endswith(f"; and {5002 - MOST_ERRORS} more")


def test_given_names_that_the_model_made_up_when_checked_then_the_place_does_not_tell_them() -> None:
    schema = {"type": "object", "properties": {"people": {"additionalProperties": {"type": "string"}}}}
    reason = AnswerCheck(schema).check('{"people":{"SECRET NAME":1}}').reason
    assert "/people/* breaks /properties/people/additionalProperties/type" in reason
    assert "SECRET" not in reason


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "```\n{}\n```", " \n```JSON \n{}\n  ``` \n"])
def test_given_an_answer_in_a_code_block_when_checked_then_what_is_in_it_counts_and_is_noted(fence: str) -> None:
    fits, breaks = '{"genre": "Drama", "confidence": 1}', '{"genre": "Drama"}'
    assert CHECK.check(fence.replace("{}", fits)) == Verdict(b'{"genre":"Drama","confidence":1}', "", (FENCED,))
    verdict = CHECK.check(fence.replace("{}", breaks))
    assert verdict.output == b""
    assert "lacks 'confidence'" in verdict.reason
    assert verdict.notes == (FENCED,)


@pytest.mark.parametrize("depth", [100, 254, 255, 256, 300, 600, 960, 990, 1000, 5000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        ({"type": "object"}, True),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, False),
        ({"properties": {"a": {"$ref": "#"}}, "items": {"$ref": "#"}}, True),
        ({"properties": {"a": {"$ref": "#"}}, "items": {"$ref": "#"}, "type": "object"}, False),
    ],
)
def test_given_an_answer_nested_at_any_depth_when_checked_then_there_is_a_verdict(
    depth: int, pair: str, schema: dict[str, Any], fits: bool
) -> None:
    inner = "[" * depth + "]" * depth if pair == "[]" else '{"a":' * depth + "1" + "}" * depth
    verdict = AnswerCheck(schema).check('{"a":' + inner + "}")
    assert bool(verdict.output) != bool(verdict.reason)
    assert depth > 250 or bool(verdict.output) is fits


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=30) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
).map(json.dumps))  # fmt: skip
def test_given_any_answer_when_checked_without_demands_then_it_is_json_or_refused(answer: str) -> None:
    verdict = AnswerCheck({}).check(answer)
    try:
        expected: Any = json.loads(answer)
        json.dumps(expected, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        assert verdict == Verdict(b"", "the answer is not JSON")
    else:
        assert json.loads(verdict.output) == expected
        assert verdict.reason == ""


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=30))
def test_given_no_schema_when_checked_then_any_text_is_the_answer(answer: str) -> None:
    verdict = AnswerCheck(None).check(answer)
    assert json.loads(verdict.output) == answer
    assert verdict.reason == ""


def test_given_embeddings_when_checked_then_the_vectors_are_kept_as_json() -> None:
    check = AnswerCheck(None, embeddings=True)
    assert check.check("[[0.5, -1e-3]]") == Verdict(b"[[0.5,-0.001]]")
    assert check.check("no vectors").reason == "the answer is not JSON"
