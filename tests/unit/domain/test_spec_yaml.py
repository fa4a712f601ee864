"""YAML as people really save it: encodings, tabs, duplicate keys, bombs, and the guesses of YAML 1.1."""

import pytest

from tallybatch.domain.spec_file import parse_spec
from tallybatch.domain.yaml_file import MAX_DEPTH, MAX_FILE_BYTES, read_yaml
from tests.support.spec_texts import BASE, problems_of


@pytest.mark.parametrize(
    ("data", "line", "code", "reason"),
    [
        (b"", 1, "empty", "the file is empty"),
        (b" \n\n# only a comment\n", 1, "empty", "the file is empty"),
        (b"- a\n", 1, "not_a_mapping", "must be a mapping"),
        (b"\nhello\n", 2, "not_a_mapping", "must be a mapping"),
        (b"name: a\nowner:\n\tcost_center: x\n", 3, "yaml", "a tab cannot indent in YAML; use spaces"),
        (b"name: a\nmodel: 'm\n", 3, "yaml", "unexpected end of stream"),
        (b"name: a\nmodel: m: n\n", 2, "yaml", "mapping values are not allowed here"),
        (b"name: a\nmodel: *m\n", 2, "yaml", "undefined alias 'm'"),
        (b"name: a\n---\nname: b\n", 2, "yaml", "but found another document"),
        (b"name: a\nmodel: caf\xe9\n", 2, "encoding", "byte 0xE9 is not UTF-8"),
        (b"name: a\nmodel: \x00\n", 2, "yaml", "the character U+0000 is not allowed"),
        ("name: a\n".encode("utf-16"), 1, "encoding", "the file is UTF-16; save it as UTF-8"),
        (b"#" * (MAX_FILE_BYTES + 1), 0, "too_large", "at most 262144 are read"),
    ],
)
def test_given_a_file_that_is_no_yaml_mapping_when_read_then_line_and_reason_are_told(
    data: bytes, line: int, code: str, reason: str
) -> None:
    (problem,) = problems_of(data)

    assert (problem.line, problem.code) == (line, code)
    assert reason in problem.reason


def test_given_a_utf8_byte_order_mark_and_crlf_when_read_then_they_do_no_harm() -> None:
    assert parse_spec(b"\xef\xbb\xbf" + BASE.encode().replace(b"\n", b"\r\n")) == parse_spec(BASE.encode())


def test_given_a_key_twice_when_read_then_both_lines_are_named() -> None:
    (problem,) = problems_of(BASE.encode() + b"owner:\n  submitted_by: a\n  cost_center: b\n  submitted_by: c\n")

    assert (problem.line, problem.key, problem.code) == (8, "owner.submitted_by", "duplicate_key")
    assert problem.reason == "the key appears twice, on lines 6 and 8"


def test_given_anchors_and_merges_when_read_then_own_keys_win_and_lines_are_those_of_the_text() -> None:
    shared = b"owner: &team {submitted_by: data-team, cost_center: '1'}\n"
    data = read_yaml(shared + b"other:\n  <<: *team\n  cost_center: '2'\n  bad: *team\n", file="f", what="refused")

    assert data.problems == {}
    assert data.data["other"]["submitted_by"] == "data-team"
    assert data.data["other"]["cost_center"] == "2"
    assert data.data["other"]["bad"] == data.data["owner"]
    assert (data.line(("other", "submitted_by")), data.line(("other", "cost_center"))) == (1, 4)


def laughs(pattern: bytes) -> bytes:
    names = [bytes([letter]) for letter in range(ord("b"), ord("n"))]
    before = [bytes([name[0] - 1]) for name in names]
    lines = [
        b"%b: &%b " % (name, name) + pattern % b",".join([b"*" + old] * 10)
        for name, old in zip(names, before, strict=True)
    ]
    return b"a: &a {k: v}\n" + b"\n".join(lines)


@pytest.mark.parametrize("pattern", [b"[%b]", b"{<<: [%b]}", b"{x: [%b]}"])
def test_given_billions_of_aliases_when_read_then_it_stops_soon(pattern: bytes) -> None:
    (problem,) = problems_of(laughs(pattern))

    assert problem.code == "too_large"


