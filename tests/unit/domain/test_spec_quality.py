"""The quality section of a spec: what could not be judged later is refused now, with its key and line."""

from __future__ import annotations

import pytest

from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.spec_file import parse_spec, resolved

BASE = """\
name: film-genre
provider: openai
model: m-1
prompt: {user: '{{ title }}'}
"""
SCHEMA = (
    "output: {schema: {type: object, additionalProperties: false, properties: {genre: {type: string}, quote: {}}}}\n"
)
OPEN = "output: {schema: {type: object, additionalProperties: {type: string}, properties: {genre: {type: string}}}}\n"
EMBEDDING = BASE.replace("model: m-1", "model: m-1\nendpoint: /v1/embeddings")


def problem(text: str) -> Problem:
    with pytest.raises(BadInput) as caught:
        parse_spec(text.encode(), file="film.yaml")
    (found,) = caught.value.problems
    return found


@pytest.mark.parametrize(
    "quality",
    [
        "quality: {rules: ['output.genre != input.title']}",
        "quality: {quotes: [quote, /quote]}",
        "quality: {golden: {file: g.jsonl, field: genre, min_accuracy: 0.8}}",
        "quality: {golden: {file: g.jsonl, field: /genre, label: /meta/major_genre, min_accuracy: 1}}",
        "quality: {min_acceptance: 0.98}",
        "quality: {rules: ['output.genre != \"output.gener and input.titel\" && output.genre.contains(input.title)']}",
    ],
)
def test_given_a_sound_section_when_read_then_it_is_taken(quality: str) -> None:
    spec = parse_spec((BASE + SCHEMA + quality).encode())
    assert resolved(spec)["quality"]["rules"] == list(spec.quality.rules)


@pytest.mark.parametrize(
    ("text", "key", "line", "reason"),
    [
        (BASE + SCHEMA + "quality:\n  rules:\n    - output.x >\n", "quality.rules[0]", 8, "not CEL"),
        (
            BASE + SCHEMA + "quality:\n  rules:\n    - output.genre == 'x'\n    - |\n      output.genre != '' &&\n"
            "      tilte == 'x'\n",
            "quality.rules[1]", 11, "uses 'tilte'; there are only input and output",
        ),
        (BASE + SCHEMA + "quality: {rules: [1]}", "quality.rules[0]", 6, "must be text"),
        (BASE + SCHEMA + "quality: {rules: ['']}", "quality.rules[0]", 6, "must not be empty"),
        (BASE + SCHEMA + "quality: {rules: ['true']}", "quality.rules[0]", 6, "looks at neither input nor output"),
        (
            BASE + SCHEMA + "quality:\n  rules:\n    - |\n      output.genre != '' &&\n      input.titel != ''\n",
            "quality.rules[0]", 10, "'titel' is not among input.fields, so no rule sees it; did you mean 'title'?",
        ),
        (BASE + SCHEMA + "quality: {rules: ['has(input.x) || output.genre != \"\"']}", "quality.rules[0]", 6, "'x' is"),
        (
            BASE + SCHEMA + "quality: {rules: ['output.gener != \"\"']}",
            "quality.rules[0]", 6, "'gener' is not in output.schema; did you mean 'genre'?",
        ),
        (
            BASE + SCHEMA + "quality: {rules: ['!has(output.note)']}",
            "quality.rules[0]", 6, "'note' is not in output.schema",
        ),
        (BASE + "quality: {rules: ['output.genre != \"\"']}", "quality.rules[0]", 5, "an answer has no fields"),
        (BASE + SCHEMA + "quality: {quotes: [/quot]}", "quality.quotes[0]", 6, "not in output.schema; did you mean"),
        (BASE + SCHEMA + "quality: {quotes: ['/a~b']}", "quality.quotes[0]", 6, "is not a JSON pointer"),
        (BASE + "quality: {quotes: [quote]}", "quality.quotes[0]", 5, "without output.schema"),
        (EMBEDDING + "quality: {quotes: [quote]}", "quality.quotes[0]", 6, "a vector quotes nothing"),
        (
            EMBEDDING + "quality: {golden: {file: g.jsonl, field: genre, min_accuracy: 1}}",
            "quality.golden", 6, "a vector has no label",
        ),
        (
            BASE + "quality: {golden: {file: g.jsonl, field: genre, min_accuracy: 1}}",
            "quality.golden.field", 5, "without output.schema",
        ),
        (
            BASE + SCHEMA + "quality: {golden: {file: g.jsonl, field: genr, min_accuracy: 1}}",
            "quality.golden.field", 6, "did you mean 'genre'?",
        ),
        (
            BASE + SCHEMA + "quality: {golden: {file: ../g.jsonl, field: genre, min_accuracy: 1}}",
            "quality.golden.file", 6, "is not allowed",
        ),
        (
            BASE + SCHEMA + "quality: {golden: {file: g.jsonl, field: genre, label: /a~b, min_accuracy: 1}}",
            "quality.golden.label", 6, "is not a JSON pointer",
        ),
        (
            BASE + SCHEMA + "quality: {golden: {file: g.jsonl, field: genre}}",
            "quality.golden.min_accuracy", 6, "is required",
        ),
        (BASE + SCHEMA + "quality: {min_acceptance: 98}", "quality.min_acceptance", 6, "must be at most 1"),
    ],
)  # fmt: skip
def test_given_a_section_that_cannot_be_judged_when_read_then_key_line_and_reason_are_told(
    text: str, key: str, line: int, reason: str
) -> None:
    found = problem(text)
    assert (found.key, found.line) == (key, line)
    assert reason in found.reason


@pytest.mark.parametrize("quality", ["quality: {quotes: [anything]}", "quality: {quotes: ['/*/quote']}"])
def test_given_a_schema_that_allows_more_when_a_field_is_not_listed_then_it_is_taken(quality: str) -> None:
    assert parse_spec((BASE + OPEN + quality).encode()).quality.quotes


def test_given_embeddings_when_they_have_rules_then_these_see_the_vectors() -> None:
    assert parse_spec((EMBEDDING + "quality: {rules: ['size(output) == 1']}").encode()).quality.rules


@pytest.mark.parametrize(
    "rule", ["output.note != input.title", "!has(output.note) || output.note != input.title", "output.size() > 0"]
)
def test_given_an_open_schema_when_a_rule_reads_what_it_does_not_list_then_it_is_taken(rule: str) -> None:
    assert parse_spec((BASE + OPEN + f"quality: {{rules: ['{rule}']}}").encode()).quality.rules == (rule,)
    assert parse_spec((BASE + "quality: {rules: ['output.contains(input.title)']}").encode()).quality.rules


def test_given_a_schema_that_says_nothing_of_other_fields_when_a_rule_looks_for_one_first_then_it_is_taken() -> None:
    silent = SCHEMA.replace(" additionalProperties: false,", "")
    assert parse_spec((BASE + silent + "quality: {rules: ['!has(output.note)']}").encode()).quality.rules
    assert "not in output.schema" in problem(BASE + silent + "quality: {rules: ['output.note == 1']}").reason
