"""One line of input: nothing that a lenient parser would hide comes through, and every reason can be acted on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from tallybatch.domain.input_lines import (
    MAX_DEPTH,
    MAX_KEY_LENGTH,
    MAX_LINE_BYTES,
    LineRefused,
    decode_object,
    pointer_reader,
    read_key,
    resolve,
)


def refusal(line: bytes) -> LineRefused:
    with pytest.raises(LineRefused) as caught:
        decode_object(line)
    return caught.value


@pytest.mark.parametrize(
    ("line", "code", "reason"),
    [
        (b"", "blank_line", "blank"),
        (b" \t\r", "blank_line", "blank"),
        (b"\xef\xbb\xbf{}", "byte_order_mark", "byte order mark"),
        (b"[1]", "not_an_object", "an array"),
        (b'"x"', "not_an_object", "a string"),
        (b"null", "not_an_object", "null"),
        (b"true", "not_an_object", "a boolean"),
        (b"1.5", "not_an_object", "a number"),
        (b'{"a":1', "invalid_json", "at character 7"),
        (b'{"a":1}{"b":2}', "invalid_json", "Extra data at character 8"),
        (b'{"a":1},', "invalid_json", "Extra data at character 8"),
        (b"{'a':1}", "invalid_json", "double quotes at character 2"),
        (b'{"a":01}', "invalid_json", "at character 7"),
        (b'{"a":.5}', "invalid_json", "at character 6"),
        (b'{"a":"\x01"}', "invalid_json", "control character at character 7"),
        (b'{"a":"\t"}', "invalid_json", "control character at character 7"),
        (b'{"a":"\\x41"}', "invalid_json", "escape"),
        (b'{"a":1,}', "invalid_json", "at character 8"),
        (b'{"a":1} // note', "invalid_json", "Extra data"),
        (b'{"a":"\xff"}', "invalid_utf8", "byte 7 "),
        (b'{"\xc3":1}', "invalid_utf8", "byte 3 "),
        (b'{"a":"\xed\xa0\x80"}', "invalid_utf8", "byte 7 "),
        (b'{"a":"\xc0\x80"}', "invalid_utf8", "byte 7 "),
        (b'{"a":"\\ud800"}', "lone_surrogate", "surrogate"),
        (b'{"a":"\\udfffx"}', "lone_surrogate", "surrogate"),
        (b'{"a":"\\ud83d\\u0041"}', "lone_surrogate", "surrogate"),
        (b'{"\\ud800":1}', "lone_surrogate", "surrogate"),
        (b'{"a":NaN}', "not_a_number", "NaN"),
        (b'{"a":[1,Infinity]}', "not_a_number", "Infinity"),
        (b'{"a":-Infinity}', "not_a_number", "-Infinity"),
        (b'{"a":1e400}', "number_range", "1e400"),
        (b'{"a":' + b"9" * 4301 + b"}", "number_range", "4,301 digits"),
        (b'{"a":1,"a":2}', "duplicate_json_key", "'a'"),
        (b'{"a" :1,"a"  :2}', "duplicate_json_key", "'a'"),
        (b'{"a":1,"b":2,"c":{"d":1,"d":1}}', "duplicate_json_key", "'d'"),
        (b'{"x":[{"d":1},{"d":1,"e":{"f":0,"f":0}}]}', "duplicate_json_key", "'f'"),
        (b'{"a":"x","a":1}', "duplicate_json_key", "'a'"),
        (b'{"a":1,"a":"x"}', "duplicate_json_key", "'a'"),
        (b'{"a":"say \\"hi\\"","a":1}', "duplicate_json_key", "'a'"),
        (b'{"a":"c:\\\\","a":"c:\\\\"}', "duplicate_json_key", "'a'"),
        (b'{"a":{"x":"y"},"a":"z"}', "duplicate_json_key", "'a'"),
        (b'{"a":1,"\\u0061":2}', "duplicate_json_key", "'a'"),
        (b'{"":1,"":2}', "duplicate_json_key", "''"),
        (b'{"a":"' + b"x" * MAX_LINE_BYTES + b'"}', "line_too_long", "1,048,576 bytes"),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, "too_deep", "200 levels"),
        (b"[" * 2000 + b"]" * 2000, "too_deep", "200 levels"),
        (b'{"a":' + b"[" * 100_000, "too_deep", "200 levels"),
    ],
)
def test_given_a_bad_line_when_decoded_then_code_and_reason_tell_what_to_mend(
    line: bytes, code: str, reason: str
) -> None:
    refused = refusal(line)
    assert refused.code == code
    assert reason in refused.reason
    assert str(refused) == refused.reason


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"{}", {}),
        (b' {"a": 1 }\r', {"a": 1}),
        (b'{"a":"\\u2028\\ud83d\\ude00"}', {"a": "\u2028😀"}),
        ('{"a":"\u2028\u0085"}'.encode(), {"a": "\u2028\u0085"}),
        (b'{"a":"say \\"hi\\"","b":"c:\\\\"}', {"a": 'say "hi"', "b": "c:\\"}),
        (b'{"a":{"a":1},"b":[{"a":1},{"a":"a"}]}', {"a": {"a": 1}, "b": [{"a": 1}, {"a": "a"}]}),
        (b'{"a":"\\"a\\":1"}', {"a": '"a":1'}),
        ('{"é":1,"e\u0301":2}'.encode(), {"é": 1, "e\u0301": 2}),
        (b'{"a":[0.1,1e300,-0.0,true,null]}', {"a": [0.1, 1e300, -0.0, True, None]}),
    ],
)
def test_given_a_good_line_when_decoded_then_nothing_of_it_changes(line: bytes, value: dict[str, Any]) -> None:
    assert decode_object(line) == value


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**128, -(2**70), 10**4299])
def test_given_an_integer_of_any_size_when_decoded_then_it_is_unchanged(number: int) -> None:
    flat, nested = decode_object(b'{"a":%d}' % number), decode_object(b'{"a":[{"b":%d,"c":"x"}]}' % number)
    assert (flat, nested) == ({"a": number}, {"a": [{"b": number, "c": "x"}]})
    assert type(flat["a"]) is int


def test_given_a_line_at_a_limit_when_decoded_then_it_passes_and_one_more_does_not() -> None:
    longest = b'{"a":"' + b"x" * (MAX_LINE_BYTES - 8) + b'"}'
    assert len(longest) == MAX_LINE_BYTES
    assert len(decode_object(longest)["a"]) == MAX_LINE_BYTES - 8
    assert refusal(longest + b" ").code == "line_too_long"


@pytest.mark.parametrize("opening", [b'{"a":', b"["])
def test_given_the_deepest_line_when_decoded_then_it_passes_and_one_deeper_does_not(opening: bytes) -> None:
    def nested(depth: int) -> bytes:
        inner = opening * (depth - 1) + b"1" + (b"}" if opening == b'{"a":' else b"]") * (depth - 1)
        return b'{"z":' + inner + b"}"

    assert decode_object(nested(MAX_DEPTH))
    assert refusal(nested(MAX_DEPTH + 1)).code == "too_deep"


def test_given_wide_lines_and_brackets_in_text_when_decoded_then_they_are_not_taken_for_deep() -> None:
    assert len(decode_object(b'{"a":[' + b"[]," * 999 + b"{}]}")["a"]) == 1000
    assert decode_object(b'{"a":"' + b"[{" * 999 + b'"}') == {"a": "[{" * 999}


@pytest.mark.parametrize("depth", range(880, 1010))
def test_given_a_depth_near_the_interpreters_own_limit_when_decoded_then_it_is_refused_as_every_other(
    depth: int,
) -> None:
    """A value that a later equal key replaces is deep on the line, and not in what the decoder returns."""
    hidden = b'{"a":' + b"[" * depth + b'"x"' + b"]" * depth + b',"a":1}'
    assert refusal(hidden).code in ("too_deep", "duplicate_json_key")
    assert refusal(hidden.replace(b',"a":1', b"")).code == "too_deep"


PIECES = [
    "{", "}", "[", "]", ":", ",", '"a"', '"b"', '"\\u0061"', '"\\""', '"\\\\"', '"x"', '"', "\\", "1", "-1", "0", "01",
    "1.5", "1e5", "1e999", "-", ".", "NaN", "Infinity", "-Infinity", "true", "false", "null", "nul", " ", "\t", "\r",
    '"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\u2028"', '"\x1f"', "\u00a0", "18446744073709551616", "\x00", "//",
    '{"a":1}', '{"a":1,"b":"x"}', '[{"a":[]}]', '"a":1,', '"a":"x",', '"b":{"a":"\\"a\\""},', '"é"', "+1", "\x0b",
]  # fmt: skip
JSONISH = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
MEMBERS = st.lists(
    st.tuples(
        st.sampled_from(['"a"', '"b"', '"\\u0061"', '"a\\"b"', '"\\\\"', '"c" ']),
        st.sampled_from(
            ['"x"', '"\\"a\\":1"', '"c:\\\\"', "1", '{"a":"x"}', '["a","a"]', '{"b":1,"b":2}', "NaN", '""']
        ),
    ),
    max_size=5,
).map(lambda members: "{" + ",".join(f"{name}:{value}" for name, value in members) + "}")


class Refused(Exception):
    """The reference's own refusal."""


