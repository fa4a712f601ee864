"""Golden records, gates and label distributions: figures that follow from labels and answers alone."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybatch.domain.errors import BadInput
from tallybatch.domain.quality_gates import ANY_ACCEPTED, MIN_ACCEPTANCE, MIN_ACCURACY, judge
from tallybatch.domain.quality_golden import MOST_LABELS, NO_ANSWER, OTHER, GoldenFigures, GoldenTally, read_golden
from tallybatch.domain.quality_labels import LONGEST_VALUE, MOST_VALUES, RARE, LabelTally, merged, worth_showing
from tallybatch.domain.spec_quality import Golden, Quality

GOLDEN = Golden(file="g.jsonl", field="genre", min_accuracy=0.5)


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def read(text: str, **changed: Any) -> dict[str, str]:
    golden = Golden.model_validate({**GOLDEN.model_dump(), **changed})
    return read_golden(text.encode(), golden, key="id", where="golden/acme/g.jsonl")


def figures(labels: dict[str, str], answers: dict[str, Any]) -> GoldenFigures:
    tally = GoldenTally(labels, "genre")
    for key in labels:
        tally.expect(key)
    for key, answer in answers.items():
        tally.answer(key, raw(answer))
    return tally.figures("f" * 64)


def test_given_a_golden_file_when_read_then_labels_are_texts_and_null_is_none() -> None:
    text = '{"id": "a", "genre": "War"}\n\n{"id": 7, "genre": 1.0}\n{"id": "c", "genre": null}\n{"id":"d","genre":true}'
    assert read(text) == {"a": "War", "7": "1", "d": "true"}
    assert read('{"id": "a", "meta": {"g": "War"}}', label="/meta/g") == {"a": "War"}


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("", 0, "golden_empty"),
        ('{"id": "a", "genre": null}', 0, "golden_empty"),
        ('{"id": "a", "genre": "x"}\n{"id": "b"}', 2, "missing_field"),
        ('{"id": "a", "genre": "x"}\n{"genre": "x"}', 2, "missing_field"),
        ('{"id": "", "genre": "x"}', 1, "key_shape"),
        ('{"id": "a", "genre": {}}', 1, "golden_label"),
        ('{"id": "a", "genre": "x"}\n{"id": "a", "genre": "x"}', 2, "golden_twice"),
        ("[1]", 1, "not_an_object"),
        ("oops", 1, "invalid_json"),
        (" " * 20_000_001, 0, "golden_size"),
    ],
)
def test_given_a_golden_file_that_is_malformed_when_read_then_its_lines_are_named(
    text: str, line: int, code: str
) -> None:
    with pytest.raises(BadInput) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert (problem.line, problem.code, caught.value.where) == (line, code, "golden/acme/g.jsonl")


def test_given_answers_when_compared_with_labels_then_each_is_right_wrong_or_absent() -> None:
    labels = {"a": "War", "b": "War", "c": "Drama", "d": "1", "e": "War"}
    answers = {
        "a": {"genre": "War"}, "b": {"genre": "Drama"}, "c": {"genre": ["Drama"]}, "d": {"genre": 1.0},
        "x": {"genre": "War"},
    }  # fmt: skip
    found = figures(labels, answers)
    assert (found.labelled, found.answered, found.right) == (5, 3, 2)
    assert figures(dict.fromkeys("abcd", "War"), {key: {"genre": "Crime"} for key in "abc"}).answers[1] == "Crime"
    assert figures(dict.fromkeys("abcd", "War"), {key: {"genre": "Crime"} for key in "ab"}).answers[1] == OTHER
    assert figures(dict.fromkeys("abcd", "War"), {key: {"genre": "C" * 65} for key in "abc"}).answers[1] == OTHER
    assert found.labels == ("War", "1", "Drama")
    assert found.answers == ("War", "1", "Drama", NO_ANSWER)
    assert found.matrix == ((1, 0, 1, 1), (0, 1, 0, 0), (0, 0, 0, 1))


def test_given_two_answers_for_a_record_when_compared_then_the_first_counts() -> None:
    tally = GoldenTally({"a": "War"}, "genre")
    tally.expect("a")
    tally.answer("a", raw({"genre": "War"}))
    tally.answer("a", raw({"genre": "Drama"}))
    assert tally.figures("").right == 1


def test_given_labels_of_records_that_are_not_in_the_job_when_compared_then_they_do_not_count() -> None:
    tally = GoldenTally({"a": "War", "b": "War"}, "genre")
    tally.expect("a")
    assert (tally.figures("").labelled, tally.figures("").right) == (1, 0)


def test_given_a_label_that_reads_like_no_answer_when_there_is_none_then_it_is_not_right() -> None:
    assert figures({"a": NO_ANSWER}, {}).right == 0


labelled = st.dictionaries(st.text(min_size=1, max_size=4), st.sampled_from([str(n) for n in range(40)]), min_size=1)


@given(labelled, labelled)
def test_given_any_labels_and_answers_when_compared_then_the_matrix_holds_each_labelled_record_once(
    labels: dict[str, str], answers: dict[str, str]
) -> None:
    found = figures(labels, {key: {"genre": answer} for key, answer in answers.items()})
    assert sum(map(sum, found.matrix)) == found.labelled == len(labels)
    assert found.right == sum(answers.get(key) == label for key, label in labels.items())
    assert len(found.labels) <= MOST_LABELS + 1
    assert len(found.answers) <= MOST_LABELS + 2
    assert {len(row) for row in found.matrix} == {len(found.answers)}
    cells = {
        (label, answer): count
        for label, row in zip(found.labels, found.matrix, strict=True)
        for answer, count in zip(found.answers, row, strict=True)
    }
    counted = Counter((label, answers.get(key, NO_ANSWER)) for key, label in labels.items())
    for (label, answer), count in cells.items():
        if OTHER not in (label, answer):
            assert count == counted[label, answer]


def quality(**keys: Any) -> Quality:
    return Quality.model_validate(keys)


@pytest.mark.parametrize(
    ("asked", "accepted", "passed"),
    [(0.07, 7, True), (0.07, 6, False), (1, 100, True), (1, 99, False), (0, 1, True), (0.29, 29, True)],
)  # fmt: skip
def test_given_a_share_when_compared_with_a_gate_then_exactly(asked: float, accepted: int, passed: bool) -> None:
    gates = {g.name: g for g in judge(quality(min_acceptance=asked), expected=100, succeeded=accepted, golden=None)}
    assert gates[MIN_ACCEPTANCE].passed is passed
    assert bool(gates[MIN_ACCEPTANCE].reason) is not passed


def test_given_no_gates_when_judged_then_one_answer_is_enough_and_none_is_not() -> None:
    (gate,) = judge(quality(), expected=5, succeeded=1, golden=None)
    assert (gate.name, gate.passed) == (ANY_ACCEPTED, True)
    (gate,) = judge(quality(), expected=5, succeeded=0, golden=None)
    assert (gate.passed, gate.reason) == (False, "none of 5 records was accepted")


def test_given_no_labelled_record_when_judged_then_accuracy_is_not_taken_on_trust() -> None:
    terms = quality(golden=GOLDEN.model_dump())
    gates = judge(terms, expected=5, succeeded=5, golden=figures({}, {}))
    (gate,) = [gate for gate in gates if gate.name == MIN_ACCURACY]
    assert (gate.passed, gate.total) == (False, 0)
    assert "0 of 0 labelled records" in gate.reason


SCHEMA = {
    "type": "object",
    "properties": {
        "genre": {"enum": ["War", "Drama"]},
        "good": {"type": "boolean"},
        "mood": {"type": ["string", "null"]},
        "score": {"type": "number"},
        "summary": {"type": "string"},
    },
}


def test_given_answers_when_their_labels_are_counted_then_only_fields_that_repeat_themselves_are_kept() -> None:
    tally = LabelTally(SCHEMA)
    for number in range(100):
        tally.add(raw({
            "genre": "War" if number % 4 else "Drama", "good": number % 2 == 0, "mood": None if number < 10 else "sad",
            "score": number, "summary": f"summary {number}",
        }))  # fmt: skip
    assert tally.labels == {
        "genre": {"Drama": 25, "War": 75}, "good": {"true": 50, "false": 50}, "mood": {"(none)": 10, "sad": 90},
    }  # fmt: skip


def test_given_a_text_that_is_long_when_counted_then_the_field_is_given_up_and_not_copied() -> None:
    tally = LabelTally(SCHEMA)
    tally.add(raw({"genre": "War", "summary": "s" * (LONGEST_VALUE + 1), "mood": ["a", "list"]}))
    assert set(tally.labels) == {"genre", "good"}


def test_given_parts_of_a_job_when_merged_then_a_field_that_one_gave_up_is_given_up() -> None:
    one, two = {"genre": {"War": 2, "Drama": 1}, "mood": {"sad": 3}}, {"genre": {"War": 5, "Crime": 1}}
    assert merged([one, two]) == {"genre": {"War": 7, "Crime": 1, "Drama": 1}}
    assert merged([]) == {}
    many = [{"mood": {str(number): 1}} for number in range(MOST_VALUES + 1)]
    assert merged(many) == {}
    assert merged(many[1:]) != {}


def test_given_texts_that_hardly_repeat_when_counted_then_they_are_answers_and_are_not_told() -> None:
    tally = LabelTally(SCHEMA)
    for number in range(9):
        tally.add(
            raw({"genre": "War" if number else "Drama", "mood": f"canary {number}", "summary": "s" * (number // 4)})
        )
    assert tally.labels["genre"] == {"War": 8, "Drama": 1}
    assert tally.labels["mood"] == {RARE: 9}
    assert tally.labels["summary"] == {"": 4, "s": 4, RARE: 1}
    assert set(worth_showing(tally.labels)) == {"genre", "good", "summary"}


@pytest.mark.parametrize("schema", [None, {}, {"properties": []}, {"properties": {"a": True}}, {"type": "object"}])
def test_given_a_schema_without_labels_when_counted_then_nothing_is(schema: Any) -> None:
    tally = LabelTally(schema)
    tally.add(raw({"a": "b"}))
    tally.add(raw("text"))
    assert tally.labels == {}


def test_given_an_answer_that_is_no_object_when_counted_then_nothing_is_raised() -> None:
    tally = LabelTally(SCHEMA)
    tally.add(raw([1, 2]))
    assert tally.labels == {}


@pytest.mark.parametrize("name", ["_x", "class", "a-b", "f0", "", "é", "a.b"])
def test_given_a_field_with_any_name_when_counted_then_it_is_found(name: str) -> None:
    tally = LabelTally({"properties": {name: {"enum": ["v"]}}})
    tally.add(raw({name: "v"}))
    assert json.loads(json.dumps(tally.labels)) == {name: {"v": 1}}
