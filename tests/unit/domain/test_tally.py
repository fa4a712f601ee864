"""The tally of a shard: joined by id, whatever the order, and nothing that came back is lost from the count."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.outcomes import OutcomeClass, RawRef, RecordResult, Usage
from tallybatch.domain.tally import ShardTally, Tallied

FAILURES = ["permanent", "refused", "retryable", "expired", "cancelled", "truncated"]


def result(record_id: str, outcome: str = "succeeded", answer: str | None = None, **fields: object) -> RecordResult:
    answer = "Drama" if answer is None and outcome == "succeeded" else answer
    return RecordResult(record_id, OutcomeClass(outcome), answer, **fields)  # type: ignore[arg-type]


def raw(number: int) -> RawRef:
    return RawRef("s3://bucket/raw/output", number, 10, f"{number:064}")


def tally(expected: list[str], results: list[RecordResult]) -> ShardTally:
    made = ShardTally(expected)
    for number, each in enumerate(results):
        assert made.add(each, raw(number)) == (each.record_id in expected)
    return made


def only(made: ShardTally) -> Tallied:
    (back,) = made.returned()
    assert back is not None
    return back


LINES = st.lists(
    st.builds(
        result,
        st.sampled_from("abcxy"),
        st.sampled_from(["succeeded", "succeeded", *FAILURES]),
        st.sampled_from(["Drama", "Comedy"]),
        code=st.sampled_from(["", "x"]),
    ),
    max_size=12,
)
EXPECTED = ["a", "b", "c", "d"]


def decided(back: Tallied | None) -> tuple[str, str | None, str]:
    """All that a record's disposition depends on. Of a conflict no answer is taken."""
    if back is None:
        return "missing", None, ""
    if back.conflict:
        return "conflict", None, ""
    answered = back.result.outcome is OutcomeClass.SUCCEEDED
    return back.result.outcome.value, back.result.answer if answered else None, "" if answered else back.result.code


@settings(max_examples=80, deadline=None)
@given(LINES, st.randoms(use_true_random=False))
def test_given_results_in_any_order_when_tallied_then_what_follows_is_the_same(
    lines: list[RecordResult], random: Random
) -> None:
    shuffled = lines[:]
    random.shuffle(shuffled)
    one, other = tally(EXPECTED, lines), tally(EXPECTED, shuffled)
    assert [decided(back) for back in one.returned()] == [decided(back) for back in other.returned()]
    assert one.anomalies["unknown"] == other.anomalies["unknown"]
    assert one.anomalies.total() == other.anomalies.total()


@settings(max_examples=80, deadline=None)
@given(LINES)
def test_given_any_results_when_tallied_then_each_expected_record_is_there_once_in_the_given_order(
    lines: list[RecordResult],
) -> None:
    made = tally(EXPECTED, lines)
    returned = {line.record_id for line in lines}
    returned_for = dict(zip(EXPECTED, made.returned(), strict=True))
    assert {record_id for record_id, back in returned_for.items() if back is not None} == returned & set(EXPECTED)
    for record_id, back in returned_for.items():
        answers = {line.answer for line in lines if line.record_id == record_id and line.outcome == "succeeded"}
        if back is None:
            continue
        assert back.conflict == (len(answers) > 1)
        assert (back.result.outcome is OutcomeClass.SUCCEEDED) == bool(answers)
        assert back.result.record_id == record_id
        assert lines[back.raw.offset] == back.result


@settings(max_examples=60, deadline=None)
@given(LINES)
def test_given_any_results_when_tallied_then_unknown_and_repeated_lines_are_all_counted(
    lines: list[RecordResult],
) -> None:
    made = tally(EXPECTED, lines)
    times = Counter(line.record_id for line in lines)
    assert made.anomalies["unknown"] == times["x"] + times["y"]
    repeated = sum(times[record_id] - 1 for record_id in EXPECTED if times[record_id])
    assert made.anomalies.total() == repeated + made.anomalies["unknown"]


