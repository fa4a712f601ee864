"""Reading a shard whole gives the records of its lines, wherever chunks and frames end."""

from __future__ import annotations

import io

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.lines import CHUNK_BYTES
from tallybatch.domain.outcomes import Used
from tallybatch.domain.records import ShardRecord, decode_record, encode_record
from tallybatch.domain.shard_records import read_records
from tallybatch.domain.shards import read_zstd_lines

INPUTS = st.one_of(
    st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=3),
    st.builds(lambda size: {"plot": "é\u2028\n" * size}, st.integers(0, CHUNK_BYTES // 3)),
)
RECORDS = st.lists(
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
@given(RECORDS, st.integers(1, 5), st.booleans())
def test_given_any_shard_when_read_whole_then_its_records_are_those_of_its_lines(
    records: list[ShardRecord], in_frame: int, open_end: bool
) -> None:
    lines = [encode_record(record) + b"\n" for record in records]
    if lines and open_end:
        lines[-1] = lines[-1][:-1]
    shard = packed(lines, in_frame)

    found = read_records(io.BytesIO(shard))

    line_by_line = list(map(decode_record, read_zstd_lines(io.BytesIO(shard))))
    assert list(map(encode_record, line_by_line)) == list(map(encode_record, records))
    assert list(map(encode_record, found)) == list(map(encode_record, line_by_line))


def test_given_a_shard_that_breaks_off_within_a_line_when_read_then_it_is_refused() -> None:
    line = encode_record(ShardRecord("a" * 32, "film", "1", msgspec.Raw(b"{}"))) + b"\n"

    with pytest.raises(msgspec.DecodeError):
        read_records(io.BytesIO(packed([line, line[:-5]], 1)))
