"""Sharding: the same lines give the same shards, no limit is exceeded, and nothing is lost or moved."""

from __future__ import annotations

import hashlib
import io
import tempfile
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.identity import input_manifest_hash
from tallybatch.domain.lines import BLOCK_BYTES
from tallybatch.domain.outcomes import Used
from tallybatch.domain.records import ShardRecord, decode_record, encode_record
from tallybatch.domain.shards import ShardFile, ShardLimits, ShardWriter, read_zstd_lines

LINE = st.binary(min_size=1, max_size=30).map(lambda data: data.replace(b"\n", b"_"))
RECORDS = st.lists(st.tuples(LINE, st.integers(1, 60)), max_size=40)
LIMITS = st.builds(ShardLimits, st.integers(1, 12), st.integers(60, 300))


def write(folder: Path, records: list[tuple[bytes, int]], limits: ShardLimits) -> list[ShardFile]:
    writer = ShardWriter(folder, limits)
    for line, request_bytes in records:
        writer.add(line, request_bytes)
    return writer.close()


def lines_of(shard: ShardFile) -> list[bytes]:
    with shard.path.open("rb") as file:
        return list(read_zstd_lines(file))


@settings(max_examples=50, deadline=None)
@given(RECORDS, LIMITS)
def test_given_any_lines_when_cut_then_the_shards_together_are_the_lines_in_order(
    records: list[tuple[bytes, int]], limits: ShardLimits
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shards = write(Path(folder), records, limits)
        found = [lines_of(shard) for shard in shards]

    assert [line for lines in found for line in lines] == [line for line, _ in records]
    sizes = iter(size for _, size in records)
    for shard, lines in zip(shards, found, strict=True):
        assert shard.record_count == len(lines)
        assert shard.request_bytes == sum(next(sizes) for _ in lines)
        assert 1 <= shard.record_count <= limits.max_records
        assert shard.request_bytes <= limits.max_bytes
        assert shard.sha256 == hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()


@settings(max_examples=40, deadline=None)
@given(RECORDS, LIMITS, st.integers(1, 9))
def test_given_any_lines_when_added_many_at_a_time_then_the_shards_are_the_same(
    records: list[tuple[bytes, int]], limits: ShardLimits, many: int
) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        singly = write(Path(one), records, limits)
        writer = ShardWriter(Path(other), limits)
        for start in range(0, len(records), many):
            part = records[start : start + many]
            writer.extend([line for line, _ in part], [size for _, size in part])
        assert [shard.sha256 for shard in writer.close()] == [shard.sha256 for shard in singly]


@settings(max_examples=40, deadline=None)
@given(RECORDS, LIMITS)
def test_given_any_lines_when_cut_then_no_shard_could_have_taken_the_next_record(
    records: list[tuple[bytes, int]], limits: ShardLimits
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shards = write(Path(folder), records, limits)

    first = 0
    for shard in shards[:-1]:
        first += shard.record_count
        full = shard.record_count == limits.max_records
        assert full or shard.request_bytes + records[first][1] > limits.max_bytes


@settings(max_examples=40, deadline=None)
@given(RECORDS, LIMITS)
def test_given_the_same_lines_when_cut_again_then_ids_hashes_and_the_input_hash_are_the_same(
    records: list[tuple[bytes, int]], limits: ShardLimits
) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        first = write(Path(one), records, limits)
        again = write(Path(other), records, limits)
        stored = [shard.path.read_bytes() for shard in first], [shard.path.read_bytes() for shard in again]

    assert [(shard.shard_id, shard.sha256) for shard in first] == [(shard.shard_id, shard.sha256) for shard in again]
    assert stored[0] == stored[1]
    assert len({shard.shard_id for shard in first}) == len(first)
    backwards = [shard.sha256 for shard in reversed(again)]
    assert input_manifest_hash(backwards) == input_manifest_hash(shard.sha256 for shard in first)


def test_given_a_shard_when_named_then_the_name_is_its_place_and_its_hash(tmp_path: Path) -> None:
    shards = write(tmp_path, [(b"a", 1), (b"b", 1), (b"c", 1)], ShardLimits(2, 100))
    first, second = hashlib.sha256(b"a\nb\n").hexdigest(), hashlib.sha256(b"c\n").hexdigest()
    assert [shard.shard_id for shard in shards] == [f"00000-{first[:8]}", f"00001-{second[:8]}"]


def test_given_a_record_at_the_limit_when_added_then_the_shard_holds_exactly_that_much(tmp_path: Path) -> None:
    shards = write(tmp_path, [(b"a", 60), (b"b", 40), (b"c", 1)], ShardLimits(10, 100))
    assert [(shard.record_count, shard.request_bytes) for shard in shards] == [(2, 100), (1, 1)]


def test_given_one_record_beyond_the_limit_when_added_then_it_is_alone_in_its_shard(tmp_path: Path) -> None:
    shards = write(tmp_path, [(b"a", 10), (b"b", 500), (b"c", 10)], ShardLimits(10, 100))
    assert [(shard.record_count, shard.request_bytes) for shard in shards] == [(1, 10), (1, 500), (1, 10)]


def test_given_no_record_when_closed_then_there_is_no_shard_and_no_file(tmp_path: Path) -> None:
    assert write(tmp_path, [], ShardLimits(10, 100)) == []
    assert list(tmp_path.iterdir()) == []


def test_given_more_than_a_block_of_lines_when_cut_then_the_hash_is_over_all_of_them(tmp_path: Path) -> None:
    lines = [b"%06d" % number + b"x" * 1000 for number in range(700)]
    (shard,) = write(tmp_path, [(line, 1) for line in lines], ShardLimits(1000, 10_000))
    assert shard.sha256 == hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()
    assert shard.sha256 != hashlib.sha256(shard.path.read_bytes()).hexdigest()
    assert lines_of(shard) == lines


@pytest.mark.parametrize(("size", "tokens"), [(1, 1), (4, 1), (5, 2), (400, 100)])
def test_given_bytes_when_tokens_are_estimated_then_it_is_a_quarter_rounded_up(size: int, tokens: int) -> None:
    assert ShardFile("s", "h", 1, size, Path("x")).estimated_tokens == tokens


def test_given_an_object_of_many_frames_when_read_then_all_lines_come_and_the_blank_line_stays() -> None:
    compress = zstandard.ZstdCompressor().compress
    stream = io.BytesIO(compress(b"a\nb") + compress(b"c\n\n") + compress(b"") + compress(b"d\n"))
    assert list(read_zstd_lines(stream)) == [b"a", b"bc", b"", b"d"]


INPUTS = st.one_of(
    st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=3),
    st.builds(lambda size: {"plot": "é\u2028\n" * size}, st.integers(0, BLOCK_BYTES // 3)),
)
SHARD_RECORDS = st.lists(
    st.builds(
        ShardRecord,
        st.text("0123456789abcdef", min_size=32, max_size=32),
        st.text(min_size=1, max_size=20),
        st.text(max_size=20),
        INPUTS.map(lambda value: msgspec.Raw(msgspec.json.encode(value))),
        tries=st.integers(0, 3),
        used=st.builds(Used, tokens=st.integers(0, 9)),
    ),
    max_size=12,
)


def packed(lines: list[bytes], in_frame: int) -> bytes:
    frames = (b"".join(lines[start : start + in_frame]) for start in range(0, len(lines), in_frame))
    return b"".join(map(zstandard.ZstdCompressor().compress, frames))


@settings(max_examples=40, deadline=None)
@given(SHARD_RECORDS, st.integers(1, 5), st.booleans())
def test_given_any_shard_when_read_whole_then_its_records_are_those_that_were_written(
    records: list[ShardRecord], in_frame: int, open_end: bool
) -> None:
    lines = [encode_record(record) + b"\n" for record in records]
    if lines and open_end:
        lines[-1] = lines[-1][:-1]
    shard = packed(lines, in_frame)

    found = list(map(decode_record, read_zstd_lines(io.BytesIO(shard))))

    assert list(map(encode_record, found)) == list(map(encode_record, records))


def test_given_a_shard_that_breaks_off_within_a_line_when_read_then_it_is_refused() -> None:
    line = encode_record(ShardRecord("a" * 32, "film", "1", msgspec.Raw(b"{}"))) + b"\n"

    with pytest.raises(msgspec.DecodeError):
        list(map(decode_record, read_zstd_lines(io.BytesIO(packed([line, line[:-5]], 1)))))
