"""Lines of a stream: split on newline bytes alone, however the stream is cut into chunks."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.lines import newline_split

BODY = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\x0b", b"\x1c", b"\xc2\x85", b"\xe2\x80\xa8", b""]))


@settings(max_examples=80, deadline=None)
@given(BODY.map(b"".join), st.lists(st.integers(0, 30), max_size=5))
def test_given_any_chunks_when_split_then_the_lines_are_those_of_the_whole(body: bytes, cuts: list[int]) -> None:
    places = sorted({0, *(min(cut, len(body)) for cut in cuts), len(body)})
    chunks = [body[start:end] for start, end in itertools.pairwise(places)]
    whole = body.split(b"\n")
    expected = whole[:-1] if whole[-1] == b"" else whole
    assert list(newline_split(chunks)) == expected


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"])
def test_given_what_other_splitters_take_for_a_newline_when_split_then_it_is_part_of_the_line(separator: str) -> None:
    line = f"a{separator}b".encode()
    assert list(newline_split([line + b"\n" + line])) == [line, line]


def test_given_a_last_line_with_and_without_newline_when_split_then_both_are_one_line() -> None:
    assert list(newline_split([b"a\nb"])) == list(newline_split([b"a\nb\n"])) == [b"a", b"b"]
    assert list(newline_split([])) == list(newline_split([b""])) == []


def test_given_a_line_without_end_when_cut_then_the_memory_it_takes_does_not_grow() -> None:
    held = [len(line) for line in newline_split((b"x" * 1000 for _ in range(500)), cut_at=3000)]
    assert held == [3001]


def test_given_a_cut_line_when_its_end_comes_then_the_next_line_is_whole() -> None:
    chunks = [b"x" * 500 for _ in range(10)] + [b"x\nnext\nlast"]
    cut, *rest = newline_split(chunks, cut_at=1000)
    assert 1000 < len(cut) <= 1600
    assert rest == [b"next", b"last"]


def test_given_a_line_at_the_limit_when_split_then_it_is_not_cut() -> None:
    assert list(newline_split([b"x" * 600, b"x" * 400, b"\n"], cut_at=1000)) == [b"x" * 1000]
