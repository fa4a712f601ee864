"""Closed sets: whatever happened over the attempts, every expected record ends in exactly one set.

The histories below are made from what happened to each record, with the set it must end in known from the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.closure import (
    AttemptRows,
    Closure,
    OpenRecord,
    ReviewRecord,
    Row,
    Sets,
    SubmissionEntry,
    decode_row,
    fold_shard,
)
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.retries import RetryPolicy, ReviewClass

MAX_ATTEMPTS = 3
POLICY = RetryPolicy(max_attempts=MAX_ATTEMPTS, backoff_s=60)
AGAIN = st.sampled_from(["retryable", "expired", "cancelled", "unqualified", "missing", "conflict"])


@dataclass(frozen=True)
class Fate:
    """What happened to a record: an outcome per attempt, and the set it belongs to after them."""

    outcomes: tuple[str, ...]
    ends: str

    def rows(self, record_id: str, shard_id: str) -> list[Row]:
        rows, tries = [], 0
        for outcome in self.outcomes:
            tries += outcome not in ("waiting", "reused")
            rows.append(Row(record_id, shard_id, OutcomeClass(outcome), tries, f"code-{outcome}"))
        return rows


@st.composite
def fates(draw: st.DrawFn) -> Fate:
    before = draw(st.lists(AGAIN, max_size=MAX_ATTEMPTS - 1))
    for _ in range(draw(st.integers(0, 2))):
        before.insert(draw(st.integers(0, len(before))), "waiting")
    tried = len(before) - before.count("waiting")
    last, ends = draw(
        st.sampled_from(
            [
                ("succeeded", "succeeded"),
                ("reused", "reused"),
                ("permanent", "failed"),
                ("refused", "failed"),
                ("truncated", "failed"),
                ("retryable", "failed" if tried == MAX_ATTEMPTS - 1 else "open"),
                ("missing", "failed" if tried == MAX_ATTEMPTS - 1 else "open"),
                ("waiting", "waiting"),
                ("unsettled", "unsettled"),
                ("", "missing"),
            ]
        )
    )
    return Fate((*before, last), ends) if last else Fate((), ends)


JOBS = st.lists(st.lists(fates(), max_size=5), min_size=1, max_size=4)


@dataclass
class Folded:
    sets: Sets
    open: list[OpenRecord]
    sources: list[list[str]]
    left_over: bool


def fold(
    job: Sequence[Sequence[Fate]], *, overdue: bool = False, random: Random | None = None, extra: Sequence[Row] = ()
) -> Folded:
    """Fold a job whose shard n has the records `n-0`, `n-1`, …; each attempt's rows come in the manifest's order."""
    attempts: list[list[tuple[str, Row]]] = [[] for _ in range(8)]
    for number, shard in enumerate(job):
        of_shard: list[list[tuple[str, Row]]] = [[] for _ in attempts]
        for place, fate in enumerate(shard):
            for attempt, row in enumerate(fate.rows(f"{number}-{place}", f"s{number}")):
                lost = row.outcome is OutcomeClass.UNSETTLED
                of_shard[attempt].append(("" if lost else f"outcomes-{attempt}", row))
        of_shard[0] += [("outcomes-0", row) for row in extra if row.shard_id == f"s{number}"]
        for attempt, rows in enumerate(of_shard):
            if random is not None:
                random.shuffle(rows)
            attempts[attempt] += rows
    streams = [AttemptRows(rows) for rows in attempts]
    done = Folded(Sets(), [], [], left_over=False)
    for number, shard in enumerate(job):
        ids = [f"{number}-{place}" for place in range(len(shard))]
        folded = fold_shard(done.sets, f"s{number}", ids, streams, POLICY, overdue=overdue)
        done.open += folded.open
        done.sources.append(folded.sources)
    done.left_over = any(stream.left_over for stream in streams)
    return done


def ends(job: Sequence[Sequence[Fate]]) -> Counter[str]:
    return Counter(fate.ends for shard in job for fate in shard)


@settings(max_examples=60, deadline=None)
@given(JOBS)
def test_given_any_job_when_folded_then_every_record_is_in_the_one_set_its_history_says(job: list[list[Fate]]) -> None:
    sets, expected = fold(job).sets, ends(job)
    assert sets.expected == sum(map(len, job))
    assert sets.succeeded == expected["succeeded"] + expected["reused"]
    assert sets.reused == expected["reused"]
    assert sets.failed == Counter(fate.outcomes[-1] for shard in job for fate in shard if fate.ends == "failed")
    assert sets.open == expected["open"] + expected["waiting"] + expected["unsettled"]
    assert (sets.waiting, sets.unsettled, sets.missing) == (
        expected["waiting"], expected["unsettled"], expected["missing"],
    )  # fmt: skip
    assert (sets.unknown, sets.duplicate) == (0, 0)
    assert sets.expected == sets.succeeded + sets.failed.total() + sets.open + sets.missing


@settings(max_examples=60, deadline=None)
@given(JOBS)
def test_given_any_job_when_folded_then_just_the_open_records_are_tried_anew_with_their_tries_and_reason(
    job: list[list[Fate]],
) -> None:
    done = fold(job)
    expected = [
        OpenRecord(
            f"{number}-{place}",
            f"s{number}",
            sum(outcome != "waiting" for outcome in fate.outcomes),
            f"code-{fate.outcomes[-1]}",
        )
        for number, shard in enumerate(job)
        for place, fate in enumerate(shard)
        if fate.ends in ("open", "waiting")
    ]
    assert done.open == expected
    assert all(record.tries < MAX_ATTEMPTS for record in done.open)
    assert not done.left_over


@settings(max_examples=40, deadline=None)
@given(JOBS, st.randoms(use_true_random=False))
def test_given_a_shards_rows_in_any_order_when_folded_then_the_sets_are_the_same(
    job: list[list[Fate]], random: Random
) -> None:
    ordered, shuffled = fold(job), fold(job, random=random)
    assert shuffled.sets == ordered.sets
    assert shuffled.open == ordered.open


@settings(max_examples=40, deadline=None)
@given(JOBS)
def test_given_a_deadline_that_has_passed_when_folded_then_nothing_is_tried_again_and_only_lost_shards_stay_open(
    job: list[list[Fate]],
) -> None:
    done, expected = fold(job, overdue=True), ends(job)
    assert done.open == []
    assert (done.sets.open, done.sets.waiting) == (expected["unsettled"], 0)
    assert done.sets.unsettled == expected["unsettled"]
    assert done.sets.succeeded == expected["succeeded"] + expected["reused"]
    assert done.sets.failed.total() == expected["failed"] + expected["open"] + expected["waiting"]
    assert done.sets.failed["waiting"] == expected["waiting"]
    assert done.sets.missing == expected["missing"]


@settings(max_examples=40, deadline=None)
@given(JOBS, st.lists(st.sampled_from(["known", "foreign"]), min_size=1, max_size=4))
def test_given_rows_too_many_when_folded_then_each_is_counted_as_unknown_or_duplicate(
    job: list[list[Fate]], kinds: list[str]
) -> None:
    job = [[Fate(("succeeded",), "succeeded"), *job[0]], *job[1:]]
    extra = [
        Row("0-0" if kind == "known" else f"alien-{number}", "s0", OutcomeClass.SUCCEEDED, 1)
        for number, kind in enumerate(kinds)
    ]
    sets = fold(job, extra=extra).sets
    assert (sets.duplicate, sets.unknown) == (kinds.count("known"), kinds.count("foreign"))
    assert sets.succeeded == ends(job)["succeeded"] + ends(job)["reused"]


def test_given_an_id_twice_in_the_manifest_when_folded_then_it_is_a_duplicate_and_the_sets_cannot_close() -> None:
    sets = Sets()
    rows = AttemptRows([("k", Row("a", "s", OutcomeClass.SUCCEEDED, 1))])
    fold_shard(sets, "s", ["a", "a"], [rows], POLICY, overdue=False)
    assert (sets.expected, sets.succeeded, sets.duplicate, sets.missing) == (2, 1, 1, 1)


def fold_one(*outcomes: str, policy: RetryPolicy = POLICY) -> tuple[Sets, list[OpenRecord], list[ReviewRecord]]:
    sets = Sets()
    rows = Fate(outcomes, "").rows("a", "s")
    attempts = [AttemptRows([(f"object-{number}", row)]) for number, row in enumerate(rows)]
    folded = fold_shard(sets, "s", ["a"], attempts, policy, overdue=False)
    return sets, folded.open, folded.review


def test_given_a_record_that_was_accepted_when_a_later_attempt_says_otherwise_then_it_stays_accepted() -> None:
    for later in ("permanent", "missing", "unsettled", "waiting"):
        sets, still_open, _ = fold_one("succeeded", later)
        assert (sets.succeeded, sets.open, sets.failed.total(), still_open) == (1, 0, 0, []), later


def test_given_a_record_that_failed_for_good_when_a_later_attempt_succeeds_then_it_is_in_one_set_only() -> None:
    sets, _, _ = fold_one("permanent", "succeeded")
    assert (sets.succeeded, dict(sets.failed)) == (0, {"permanent": 1})


def test_given_any_number_of_waits_when_folded_then_no_try_is_used_up() -> None:
    sets, still_open, _ = fold_one("retryable", *["waiting"] * 6)
    assert (sets.open, sets.waiting) == (1, 1)
    assert [record.tries for record in still_open] == [1]
    assert fold_one(*["waiting"] * 6, "retryable")[1][0].tries == 1
    assert fold_one(*["waiting"] * 6, "retryable", policy=RetryPolicy(1, 60))[0].failed == {"retryable": 1}


PEOPLE = RetryPolicy(MAX_ATTEMPTS, 60, review=frozenset(ReviewClass))


def test_given_records_for_people_when_folded_then_they_are_listed_with_why_and_in_no_other_set() -> None:
    for outcomes, why in (
        (("conflict",), "conflict"),
        (("retryable", "refused"), "refused"),
        (("truncated",), "truncated"),
        (("permanent",), "permanent"),
        (("unqualified",) * 3, "unqualified"),
        (("retryable", "missing", "expired"), "exhausted"),
    ):
        sets, still_open, review = fold_one(*outcomes, policy=PEOPLE)
        last, tries = outcomes[-1], len(outcomes)
        code, key = f"code-{last}", f"object-{tries - 1}"
        assert review == [ReviewRecord("a", "s", tries, why, OutcomeClass(last), code, key)]
        assert dict(sets.in_review) == {why: 1}
        assert (sets.succeeded, sets.failed.total(), sets.open, sets.missing, still_open) == (0, 0, 0, 0, [])


def test_given_a_record_for_people_when_they_decide_in_a_further_attempt_then_their_row_counts() -> None:
    for decision, ends in (("succeeded", "succeeded"), ("rejected", "failed"), ("retryable", "open")):
        sets, _, review = fold_one("conflict", decision, policy=PEOPLE)
        counted = {"succeeded": sets.succeeded, "failed": sets.failed.total(), "open": sets.open}
        assert counted == {**dict.fromkeys(counted, 0), ends: 1}
        assert review == []
        assert not sets.in_review


def test_given_a_lost_shard_when_folded_then_its_records_resume_whatever_their_tries() -> None:
    for before in ([], ["retryable"], ["retryable", "expired"]):
        sets, still_open, _ = fold_one(*before, "unsettled")
        assert (sets.open, sets.unsettled, still_open) == (1, 1, [])


def test_given_the_objects_of_each_attempt_when_folded_then_a_shard_lists_those_it_appears_in_once() -> None:
    first = AttemptRows(
        [("one", Row("a", "s", OutcomeClass.RETRYABLE, 1)), ("one", Row("b", "s", OutcomeClass.SUCCEEDED, 1))]
    )
    second = AttemptRows([("two", Row("a", "s", OutcomeClass.SUCCEEDED, 2))])
    lost = AttemptRows([("", Row("a", "s", OutcomeClass.UNSETTLED, 3))])
    folded = fold_shard(Sets(), "s", ["a", "b"], [first, second, lost], POLICY, overdue=False)
    assert folded.sources == ["one", "two"]


def test_given_rows_of_a_shard_nobody_asks_for_when_folded_then_they_are_left_over() -> None:
    rows = AttemptRows(
        [("k", Row("a", "s0", OutcomeClass.SUCCEEDED, 1)), ("k", Row("b", "other", OutcomeClass.SUCCEEDED, 1))]
    )
    assert [row.record_id for _, row in rows.take("s0")] == ["a"]
    assert list(rows.take("s1")) == []
    assert rows.left_over
    assert not AttemptRows([]).left_over


def test_given_a_record_without_a_code_when_open_then_its_outcome_is_the_reason() -> None:
    rows = AttemptRows([("k", Row("a", "s", OutcomeClass.EXPIRED, 1))])
    (still_open,) = fold_shard(Sets(), "s", ["a"], [rows], POLICY, overdue=False).open
    assert still_open.reason == "expired"


def test_given_an_outcome_line_when_decoded_then_closure_reads_what_it_needs_of_it() -> None:
    line = b'{"record_id":"a","shard_id":"s","attempt":2,"tries":2,"outcome":"expired","code":"x","n":1}'
    assert decode_row(line) == Row("a", "s", OutcomeClass.EXPIRED, 2, "x")


def closure(**counts: object) -> Closure:
    base: dict[str, object] = {
        "job_key": "k", "attempt": 1, "at": 0.0, "expected": 10, "succeeded": 7, "reused": 2,
        "failed": {"permanent": 2, "missing": 1}, "open": 0, "waiting": 0, "unsettled": 0, "missing": 0, "unknown": 0,
        "duplicate": 0, "overdue": False, "open_key": "", "publish_key": "", "submissions": (),
    }  # fmt: skip
    return msgspec.convert({**base, **counts}, Closure)


@pytest.mark.parametrize(
    ("counts", "closed"),
    [
        ({}, True),
        ({"succeeded": 10, "failed": {}}, True),
        ({"succeeded": 0, "failed": {"permanent": 10}}, True),
        ({"expected": 0, "succeeded": 0, "failed": {}}, True),
        ({"missing": 1}, False),
        ({"unknown": 1}, False),
        ({"duplicate": 1}, False),
        ({"open": 1}, False),
        ({"in_review": {"conflict": 1}}, False),
        ({"succeeded": 6, "in_review": {"conflict": 1}}, False),
        ({"succeeded": 6, "open": 1}, False),
        ({"succeeded": 6, "missing": 1}, False),
        ({"succeeded": 6}, False),
        ({"succeeded": 8}, False),
        ({"expected": 11}, False),
        ({"failed": {"permanent": 2}}, False),
    ],
)
def test_given_counts_when_asked_then_closed_means_that_all_of_the_identity_holds(
    counts: dict[str, object], closed: bool
) -> None:
    assert closure(**counts).closed is closed


def test_given_a_closure_when_stored_then_it_comes_back_the_same() -> None:
    entry = SubmissionEntry(1, "s", "k" * 64, "RECONCILED", provider_jobs=("batch_1",), counts={"succeeded": 7})
    made = msgspec.structs.replace(closure(), submissions=(entry,))
    assert msgspec.json.decode(msgspec.json.encode(made), type=Closure) == made
    assert made.failed_total == 3


def test_given_an_attempt_at_two_targets_when_taken_shard_by_shard_then_each_stream_gives_its_part() -> None:
    """Each target's shards are in the manifest's order by themselves, not together."""
    row = partial(Row, outcome=OutcomeClass.SUCCEEDED, tries=1)
    rows = AttemptRows([("k", row("a", "s1")), ("k", row("c", "s2"))], [("m", row("b", "s1")), ("m", row("d", "s2"))])

    assert [[(key, one.record_id) for key, one in rows.take(shard)] for shard in ("s1", "s2")] == [
        [("k", "a"), ("m", "b")],
        [("k", "c"), ("m", "d")],
    ]
    assert not rows.left_over
