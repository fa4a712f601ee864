"""The log of single calls: who may send which call, which answer counts, and what may have been paid for besides."""

from __future__ import annotations

import pytest

from tallybatch.steps.call_log import CallLog, End
from tests.support.memory_objects import MemoryObjects

RECORD = "0a" * 16
OTHER = "0b" * 16
WINDOW_S = 60
LATER = 1000.0


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


def log(objects: MemoryObjects) -> CallLog:
    """As a function that starts now sees it."""
    return CallLog(objects, "provider/acme/job/sub/calls/", WINDOW_S).load()


def test_given_nothing_when_asked_then_the_first_call_may_be_sent(objects: MemoryObjects) -> None:
    assert log(objects).next_call(RECORD, 0) == 1
    assert (log(objects).line(RECORD), log(objects).lost(RECORD)) == (b"", 0)


def test_given_a_reply_when_another_function_looks_then_it_sends_nothing(objects: MemoryObjects) -> None:
    ours = log(objects)
    assert ours.begin(RECORD, 1, 0)
    ours.end(RECORD, 1, End.REPLY, b"line")

    for seen in (ours, log(objects)):
        assert (seen.next_call(RECORD, LATER), seen.line(RECORD), seen.lost(RECORD)) == (0, b"line", 0)
        assert seen.next_call(OTHER, LATER) == 1


def test_given_a_call_under_way_when_another_function_looks_then_it_waits_and_then_repeats_it_once(
    objects: MemoryObjects,
) -> None:
    assert log(objects).begin(RECORD, 1, 100)

    theirs = log(objects)
    until = theirs.under_way_until(RECORD, 101)
    assert until > 100 + WINDOW_S
    assert theirs.next_call(RECORD, 101) == 0
    assert (theirs.under_way_until(RECORD, until), theirs.next_call(RECORD, until)) == (0, 2)
    assert theirs.begin(RECORD, 2, until)
    last = log(objects)
    assert (last.next_call(RECORD, LATER), last.lost(RECORD)) == (0, 2)


def test_given_two_functions_at_once_when_both_begin_then_one_of_them_sends(objects: MemoryObjects) -> None:
    first, second = log(objects), log(objects)
    assert (first.begin(RECORD, 1, 0), second.begin(RECORD, 1, 0)) == (True, False)
    assert second.under_way_until(RECORD, 1) > 1


def test_given_a_refused_call_when_repeated_then_it_counts_for_nothing(objects: MemoryObjects) -> None:
    ours = log(objects)
    for number in range(1, 6):
        assert ours.next_call(RECORD, 0) == number
        ours.begin(RECORD, number, 0)
        ours.end(RECORD, number, End.REFUSED)
    assert (ours.refusals(RECORD), ours.lost(RECORD), ours.next_call(RECORD, 0)) == (5, 0, 6)


def test_given_no_answer_that_counts_when_repeated_then_the_first_is_lost_and_the_last_is_told(
    objects: MemoryObjects,
) -> None:
    ours = log(objects)
    ours.begin(RECORD, 1, 0)
    ours.end(RECORD, 1, End.UNKNOWN, b"500")
    assert (ours.line(RECORD), ours.lost(RECORD), ours.next_call(RECORD, 0)) == (b"500", 1, 2)
    ours.begin(RECORD, 2, 0)
    ours.end(RECORD, 2, End.REPLY, b"line")
    assert (ours.line(RECORD), ours.lost(RECORD)) == (b"line", 1)


def test_given_an_answer_that_comes_late_when_the_call_was_repeated_then_the_first_counts_and_the_other_is_lost(
    objects: MemoryObjects,
) -> None:
    slow = log(objects)
    slow.begin(RECORD, 1, 0)
    quick = log(objects)
    quick.begin(RECORD, quick.next_call(RECORD, LATER), LATER)
    quick.end(RECORD, 2, End.REPLY, b"second")
    slow.end(RECORD, 1, End.REPLY, b"first")

    seen = log(objects)
    assert (seen.line(RECORD), seen.lost(RECORD)) == (b"first", 1)
