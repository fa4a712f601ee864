"""Duplicate business keys: each is found, with both lines, whatever has gone to disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain import key_index
from tallybatch.domain.key_index import _SLICE_HASHES, KeyIndex

KEYS = st.lists(st.sampled_from([f"k{number}" for number in range(12)]) | st.text(max_size=3), max_size=60)


def found_in(keys: list[str], folder: Path, *, flush: int) -> set[tuple[str, int, int]]:
    class SmallIndex(KeyIndex):
        _BLOCK_KEYS = flush

    index = SmallIndex(folder)
    for line, key in enumerate(keys, 1):
        index.extend([key], [line])
    return {(twice.key, twice.first_line, twice.line) for twice in index.duplicates()}


@settings(max_examples=30, deadline=None)
@given(KEYS, st.sampled_from([1, 7, 25, 1000]))
def test_given_any_keys_when_indexed_then_just_the_duplicates_are_found_whatever_was_spilled(
    keys: list[str], flush: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = found_in(keys, Path(folder), flush=flush)
        spilled = any(Path(folder).iterdir())
    expected = {(key, keys.index(key) + 1, line) for line, key in enumerate(keys, 1) if keys.index(key) + 1 != line}
    assert found == expected
    assert spilled == (len(keys) >= flush)


def test_given_more_keys_than_one_flush_when_indexed_then_a_duplicate_across_the_flush_is_found(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path)
    for line in range(1, 40_000):
        index.extend([f"k{line}"], [line])
    index.extend(["k3"], [40_000])
    (twice,) = index.duplicates()
    assert (twice.key, twice.first_line, twice.line) == ("k3", 3, 40_000)
    assert list(tmp_path.iterdir())


def test_given_many_blocks_when_hashes_are_looked_at_in_slices_then_a_duplicate_in_any_slice_is_found(
    tmp_path: Path,
) -> None:
    index = KeyIndex(tmp_path)
    count = 3 * _SLICE_HASHES
    for line in range(1, count + 1):
        index.extend([f"k{line}"], [line])
    again = [f"k{line}" for line in range(1, count, 997)]
    for line, key in enumerate(again, count + 1):
        index.extend([key], [line])
    assert [(twice.key, twice.line) for twice in index.duplicates()] == [
        (key, line) for line, key in enumerate(again, count + 1)
    ]


def test_given_two_keys_of_one_hash_when_indexed_then_they_are_no_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "hash", len, raising=False)
    index = KeyIndex(tmp_path)
    for line, key in enumerate(["aa", "bb", "c", "aa"], 1):
        index.extend([key], [line])
    assert [(twice.key, twice.first_line, twice.line) for twice in index.duplicates()] == [("aa", 1, 4)]