def strict_reference(line: bytes) -> dict[str, Any] | None:
    """The standard library's parser, made strict: None where the line must be refused."""

    def no_constant(name: str) -> Any:
        raise Refused(name)

    def finite(text: str) -> float:
        if abs(float(text)) == float("inf"):
            raise Refused(text)
        return float(text)

    def unique(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in items:
            if name in found:
                raise Refused(name)
            found[name] = value
        return found

    try:
        value = json.loads(
            line.decode("utf-8"), parse_constant=no_constant, parse_float=finite, object_pairs_hook=unique
        )
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, Refused):
        return None
    return value if isinstance(value, dict) else None


@settings(max_examples=400, deadline=None)
@given(JSONISH | MEMBERS | MEMBERS.map(lambda text: f'{{"z":{text}}}'))
@example('{"a":1,"\\u0061":1}')
@example('{"a" :"x","b":[{"a":"\\"a\\""}]}')
@example('{"a":"\\ud800"}')
def test_given_text_like_json_when_decoded_then_it_is_just_what_a_strict_parser_takes(text: str) -> None:
    line = text.encode()
    expected = strict_reference(line)
    event("accepted" if expected is not None else "refused")
    try:
        value = decode_object(line)
    except LineRefused as refused:
        assert expected is None, refused.reason
        assert refused.code
        assert refused.reason
    else:
        assert value == expected
        assert json.dumps(value) == json.dumps(expected)


