"""From a line of input to a line of a shard: what identifies a record, and what is sent of it."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.identity import RecordIdentity
from tallybatch.domain.input_lines import LineRefused
from tallybatch.domain.records import NativeReader, Prepared, RecordReader, ShardRecord, decode_record, encode_record

IDENTITY = RecordIdentity("acme", "films", "v1@0", "m", "s", "gpt-5-mini-2025-08-07")


def reader(key: str = "id", fields: tuple[str, ...] = ("title",), source_version: str = "") -> RecordReader:
    return RecordReader(
        key=key,
        fields=fields,
        source_version=source_version,
        identity=IDENTITY,
        measure=lambda values: len(str(values)),
    )


def read(line: str | dict[str, Any], **how: Any) -> tuple[Prepared, ShardRecord]:
    text = line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)
    prepared = reader(**how).read([text.encode()])
    return prepared, decode_record(prepared.lines[0])


def test_given_a_line_when_read_then_the_shard_line_holds_keys_and_used_fields_only() -> None:
    prepared, record = read({"id": 7, "secret": "x", "title": "Heat", "year": 1995}, fields=("year", "title"))
    assert json.loads(bytes(record.input)) == {"title": "Heat", "year": 1995}
    assert (prepared.business_keys, record.business_key) == (["7"], "7")
    assert b"secret" not in prepared.lines[0]
    assert record.source_version == hashlib.sha256(b'{"title":"Heat","year":1995}').hexdigest()
    parts = ["acme", "7", record.source_version, "v1@0", "m"]
    assert record.record_id == hashlib.sha256(rfc8785.dumps(parts)).hexdigest()[:32]
    assert (record.tries, record.attempt, record.parent_shard_id) == (0, 1, "")


SOURCES = st.fixed_dictionaries(
    {"id": st.text(min_size=1, max_size=4, alphabet="ab"), "100% title": st.text(max_size=8)},
    optional={"é": st.text(max_size=3) | st.integers(-(1 << 53) + 1, (1 << 53) - 1), "x": st.text(max_size=3)},
)


@settings(max_examples=200, deadline=None)
@given(SOURCES, st.booleans(), st.sampled_from(["", " ", "\t"]))
def test_given_any_strings_when_read_then_their_canonical_form_is_the_same_as_that_of_the_values(
    source: dict[str, Any], escaped: bool, space: str
) -> None:
    fields = tuple(name for name in source if name != "id")
    line = json.dumps(source, ensure_ascii=escaped, separators=(f"{space},{space}", f"{space}:{space}"))
    _, record = read(line, fields=fields)
    assert bytes(record.input) == rfc8785.dumps({name: source[name] for name in fields})


def test_given_a_record_when_measured_then_the_used_fields_are_measured() -> None:
    seen: list[dict[str, Any]] = []

    def measure(values: dict[str, Any]) -> int:
        seen.append(values)
        return 321

    what = RecordReader(key="id", fields=("title",), source_version="", identity=IDENTITY, measure=measure)
    assert what.read([b'{"id":"a","title":"Heat","x":1}']).request_bytes == [321]
    assert seen == [{"title": "Heat"}]


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def shuffled(value: Any, how: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(item, how)) for key, item in value.items()]
        how.shuffle(items)
        return dict(items)
    return [shuffled(item, how) for item in value] if isinstance(value, list) else value


@settings(max_examples=50, deadline=None)
@given(VALUE, VALUE, st.integers(0, 1000))
def test_given_a_record_when_its_keys_are_written_in_another_order_then_its_line_is_the_same(
    title: Any, extra: Any, seed: int
) -> None:
    source = {"id": "a", "title": title, "extra": extra}
    other = shuffled(source, random.Random(seed))
    one = reader(fields=("title", "extra")).read([json.dumps(source).encode()])
    two = reader(fields=("extra", "title")).read([json.dumps(other, separators=(" , ", " : ")).encode()])
    assert one.lines == two.lines
    assert msgspec.json.decode(decode_record(one.lines[0]).input) == {"title": title, "extra": extra}


@settings(max_examples=50, deadline=None)
@given(st.text(min_size=1, max_size=20).filter(str.isprintable), st.text(max_size=20), st.text(max_size=20))
def test_given_any_text_when_read_then_the_shard_line_says_it_all(key: str, title: str, version: str) -> None:
    version = version or "v"
    prepared, record = read({"id": key, "title": title, "v": version}, source_version="v")
    assert (record.business_key, record.source_version) == (key, version)
    assert msgspec.json.decode(record.input) == {"title": title}
    assert b"\n" not in prepared.lines[0]
    assert encode_record(record) == prepared.lines[0]


def test_given_a_record_when_an_unused_field_changes_then_it_stays_the_same_record() -> None:
    one, other = read({"id": "a", "title": "Heat", "seen": 1}), read({"id": "a", "title": "Heat", "seen": 2})
    assert one == other


@pytest.mark.parametrize("title", ["heat", "Heat ", 1, 1.0, "1", None, ["Heat"], {"a": "Heat"}, True])
def test_given_a_record_when_a_used_field_changes_then_it_is_another_record(title: Any) -> None:
    one, other = read({"id": "a", "title": "Heat"})[1], read({"id": "a", "title": title})[1]
    assert one.record_id != other.record_id
    assert one.source_version != other.source_version


@pytest.mark.parametrize(
    ("value", "version"),
    [("2026-01", "2026-01"), (7, "7"), (2**64, str(2**64)), (1.5, "1.5"), ('a"b', 'a"b'), (" ", " ")],
)
def test_given_a_field_for_the_version_when_read_then_it_alone_tells_versions_apart(value: Any, version: str) -> None:
    one = read({"id": "a", "title": "Heat", "v": value}, source_version="v")[1]
    other = read({"id": "a", "title": "Ronin", "v": value}, source_version="v")[1]
    assert one.source_version == version
    assert one.record_id == other.record_id
    assert one.input != other.input


@pytest.mark.parametrize("value", ["", None, True, ["a"], {"a": 1}])
def test_given_a_useless_version_when_read_then_the_line_is_refused(value: Any) -> None:
    with pytest.raises(LineRefused, match="'v' must be") as caught:
        read({"id": "a", "title": "Heat", "v": value}, source_version="v")
    assert caught.value.code == "source_version"


def test_given_no_version_where_one_is_needed_when_read_then_the_field_is_missing() -> None:
    with pytest.raises(LineRefused, match="'/meta/v' is missing"):
        read({"id": "a", "title": "Heat", "meta": {}}, source_version="/meta/v")


def test_given_pointers_when_read_then_key_and_version_come_from_below() -> None:
    line = {"meta": {"ids": ["x", "k1"], "v": 3}, "title": "Heat"}
    record = read(line, key="/meta/ids/1", source_version="/meta/v")[1]
    assert (record.business_key, record.source_version) == ("k1", "3")


@pytest.mark.parametrize(("key", "missing"), [("nope", "'nope'"), ("/meta/nope", "'/meta/nope'")])
def test_given_no_key_when_read_then_the_line_is_refused(key: str, missing: str) -> None:
    with pytest.raises(LineRefused, match=f"{missing} is missing") as caught:
        read({"id": "a", "title": "Heat", "meta": {}}, key=key)
    assert caught.value.code == "missing_field"


def test_given_a_missing_field_when_read_then_it_is_named_and_null_is_not_missing() -> None:
    with pytest.raises(LineRefused, match="field 'title' is missing"):
        read({"id": "a", "Title": "Heat"})
    assert bytes(read({"id": "a", "title": None})[1].input) == b'{"title":null}'


def native(problem: str = "") -> NativeReader:
    return NativeReader(
        id_field="custom_id", identity=IDENTITY, problem=lambda _: problem, measure=lambda line: len(str(line))
    )


def test_given_a_native_line_when_read_then_its_id_is_the_key_and_the_rest_is_sent() -> None:
    prepared = native().read(
        [b'{"url":"/v1/responses","custom_id":"r-1","method":"POST","body":{"n":18446744073709551617}}']
    )
    record = decode_record(prepared.lines[0])
    assert (prepared.business_keys, record.business_key) == (["r-1"], "r-1")
    assert bytes(record.input) == b'{"body":{"n":18446744073709551617},"method":"POST","url":"/v1/responses"}'
    assert record.source_version == hashlib.sha256(bytes(record.input)).hexdigest()
    assert prepared.request_bytes == [len(str(msgspec.json.decode(record.input)))]


def test_given_a_native_line_with_a_problem_when_read_then_the_providers_reason_is_given() -> None:
    with pytest.raises(LineRefused, match="no body") as caught:
        native("no body").read([b'{"custom_id":"a"}'])
    assert caught.value.code == "native_line"


def test_given_a_native_id_of_the_wrong_shape_when_read_then_it_is_refused() -> None:
    with pytest.raises(LineRefused, match="is empty"):
        native().read([b'{"custom_id":""}'])


def test_given_a_retry_record_when_encoded_then_where_it_comes_from_survives() -> None:
    record = read({"id": "a", "title": "Heat"})[1]
    again = msgspec.structs.replace(
        record, tries=1, attempt=2, parent_job_key="job", parent_shard_id="00000-aa", retry_reason="expired"
    )
    assert decode_record(encode_record(again)) == again
    assert decode_record(encode_record(again)).record_id == record.record_id


def test_given_a_field_that_is_named_as_the_pointer_when_read_then_the_key_is_what_the_pointer_leads_to() -> None:
    """Otherwise one key would depend on which lines are read together."""
    both = b'{"/meta/id":"wrong","meta":{"id":"right"},"title":"Heat"}'
    plain = b'{"meta":{"id":"other"},"title":"Heat"}'
    of_both = reader(key="/meta/id")
    assert of_both.read([both]).business_keys == ["right"]
    assert of_both.read([both, plain]).business_keys == ["right", "other"]
