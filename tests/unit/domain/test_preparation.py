"""The whole pass from the bytes of a dropped file to shards: every kind of bad input by line, code and reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.adapters.providers.openai import OpenAIFormat
from tallybatch.domain.preparation import Preparation, prepare
from tallybatch.domain.records import RecordReader, ShardRecord, decode_record, encode_sorted
from tallybatch.domain.shards import ShardLimits, read_zstd_lines
from tallybatch.domain.spec_file import parse_spec
from tallybatch.domain.templates import Template
from tallybatch.steps.rendering import Requests
from tests.support.preparing import GOOD, IDENTITY, LIMITS, bad_lines, film, prepare_bytes, with_third


def records(done: Preparation) -> list[ShardRecord]:
    found = []
    for shard in done.shards:
        with shard.path.open("rb") as file:
            found += [decode_record(line) for line in read_zstd_lines(file)]
    return found


def inputs(done: Preparation) -> list[Any]:
    return [msgspec.json.decode(record.input) for record in records(done)]


TWO_MEGABYTES = film("x", "x" * 2_000_000)

BAD_THIRD_LINES = [
    ("invalid UTF-8", b'{"id":"x","title":"\xff"}', "invalid_utf8", "byte 20 is not valid UTF-8"),
    ("a Latin-1 letter", '{"id":"x","title":"é"}'.encode("latin-1"), "invalid_utf8", "byte 20"),
    ("a byte order mark", b"\xef\xbb\xbf" + film("x"), "byte_order_mark", "byte order mark"),
    ("a blank line", b"", "blank_line", "blank"),
    ("spaces only", b"  \t ", "blank_line", "blank"),
    ("a lone carriage return", b"\r", "blank_line", "blank"),
    ("broken JSON", b'{"id":"x","title":', "invalid_json", "at character 19"),
    ("two objects on a line", film("x") + film("y"), "invalid_json", "Extra data"),
    ("an array on a line", b'["x"]', "not_an_object", "this is an array"),
    ("a number on a line", b"17", "not_an_object", "this is a number"),
    ("a lone surrogate", b'{"id":"x","title":"\\ud800"}', "lone_surrogate", "surrogate"),
    ("NaN", b'{"id":"x","title":NaN}', "not_a_number", "NaN is not JSON"),
    ("Infinity in a list", b'{"id":"x","title":[-Infinity]}', "not_a_number", "Infinity is not JSON"),
    ("a key twice", b'{"id":"x","title":"a","id":"y"}', "duplicate_json_key", "'id' twice"),
    ("a key twice, nested", b'{"id":"x","title":{"k":1,"k":2}}', "duplicate_json_key", "'k' twice"),
    ("a key twice, spaced", b'{"id":"x","title" : 1,"title"   :2}', "duplicate_json_key", "'title' twice"),
    ("a key twice, escaped", b'{"id":"x","title":1,"\\u0074itle":2}', "duplicate_json_key", "'title' twice"),
    ("a key twice, quotes", b'{"id":"x","title":"\\"\\\\","title":"\\""}', "duplicate_json_key", "'title' twice"),
    ("no business key", b'{"title":"Heat"}', "missing_field", "'id' is missing"),
    ("no required field", b'{"id":"x"}', "missing_field", "'title' is missing"),
    ("an empty key", film(""), "key_shape", "empty"),
    ("a null key", film(None), "key_shape", "null"),
    ("a fractional key", film(1.5), "key_shape", "a number"),
    ("a boolean key", film(True), "key_shape", "a boolean"),
    ("a key that is an object", film({"a": 1}), "key_shape", "an object"),
    ("a key with a newline", film("a\nb"), "key_shape", "control character"),
    ("a key too long", film("k" * 513), "key_shape", "513 characters"),
    ("two megabytes", TWO_MEGABYTES, "line_too_long", "1,048,576 bytes"),
    ("depth 2,000", b'{"id":"x","title":' + b"[" * 2000 + b"]" * 2000 + b"}", "too_deep", "200 levels"),
    ("depth 600", b'{"id":"x","title":' + b"[" * 600 + b"]" * 600 + b"}", "too_deep", "200 levels"),
    ("5,000 digits", b'{"id":"x","title":' + b"7" * 5000 + b"}", "number_range", "5,000 digits"),
    ("a double too large", b'{"id":"x","title":1e999}', "number_range", "too large"),
]


@pytest.mark.parametrize(
    ("line", "code", "reason"), [row[1:] for row in BAD_THIRD_LINES], ids=[r[0] for r in BAD_THIRD_LINES]
)
def test_given_a_bad_third_line_when_prepared_then_just_that_line_is_named_with_its_reason(
    line: bytes, code: str, reason: str, tmp_path: Path
) -> None:
    done = prepare_bytes(with_third(line), tmp_path)
    (bad,) = bad_lines(done)
    assert (bad["line"], bad["code"]) == (3, code)
    assert reason in bad["reason"]
    assert (done.lines, done.records, done.bad_count, done.bad_by_code) == (4, 3, 1, {code: 1})
    (problem,) = done.problems
    assert (problem.line, problem.code, problem.reason) == (3, code, bad["reason"])
    assert str(problem).startswith("line 3: ")
    assert len(inputs(done)) == 3
    assert not done.unusable


def test_given_an_undefined_template_variable_when_prepared_then_it_is_named_and_no_value_is(tmp_path: Path) -> None:
    body = b'{"id":"a","title":{"de":"x"}}\n{"id":"b","title":{"en":"secret"}}\n'
    spec = parse_spec(b"{name: x, provider: openai, model: gpt-5-mini-2025-08-07, prompt: {user: '{{ title.de }}'}}")
    openai = OpenAIFormat(spec.model_resolved, spec.endpoint, spec.generation, None, spec.output.schema_version)
    done = prepare_bytes(body, tmp_path, measure=Requests(spec, lambda _: openai).measure)
    assert done.shards[0].request_bytes == len(Requests(spec, lambda _: openai).line(records(done)[0]))
    (bad,) = bad_lines(done)
    assert (bad["line"], bad["code"]) == (2, "template")
    assert "undefined" in bad["reason"]
    assert "secret" not in bad["reason"]


def test_given_a_record_beyond_a_shard_when_prepared_then_both_sizes_are_named(tmp_path: Path) -> None:
    done = prepare_bytes(with_third(film("x", "x" * 950)), tmp_path, limits=ShardLimits(10, 1000))
    (bad,) = bad_lines(done)
    assert (bad["line"], bad["code"]) == (3, "record_too_large")
    assert "1,050 bytes" in bad["reason"]
    assert "1,000" in bad["reason"]


def test_given_a_record_that_just_fits_a_shard_when_prepared_then_it_is_taken(tmp_path: Path) -> None:
    done = prepare_bytes(with_third(film("x", "x" * 900)), tmp_path, limits=ShardLimits(10, 1000))
    assert (done.bad_count, done.records) == (0, 4)
    assert max(shard.request_bytes for shard in done.shards) == 1000


def test_given_a_key_three_times_when_prepared_then_each_repetition_names_both_lines(tmp_path: Path) -> None:
    body = b"\n".join([film("a"), film("b"), film("a"), film(7), film("a"), film("7")])
    done = prepare_bytes(body, tmp_path)
    assert [(bad["line"], bad["first_line"], bad["key"], bad["code"]) for bad in bad_lines(done)] == [
        (3, 1, "a", "duplicate_key"),
        (5, 1, "a", "duplicate_key"),
        (6, 4, "7", "duplicate_key"),
    ]
    assert [problem.line for problem in done.problems] == [3, 5, 6]
    assert "'a' occurs twice: first on line 1" in done.problems[0].reason


WHOLE_FILES = [
    ("empty", b"", "empty_file", 0, "no record"),
    ("JSON array", b"[\n" + b",\n".join(GOOD) + b"\n]\n", "json_array", 0, "one JSON object per line"),
    ("JSON array on one line", b" [" + b",".join(GOOD) + b"]", "json_array", 0, "one JSON object per line"),
    ("UTF-16 with mark", "\n".join(map(bytes.decode, GOOD)).encode("utf-16"), "utf16", 0, "save it as UTF-8"),
    ("UTF-16 LE", "\n".join(map(bytes.decode, GOOD)).encode("utf-16-le"), "utf16", 0, "save it as UTF-8"),
    ("UTF-16 BE", "\n".join(map(bytes.decode, GOOD)).encode("utf-16-be"), "utf16", 0, "save it as UTF-8"),
    ("UTF-16 BE with mark", b"\xfe\xff" + '{"id":"a"}'.encode("utf-16-be"), "utf16", 0, "save it as UTF-8"),
    ("UTF-32", '{"id":"a"}'.encode("utf-32"), "utf16", 0, "save it as UTF-8"),
    ("gzip under a plain name", gzip.compress(b"\n".join(GOOD)), "gzip_name", 0, ".jsonl.gz"),
]


@pytest.mark.parametrize(
    ("body", "code", "line", "reason"), [row[1:] for row in WHOLE_FILES], ids=[r[0] for r in WHOLE_FILES]
)
def test_given_a_file_that_is_wrong_as_a_whole_when_prepared_then_one_problem_says_so(
    body: bytes, code: str, line: int, reason: str, tmp_path: Path
) -> None:
    done = prepare_bytes(body, tmp_path)
    (bad,) = bad_lines(done)
    assert (bad["line"], bad["code"]) == (line, code)
    assert reason in bad["reason"]
    assert done.records == 0
    assert done.shards == []
    assert done.unusable


def test_given_whitespace_only_when_prepared_then_each_line_is_blank_and_there_is_no_shard(tmp_path: Path) -> None:
    done = prepare_bytes(b"  \n\t\n\n", tmp_path)
    assert [(bad["line"], bad["code"]) for bad in bad_lines(done)] == [
        (1, "blank_line"),
        (2, "blank_line"),
        (3, "blank_line"),
    ]
    assert (done.records, done.shards) == (0, [])


PACKED = gzip.compress(b"\n".join(GOOD) + b"\n", mtime=0)
LONG = gzip.compress(b"".join(film(f"k{number}", f"{number * 7919}") + b"\n" for number in range(3000)), mtime=0)
BROKEN_GZIP = [
    ("truncated", LONG[:-100], "truncated_gzip", "cut off"),
    ("truncated in its header", PACKED[:5], "truncated_gzip", "cut off"),
    ("damaged", LONG[: len(LONG) // 2] + b"\0\0\0\0" + LONG[len(LONG) // 2 + 4 :], "damaged_gzip", "damaged"),
    ("wrong checksum", PACKED[:-8] + b"\1\2\3\4" + PACKED[-4:], "damaged_gzip", "damaged"),
    ("trailing garbage", PACKED + b"garbage", "damaged_gzip", "something follows its end"),
    ("a plain file", b"\n".join(GOOD), "not_gzip", "its name ends in .gz"),
]


@pytest.mark.parametrize(("body", "code", "reason"), [row[1:] for row in BROKEN_GZIP], ids=[r[0] for r in BROKEN_GZIP])
def test_given_a_gz_file_that_breaks_off_when_prepared_then_the_line_where_it_does_is_named(
    body: bytes, code: str, reason: str, tmp_path: Path
) -> None:
    done = prepare_bytes(body, tmp_path, gzipped=True)
    (bad,) = [bad for bad in bad_lines(done) if bad["code"] == code]
    assert bad["line"] == done.lines + 1
    assert reason in bad["reason"]
    assert done.unusable


def test_given_a_cut_off_gzip_when_prepared_then_what_came_before_the_cut_was_read(tmp_path: Path) -> None:
    assert 1000 < prepare_bytes(LONG[: len(LONG) // 2], tmp_path, gzipped=True).records < 3000


GOOD_FILES = [
    ("plain", b"\n".join(GOOD) + b"\n", False),
    ("no newline at the end", b"\n".join(GOOD), False),
    ("CRLF", b"\r\n".join(GOOD) + b"\r\n", False),
    ("gzip", PACKED, True),
    (
        "gzip of two members",
        gzip.compress(GOOD[0] + b"\n" + GOOD[1][:5]) + gzip.compress(GOOD[1][5:] + b"\n" + GOOD[2]),
        True,
    ),
    ("gzip with padding", PACKED + b"\0" * 512, True),
]


@pytest.mark.parametrize(("body", "gzipped"), [row[1:] for row in GOOD_FILES], ids=[row[0] for row in GOOD_FILES])
def test_given_the_same_records_in_another_wrapping_when_prepared_then_the_shards_are_the_same(
    body: bytes, gzipped: bool, tmp_path: Path
) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "other").mkdir()
    reference = prepare_bytes(b"\n".join(GOOD) + b"\n", tmp_path / "reference")
    done = prepare_bytes(body, tmp_path / "other", gzipped=gzipped)
    assert (done.lines, done.records, done.bad_count) == (3, 3, 0)
    assert [shard.sha256 for shard in done.shards] == [shard.sha256 for shard in reference.shards]
    assert done.bad_lines.read_bytes() == b""


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\u0085", "\u001c", "\u000b"])
def test_given_a_separator_inside_a_string_when_prepared_then_it_splits_nothing(inside: str, tmp_path: Path) -> None:
    title = f"a{inside}b"
    raw = film("x", title) if ord(inside) > 31 else b'{"id":"x","title":%b}' % json.dumps(title).encode()
    done = prepare_bytes(with_third(raw), tmp_path)
    assert (done.lines, done.records, done.bad_count) == (4, 4, 0)
    assert inputs(done)[2] == {"title": title}


def test_given_hundreds_of_bad_lines_when_prepared_then_all_are_in_the_file_and_the_first_hundred_are_shown(
    tmp_path: Path,
) -> None:
    done = prepare_bytes(b"nonsense\n" * 250 + GOOD[0], tmp_path)
    assert len(bad_lines(done)) == done.bad_count == 250
    assert done.bad_by_code == {"invalid_json": 250}
    assert [problem.line for problem in done.problems] == list(range(1, 101))


def test_given_limits_when_prepared_then_the_shards_keep_to_them(tmp_path: Path) -> None:
    body = b"\n".join(film(f"k{number}", "x" * 50) for number in range(25))
    done = prepare_bytes(body, tmp_path, limits=ShardLimits(10, 1200))
    assert [(shard.record_count, shard.request_bytes) for shard in done.shards] == [
        (8, 1200),
        (8, 1200),
        (8, 1200),
        (1, 150),
    ]


GOOD_AND_BAD = [
    *(film(f"k{number}", "x" * number) for number in range(20)),
    *(film(number, 7) for number in range(10)),
    *(b'{"id":"%d","title":"\\"","more":{"a":[1,"b"]}}' % number for number in range(10, 20)),
    *(line for _, line, *_ in BAD_THIRD_LINES if line is not TWO_MEGABYTES),
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(GOOD_AND_BAD), min_size=1, max_size=40))
def test_given_good_and_bad_lines_when_read_together_then_each_is_what_it_is_alone(lines: list[bytes]) -> None:
    def shown(blocks: list[list[bytes]]) -> Any:
        with TemporaryDirectory() as folder:
            reader = RecordReader(
                key="id",
                fields=("title",),
                source_version="",
                identity=IDENTITY,
                measure=lambda values: 10 + len(encode_sorted(values)),
                around=10,
            )
            done = prepare(blocks, reader=reader, limits=ShardLimits(7, 300), folder=Path(folder))
            shards = [(shard.sha256, shard.record_count, shard.request_bytes) for shard in done.shards]
            return shards, done.records, done.lines, done.problems, bad_lines(done)

    assert shown([lines]) == shown([[line] for line in lines])


@pytest.mark.parametrize("number", [2**64, 2**64 + 1, 2**128 + 1, -(2**64) - 1, 10**40])
def test_given_a_number_beyond_64_bits_when_prepared_then_prompt_and_shard_hold_its_digits(
    number: int, tmp_path: Path
) -> None:
    seen: list[str] = []
    prompt = Template("{{ n }} {{ deep.list[0] }}")

    def measure(values: dict[str, Any]) -> int:
        seen.append(prompt.render(values))
        return len(seen[-1])

    reader = RecordReader(key="id", fields=("n", "deep"), source_version="", identity=IDENTITY, measure=measure)
    line = b'{"id":"a","n":%d,"deep":{"list":[%d]}}' % (number, number)
    done = prepare([[line]], reader=reader, limits=LIMITS, folder=tmp_path)
    assert seen == [f"{number} {number}"]
    with done.shards[0].path.open("rb") as file:
        (stored,) = read_zstd_lines(file)
    assert b'"n":%d}' % number in stored
    assert b'"list":[%d]' % number in stored
