"""The list of a file's bad lines: in the order of the file, with their bytes where only they stay behind."""

from __future__ import annotations

import json
import string
import tracemalloc
from contextlib import closing
from pathlib import Path

import msgspec

from tallybatch.domain.input_lines import MAX_LINE_BYTES
from tallybatch.domain.preparation import Quarantine
from tests.support.preparing import GOOD, bad_lines, film, prepare_bytes, with_third


def test_given_bad_lines_to_keep_when_prepared_then_each_comes_back_with_its_own_bytes(tmp_path: Path) -> None:
    body = with_third(b'{"id":"x","title":"\xff"}') + b"not json\n" + film("a") + b"\n"
    done = prepare_bytes(body, tmp_path, keep_raw=True)
    by_line = {bad["line"]: bad for bad in bad_lines(done)}
    assert set(by_line) == {3, 5, 6}
    assert (
        msgspec.json.decode(b'"' + by_line[3]["raw_base64"].encode() + b'"', type=bytes) == b'{"id":"x","title":"\xff"}'
    )
    assert by_line[5]["raw"] == "not json"
    assert by_line[6]["code"] == "duplicate_key"


def test_given_a_line_that_is_too_long_when_kept_then_what_is_kept_is_its_beginning(tmp_path: Path) -> None:
    letters = string.ascii_letters * 70_000
    done = prepare_bytes(with_third(film("x", letters)), tmp_path, keep_raw=True)
    (bad,) = bad_lines(done)
    assert (bad["code"], bad["raw"].encode()) == ("line_too_long", film("x", letters)[:MAX_LINE_BYTES])


def test_given_bad_lines_when_prepared_again_without_them_then_the_rest_is_as_if_they_had_not_been_there(
    tmp_path: Path,
) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    body = GOOD[0] + b"\nnot json\n" + GOOD[0].replace(b"}", b', "note": "\xc3\xa9"}') + b"\n" + b"\n".join(GOOD[1:])
    first = prepare_bytes(body, tmp_path / "a", keep_raw=True)
    with closing(Quarantine(first, tmp_path / "b")) as quarantine:
        second = prepare_bytes(body, tmp_path / "b", quarantine=quarantine, keep_raw=True)
    reference = prepare_bytes(b"\n".join(GOOD), tmp_path / "c")
    assert (second.bad_count, second.records, second.lines) == (0, 3, 5)
    assert [shard.sha256 for shard in second.shards] == [shard.sha256 for shard in reference.shards]
    kept = [json.loads(line) for line in quarantine.bad_lines.read_bytes().splitlines()]
    assert [(bad["line"], bad["code"], bad["raw"].encode()) for bad in kept] == [
        (number, code, body.split(b"\n")[number - 1]) for number, code in ((2, "invalid_json"), (3, "duplicate_key"))
    ]


def test_given_bad_lines_of_every_kind_when_prepared_then_they_are_listed_in_the_order_of_the_file(
    tmp_path: Path,
) -> None:
    body = b"\n".join([film("a"), film("a"), b"{", film("b"), film("a"), b"[", film("b"), b"", film("c")])
    done = prepare_bytes(body, tmp_path, keep_raw=True)
    order = [2, 3, 5, 6, 7, 8]
    assert [bad["line"] for bad in bad_lines(done)] == [problem.line for problem in done.problems] == order
    assert done.bad_by_code == {"duplicate_key": 3, "invalid_json": 2, "blank_line": 1}
    assert (done.bad_count, done.records) == (6, 6)


def test_given_many_bad_lines_when_prepared_and_left_out_then_no_list_of_them_is_in_memory(tmp_path: Path) -> None:
    peaks = []
    for count in (33_000, 70_000):
        folder = tmp_path / str(count)
        (folder / "good").mkdir(parents=True)
        body = b"\n".join([*GOOD[:1], *GOOD[:1] * count])
        tracemalloc.start()
        first = prepare_bytes(body, folder, keep_raw=True)
        with closing(Quarantine(first, folder / "good")) as quarantine:
            second = prepare_bytes(body, folder / "good", quarantine=quarantine, keep_raw=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (first.bad_count, second.bad_count, second.records) == (count, 0, 1)
    assert peaks[1] < 1.3 * peaks[0]


def test_given_bytes_of_bad_lines_when_they_are_not_to_be_kept_then_none_is_in_the_report(tmp_path: Path) -> None:
    done = prepare_bytes(with_third(b'{"id":"x","title":"secret"'), tmp_path)
    assert b"secret" not in done.bad_lines.read_bytes()
