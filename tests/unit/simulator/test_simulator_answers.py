"""Answers, clock, fault plan and scenario files, without a server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from hashlib import blake2b
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.local.simulator.answers import GENRES, Prompt, answer_text, embedding, tokens_of
from infra.local.simulator.client import SimulatorControl
from infra.local.simulator.clock import VirtualClock
from infra.local.simulator.faults import Faults
from infra.local.simulator.scenario import load_scenario, parse_scenario
from tallybatch.domain.errors import BadInput


def prompt(text: str, schema: Any = None) -> Prompt:
    return Prompt(blake2b(text.encode(), digest_size=16).digest(), text, schema)


NUMBER = st.fixed_dictionaries(
    {"type": st.sampled_from(["number", "integer"]), "minimum": st.integers(-50, 0), "maximum": st.integers(2, 50)},
    optional={"exclusiveMinimum": st.integers(-40, 0), "multipleOf": st.sampled_from([1, 2])},
)
STRING = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 30),
        "maxLength": st.integers(30, 60),
    },
)
LEAF = st.one_of(
    NUMBER,
    STRING,
    st.sampled_from(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"const": {"a": [1, None]}},
            {"enum": ["x", "y", 3, None]},
            {"type": ["string", "null"]},
            {"type": "string", "format": "date"},
            {"type": "string", "format": "date-time"},
            {"type": "string", "format": "uuid"},
            {"type": "string", "format": "email"},
            {"$ref": "#/$defs/node"},
            {"allOf": [{"type": "object", "required": ["p"]}, {"properties": {"p": {"type": "integer"}}}]},
        ]
    ),
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["genre", "confidence", "quote", "other"])
    objects = st.dictionaries(names, inner, max_size=3).map(
        lambda properties: {
            "type": "object",
            "properties": properties,
            "required": sorted(properties),
            "additionalProperties": False,
        }
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner}, optional={"minItems": st.integers(0, 2), "maxItems": st.just(4)}
    )
    return st.one_of(objects, arrays, st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}))


SCHEMAS = st.recursive(LEAF, _nested, max_leaves=8)
NODE = {
    "type": "object",
    "required": ["next"],
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
}


@settings(max_examples=60, deadline=None)
@given(schema=SCHEMAS, text=st.text(max_size=30), variant=st.integers(0, 2))
def test_given_any_schema_when_answered_then_the_answer_is_valid_and_repeatable(
    schema: dict[str, Any], text: str, variant: int
) -> None:
    whole = {**schema, "$defs": {"node": NODE}}
    asked = prompt(text, whole)
    answer = answer_text(asked, variant=variant)
    assert answer == answer_text(asked, variant=variant)
    assert jsonschema_rs.validator_for(whole, validate_formats=True).is_valid(json.loads(answer)), answer


def test_given_a_film_when_asked_for_its_genre_then_it_depends_on_the_user_text_alone() -> None:
    free = {"type": "object", "properties": {"genre": {"type": "string"}}}
    listed = {"type": "object", "properties": {"genre": {"enum": ["Noir", "Silent"]}}}
    films = [f"Title: Film {number}" for number in range(200)]
    genres = [json.loads(answer_text(prompt(film, free)))["genre"] for film in films]
    assert set(genres) == set(GENRES)
    other_request = Prompt(b"another system prompt", films[0], free)
    assert json.loads(answer_text(other_request))["genre"] == genres[0]
    assert {json.loads(answer_text(prompt(film, listed)))["genre"] for film in films} == {"Noir", "Silent"}


def test_given_a_quote_when_asked_for_then_it_occurs_in_the_input() -> None:
    text = "The quick brown fox jumps over the lazy dog\nand on"
    schema = {"type": "object", "properties": {"quote": {"type": "string"}}}
    assert json.loads(answer_text(prompt(text, schema)))["quote"] in text


def test_given_no_schema_when_answered_then_plain_text_or_an_object() -> None:
    assert re.fullmatch(r"[A-Z][a-z ]+", answer_text(prompt("hello")))
    assert list(json.loads(answer_text(Prompt(b"12345678", "hello", json_object=True)))) == ["answer"]


def test_given_texts_when_measured_then_tokens_are_a_quarter_of_the_bytes_and_vectors_are_units() -> None:
    assert [tokens_of(text) for text in ("", "a", "abcd", "abcde", "äöü")] == [0, 1, 1, 2, 2]
    vector = embedding("hello", 256)
    assert vector == embedding("hello", 256) != embedding("hellp", 256)
    assert sum(value * value for value in vector) == pytest.approx(1)


def test_given_planned_actions_when_time_jumps_then_each_sees_its_own_moment() -> None:
    real = [0.0]
    clock = VirtualClock(2.0, monotonic=lambda: real[0], unix_time=lambda: 1_000.0)
    seen: list[tuple[str, float]] = []
    clock.call_at(1_010, lambda at: seen.append(("second", at)))

    def first(at: float) -> None:
        seen.append(("first", at))
        clock.call_at(at + 1, lambda later: seen.append(("planned", later)))

    clock.call_at(1_004, first)
    real[0] = 1.0
    clock.run_due()
    assert (clock.now(), seen) == (1_002.0, [])
    clock.advance(8)
    assert clock.now() == 1_010.0
    assert seen == [("first", 1_004), ("planned", 1_005), ("second", 1_010)]
    with pytest.raises(ValueError, match="only moves forward"):
        clock.advance(-1)


def test_given_a_seed_when_records_are_chosen_then_the_choice_is_stable_and_near_its_rate() -> None:
    def chosen(seed: int) -> set[int]:
        text = f"name: t\nseed: {seed}\nrecords: [{{fault: missing, rate: 0.1}}]"
        faults = Faults(parse_scenario(text, source="t"))
        return {n for n in range(5_000) if faults.record("openai", n.to_bytes(16, "big"), b"")}

    assert chosen(1) == chosen(1) != chosen(2)
    assert 400 < len(chosen(1)) < 600


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("name: t\nrecordz: []", ["recordz", "unknown key", "'records'"]),
        ("name: t\ncalls: [{on: create, fault: lost_replies}]", ["calls.0.fault", "'lost_reply'"]),
        ("name: t\ncalls: [{on: create, fault: status}]", ["calls.0.fault", "needs an argument"]),
        ("name: t\ncalls: [{on: creat, fault: lost_reply}]", ["calls.0.on"]),
        ("name: t\njobs: [{fault: 'expire:1'}]", ["jobs.0.fault", "takes no argument"]),
        ("name: t\njobs: [{fault: 'only_error_file:nope'}]", ["jobs.0.fault", "record fault"]),
        ("name: t\nrecords: [{fault: missing, rate: 2}]", ["records.0.rate"]),
        ("name: t\nname: u", ["'name' occurs twice"]),
        ("seed: 1", ["name", "required"]),
        ("- a", ["mapping"]),
        ("name: [", ["not YAML"]),
    ],
)
def test_given_a_bad_scenario_when_parsed_then_the_error_names_file_and_key(text: str, parts: list[str]) -> None:
    with pytest.raises(BadInput) as refused:
        parse_scenario(text, source="dir/mine.yaml")
    for part in ("dir/mine.yaml", *parts):
        assert part in str(refused.value)


def test_given_a_name_that_is_not_shipped_when_loaded_then_the_shipped_ones_are_named() -> None:
    with pytest.raises(BadInput, match="calm, demo"):
        load_scenario("dem")


def test_given_the_module_when_run_as_a_process_then_it_serves_until_it_is_told_to_stop() -> None:
    command = [sys.executable, "-m", "infra.local.simulator", "--port", "0", "--scenario", "calm"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            match = re.search(r"on (http://\S+);", process.stderr.readline())
            assert match is not None
            assert SimulatorControl(match[1]).health()["scenario"] == "calm"
        finally:
            process.terminate()
    assert process.returncode in (0, -15)


def test_given_a_bad_scenario_when_run_as_a_process_then_exit_code_3() -> None:
    command = [sys.executable, "-m", "infra.local.simulator", "--port", "0", "--scenario", "nope"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 3
    assert "no scenario named 'nope'" in done.stderr
