"""The tail of a file: no shard below the minimum where that can be avoided, and no record lost, doubled or moved."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.shard_tail import even_tail
from tallybatch.domain.shards import ShardFile, ShardLimits, ShardWriter, read_zstd_lines


def cut(count: int, most: int, folder: Path, max_bytes: int = 10**9) -> list[ShardFile]:
    writer = ShardWriter(folder, ShardLimits(most, max_bytes))
    for number in range(count):
        writer.add(b"record %d" % number, 10)
    return writer.close()


def lines(shards: list[ShardFile]) -> list[bytes]:
    found: list[bytes] = []
    for shard in shards:
        with shard.path.open("rb") as stream:
            found += read_zstd_lines(stream)
    return found


def evened(shards: list[ShardFile], folder: Path, least: int, max_bytes: int = 10**9) -> list[ShardFile]:
    return even_tail(shards, folder, least=least, max_bytes=max_bytes, measure=lambda _: 10)


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 400), most=st.integers(1, 150), least=st.integers(1, 60))
def test_given_any_file_when_its_tail_is_evened_then_the_records_are_the_same_and_only_what_must_is_too_small(
    count: int, most: int, least: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        before = cut(count, most, Path(name))
        after = evened(before, Path(name), least)

        assert lines(after) == [b"record %d" % number for number in range(count)]
        assert len(after) == len(before)
        assert after[:-2] == before[:-2]
        assert [shard.shard_id for shard in after] == [
            f"{number:05d}-{shard.sha256[:8]}" for number, shard in enumerate(after)
        ]
        assert all(shard.record_count <= most for shard in after)
        assert all(shard.request_bytes == 10 * shard.record_count for shard in after)
        small = [shard for shard in after if shard.record_count < least]
        if most >= 2 * least and len(after) > 1:
            assert not small


def test_given_the_same_lines_when_evened_twice_then_the_shards_are_the_same(tmp_path: Path) -> None:
    hashes = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        hashes.append([shard.sha256 for shard in evened(cut(205, 100, folder), folder, 10)])
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(("count", "most"), [(130, 100), (50, 100)])
def test_given_too_few_for_two_or_one_shard_alone_when_evened_then_nothing_changes(
    tmp_path: Path, count: int, most: int
) -> None:
    before = cut(count, most, tmp_path)
    assert evened(before, tmp_path, 100) == before


def test_given_halves_that_would_be_too_many_bytes_when_evened_then_nothing_changes(tmp_path: Path) -> None:
    before = cut(203, 200, tmp_path)
    assert evened(before, tmp_path, 100, max_bytes=900) == before
