"""The dropped file as bytes: hashed as stored, unpacked where it says so, and its damage named."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.preparation import BrokenFile
from tallybatch.domain.source_stream import SourceStream

PLAIN = b'{"id":"a"}\n' * 2000


class Dribble(io.BytesIO):
    """A stream that gives fewer bytes than were asked for, as sockets do."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        super().__init__(data)
        self._sizes = sizes

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self._sizes.pop() if self._sizes else size)


def read(data: bytes, *, gzipped: bool) -> bytes:
    source = SourceStream(io.BytesIO(data), gzipped=gzipped)
    return b"".join(source.chunks())


@pytest.mark.parametrize("gzipped", [False, True])
def test_given_a_file_when_read_then_size_and_hash_are_of_the_bytes_as_stored(gzipped: bool) -> None:
    stored = gzip.compress(PLAIN) if gzipped else PLAIN
    source = SourceStream(io.BytesIO(stored), gzipped=gzipped)
    assert b"".join(source.chunks()) == PLAIN
    assert (source.size, source.sha256) == (len(stored), hashlib.sha256(stored).hexdigest())


@pytest.mark.parametrize("gzipped", [False, True])
def test_given_a_file_left_half_way_when_drained_then_the_hash_is_of_all_of_it(gzipped: bool) -> None:
    stored = random.Random(1).randbytes(3 << 20)
    stored = gzip.compress(stored, 1) if gzipped else stored
    source = SourceStream(io.BytesIO(stored), gzipped=gzipped)
    next(source.chunks())
    source.drain()
    assert (source.size, source.sha256) == (len(stored), hashlib.sha256(stored).hexdigest())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.lists(st.integers(1, 40), max_size=30))
def test_given_any_members_in_any_chunks_when_unpacked_then_they_follow_each_other(
    members: list[bytes], sizes: list[int]
) -> None:
    stored = b"".join(gzip.compress(member) for member in members)
    source = SourceStream(Dribble(stored, sizes), gzipped=True)
    assert b"".join(source.chunks()) == b"".join(members)
    assert source.sha256 == hashlib.sha256(stored).hexdigest()


def test_given_a_bomb_when_unpacked_then_no_chunk_is_larger_than_a_mebibyte() -> None:
    stored = gzip.compress(b"\0" * (20 << 20))
    sizes = [len(chunk) for chunk in SourceStream(io.BytesIO(stored), gzipped=True).chunks()]
    assert sum(sizes) == 20 << 20
    assert max(sizes) <= 1 << 20


def test_given_zero_padding_after_the_end_when_unpacked_then_it_is_left_out() -> None:
    assert read(gzip.compress(PLAIN) + b"\0" * 5000, gzipped=True) == PLAIN


@pytest.mark.parametrize("kept", [1, 2, 9, 10, 15, -1, -4, -8, -9])
def test_given_a_gzip_cut_off_anywhere_when_unpacked_then_it_is_truncated(kept: int) -> None:
    with pytest.raises(BrokenFile, match="ends early") as caught:
        read(gzip.compress(PLAIN)[:kept], gzipped=True)
    assert caught.value.code == "truncated_gzip"


def test_given_a_second_member_cut_off_when_unpacked_then_it_is_truncated() -> None:
    with pytest.raises(BrokenFile) as caught:
        read(gzip.compress(PLAIN) + gzip.compress(PLAIN)[:-3], gzipped=True)
    assert caught.value.code == "truncated_gzip"


@pytest.mark.parametrize("seed", range(20))
def test_given_a_flipped_byte_in_the_data_or_the_checksum_when_unpacked_then_it_is_refused(seed: int) -> None:
    stored = bytearray(gzip.compress(random.Random(seed).randbytes(2000)))
    place = random.Random(seed).randrange(10, len(stored))
    stored[place] ^= 0x41
    with pytest.raises(BrokenFile) as caught:
        read(bytes(stored), gzipped=True)
    assert caught.value.code in ("damaged_gzip", "truncated_gzip")


def test_given_something_after_the_end_when_unpacked_then_it_is_refused_and_not_ignored() -> None:
    with pytest.raises(BrokenFile, match="something follows") as caught:
        read(gzip.compress(PLAIN) + b"left over", gzipped=True)
    assert caught.value.code == "damaged_gzip"


@pytest.mark.parametrize("stored", [PLAIN, zlib.compress(PLAIN), b"\x28\xb5\x2f\xfd rest", b"x"])
def test_given_another_format_under_a_gz_name_when_unpacked_then_the_reason_names_the_name(stored: bytes) -> None:
    with pytest.raises(BrokenFile, match=r"its name ends in \.gz"):
        read(stored, gzipped=True)


@pytest.mark.parametrize("gzipped", [False, True])
def test_given_an_empty_file_when_read_then_there_are_no_bytes(gzipped: bool) -> None:
    assert read(b"", gzipped=gzipped) == b""