@settings(max_examples=120, deadline=None)
@given(st.binary(max_size=60))
def test_given_any_bytes_when_decoded_then_it_is_an_object_or_a_refusal(line: bytes) -> None:
    expected = strict_reference(line)
    try:
        assert decode_object(line) == expected
    except LineRefused:
        assert expected is None


@pytest.mark.parametrize(
    ("value", "key"),
    [("a", "a"), (" a ", " a "), ("0", "0"), (0, "0"), (-7, "-7"), (2**70, str(2**70)), ("é😀\u2028", "é😀\u2028")],
)
def test_given_a_usable_key_when_read_then_it_is_its_own_text(value: Any, key: str) -> None:
    assert read_key(value) == key


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "empty"),
        ("a\nb", "control character"),
        ("a\x7f", "control character"),
        ("\x00", "control character"),
        (1.0, "a number"),
        (True, "a boolean"),
        (None, "null"),
        (["a"], "an array"),
        ({"a": 1}, "an object"),
        ("x" * (MAX_KEY_LENGTH + 1), "513 characters"),
        (10**MAX_KEY_LENGTH, "513 characters"),
    ],
)
def test_given_an_unusable_key_when_read_then_its_shape_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(LineRefused, match=reason) as caught:
        read_key(value)
    assert caught.value.code == "key_shape"


def test_given_the_longest_key_when_read_then_it_passes() -> None:
    assert read_key("é" * MAX_KEY_LENGTH) == "é" * MAX_KEY_LENGTH


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", {"b": [10, {"c/d": "x", "m~n": "y"}], "0": "zero"}),
        ("/a/b/0", 10),
        ("/a/b/1/c~1d", "x"),
        ("/a/b/1/m~0n", "y"),
        ("/a/0", "zero"),
        ("x.y", 1),
    ],
)
def test_given_a_path_when_resolved_then_it_is_the_field_or_the_pointers_value(path: str, value: Any) -> None:
    source = {"a": {"b": [10, {"c/d": "x", "m~n": "y"}], "0": "zero"}, "x.y": 1}
    assert resolve(source, pointer_reader(path), path) == value


@pytest.mark.parametrize("path", ["z", "/a/z", "/a/b/2", "/a/b/-1", "/a/b/x", "/a/b/0/c", "/a/b/²"])
def test_given_a_path_that_leads_nowhere_when_resolved_then_the_field_is_missing(path: str) -> None:
    with pytest.raises(LineRefused, match="is missing") as caught:
        resolve({"a": {"b": [10, 11]}}, pointer_reader(path), path)
    assert caught.value.code == "missing_field"