@pytest.mark.parametrize("data", [b"a: &a [*a]", b"a: &a {b: *a}", b"a: &a {<<: *a}"])
def test_given_an_alias_that_contains_itself_when_read_then_it_is_refused(data: bytes) -> None:
    assert "contains itself" in problems_of(data)[0].reason


@pytest.mark.parametrize("opening", [b"[", b"{", b"- ", b"? ", b"{a: "])
def test_given_depth_without_end_when_read_then_it_is_refused(opening: bytes) -> None:
    (problem,) = problems_of(b"a:\n  " + opening * 20_000)

    assert f"nested deeper than {MAX_DEPTH} levels" in problem.reason


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("1.0", 'must be text, but YAML reads 1.0 as the number 1.0; quote it: "1.0"'),
        ("4711", 'must be text, but YAML reads 4711 as the number 4711; quote it: "4711"'),
        ("no", 'must be text, but YAML reads no as false; quote it: "no"'),
        ("On", 'must be text, but YAML reads On as true; quote it: "On"'),
        ("true", 'must be text, but YAML reads true as true; quote it: "true"'),
        ("1e5", 'must be text, but YAML reads 1e5 as the number 100000.0; quote it: "1e5"'),
        ("0471", 'YAML does not read 0471 as it looks; quote it: "0471", or write a plain decimal number'),
        ("12:30", 'YAML does not read 12:30 as it looks; quote it: "12:30", or write a plain decimal number'),
        ("2024-01-01", 'YAML reads 2024-01-01 as a date; quote it: "2024-01-01"'),
        ("!!python/name:os.system x", "the tag !!python/name:os.system is not allowed"),
        ("!secret x", "the tag !secret is not allowed"),
        ("!!binary aGk=", "the tag !!binary is not allowed"),
        ("!!int x", 'YAML does not read x as it looks; quote it: "x", or write a plain decimal number'),
        ('"\\ud800"', "a lone surrogate is not a character"),
        ("9" * 5000, "the number does not fit into 64 bits; quote it if it is text"),
        ("~", "has no value; give it one, or remove the key to get the default"),
    ],
)
def test_given_a_text_that_yaml_reads_otherwise_when_read_then_the_advice_is_exact(written: str, reason: str) -> None:
    (problem,) = problems_of(BASE.encode() + f"owner:\n  cost_center: {written}\n".encode())

    assert (problem.line, problem.key, problem.reason) == (6, "owner.cost_center", reason)


@pytest.mark.parametrize("written", ["'no'", '"1.0"', "0x", "08", "a:b", "=", "!!str 1.0", "no-one"])
def test_given_a_text_that_is_one_when_read_then_it_is_kept(written: str) -> None:
    assert parse_spec(BASE.encode() + f"owner: {{cost_center: {written}}}\n".encode()).owner.cost_center != ""


@pytest.mark.parametrize("key", ["no", "1", "null", "2024-01-01"])
def test_given_a_key_that_is_no_text_when_read_then_it_asks_for_quotes(key: str) -> None:
    (problem,) = problems_of(BASE.encode() + f"aliases:\n  {key}: m-1\n".encode())

    assert (problem.line, problem.key, problem.code) == (6, f"aliases.{key}", "quote")


@pytest.mark.parametrize("key", ["[a]", "{a: b}", "? [a]\n  "])
def test_given_a_key_that_is_no_scalar_when_read_then_it_is_refused(key: str) -> None:
    (problem,) = problems_of(BASE.encode() + f"aliases:\n  {key}: m-1\n".encode())

    assert (problem.line, problem.reason) == (6, "a key must be text")


def test_given_json_escapes_beyond_the_basic_plane_when_read_then_they_are_one_character() -> None:
    assert parse_spec(BASE.encode() + b'owner: {cost_center: "\\ud83d\\ude00"}').owner.cost_center == "\U0001f600"


def test_given_json_when_read_as_a_spec_then_it_is_one() -> None:
    data = b'{"name": "film-genre", "provider": "openai", "model": "m-1", "prompt": {"user": "{{ title }}"}}'

    assert parse_spec(data) == parse_spec(BASE.encode())


def test_given_numbers_as_json_writes_them_when_read_then_they_are_numbers() -> None:
    assert parse_spec(BASE.encode() + b"generation: {temperature: 1e0, top_p: 5e-1}").generation == {
        "temperature": 1.0,
        "top_p": 0.5,
    }