@pytest.mark.parametrize(
    ("lines", "conflict", "outcome", "notes"),
    [
        ([("succeeded", "A"), ("succeeded", "A")], False, "succeeded", {"duplicate_same"}),
        ([("succeeded", "A"), ("succeeded", "B")], True, None, {"conflict"}),
        ([("succeeded", "A"), ("succeeded", "A"), ("succeeded", "B")], True, None, {"duplicate_same", "conflict"}),
        ([("succeeded", "A"), ("retryable", None)], False, "succeeded", {"success_and_error"}),
        ([("succeeded", "A"), ("permanent", None)], False, "succeeded", {"success_and_error"}),
        ([("succeeded", "A"), ("truncated", "A")], False, "succeeded", {"success_and_error"}),
        ([("expired", None), ("expired", None)], False, "expired", {"duplicate_same"}),
        ([("permanent", None), ("retryable", None)], False, "retryable", {"errors_differ"}),
        ([("refused", None), ("expired", None)], False, "expired", {"errors_differ"}),
        ([("succeeded", "A"), ("retryable", None), ("succeeded", "B")], True, None, {"success_and_error", "conflict"}),
    ],
)
def test_given_a_record_more_than_once_when_tallied_then_the_outcome_does_not_depend_on_the_order(
    lines: list[tuple[str, str | None]], conflict: bool, outcome: str | None, notes: set[str]
) -> None:
    for order in itertools.permutations(lines):
        back = only(tally(["a"], [result("a", kind, answer) for kind, answer in order]))
        assert back.conflict is conflict
        assert notes <= set(back.notes) | {"duplicate_same"}
        if outcome is not None:
            assert back.result.outcome.value == outcome
            assert set(back.notes) == notes


def test_given_an_answer_after_an_error_when_tallied_then_answer_and_raw_bytes_are_the_answers() -> None:
    back = only(tally(["a"], [result("a", "retryable", code="500"), result("a", answer="Western")]))
    assert (back.result.answer, back.raw) == ("Western", raw(1))


def test_given_two_errors_with_different_codes_when_tallied_then_the_same_one_is_kept_either_way() -> None:
    lines = [result("a", "retryable", code="b"), result("a", "retryable", code="a")]
    for order in (lines, lines[::-1]):
        made = tally(["a"], order)
        assert only(made).result.code == "a"
        assert made.anomalies == {"errors_differ": 1}


def test_given_a_note_that_repeats_when_tallied_then_the_record_has_it_once_and_the_count_has_it_twice() -> None:
    made = tally(["a"], [result("a"), result("a"), result("a")])
    assert only(made).notes == ("duplicate_same",)
    assert made.anomalies == {"duplicate_same": 2}


def test_given_an_unknown_id_when_tallied_then_it_changes_no_record() -> None:
    made = tally(["a"], [result("z")])
    assert list(made.returned()) == [None]
    assert made.anomalies == {"unknown": 1}


def test_given_usage_when_tallied_then_each_execution_is_billed_once_known_or_not() -> None:
    use = Usage(input=10, cached_input=4, output=3, reasoning=1)
    lines = [
        result("a", request_id="r1", usage=use),
        result("a", request_id="r1", usage=use),
        result("b", "retryable", request_id="r2", usage=use),
        result("b", request_id="r3", usage=use),
        result("z", request_id="r4", usage=use),
        result("c", usage=use),
        result("c", usage=use),
    ]
    assert tally(["a", "b", "c"], lines).usage == Usage(input=60, cached_input=24, output=18, reasoning=6)


def test_given_an_execution_that_also_came_under_an_unknown_id_when_tallied_then_it_is_billed_once() -> None:
    use = Usage(input=10, output=3)
    lines = [
        result("y", request_id="r1", usage=use),
        result("a", request_id="r1", usage=use),
        result("z", request_id="r2", usage=use),
        result("z", request_id="r2", usage=use),
        result("x", usage=use),
    ]
    assert tally(["a"], lines).usage == Usage(input=30, output=9)


def test_given_lines_without_a_request_id_when_tallied_then_the_same_bytes_are_one_execution() -> None:
    made, use = ShardTally(["a"]), Usage(input=10)
    for number in (1, 1, 2):
        made.add(result("a", usage=use), raw(number))
    assert made.usage == Usage(input=20)


def test_given_nothing_when_tallied_then_every_record_is_open_and_nothing_is_billed() -> None:
    made = ShardTally(["a", "b"])
    assert list(made.returned()) == [None, None]
    assert made.usage == Usage()
    assert made.anomalies == {}
