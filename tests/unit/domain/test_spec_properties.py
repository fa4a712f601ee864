"""Whatever the bytes are, reading a spec gives a spec or a `BadInput` that can be acted on."""

from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.errors import BadInput
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_file import parse_spec, resolved

SPECS = [path.read_bytes() for path in sorted((Path(__file__).parents[2] / "data" / "specs").glob("*.yaml"))]


def read(data: bytes) -> Spec | None:
    """Fails on any other exception, and on a refusal that does not say why or where."""
    try:
        return parse_spec(data)
    except BadInput as refused:
        assert refused.problems
        lines = data.count(b"\n") + data.count(b"\r") + 1
        for problem in refused.problems:
            assert problem.reason
            assert problem.code
            assert problem.line >= 1
            assert problem.line <= lines + data.count(b"\xe2\x80") + data.count(b"\xc2\x85")
        return None


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_given_any_bytes_when_read_then_nothing_but_bad_input_is_raised(data: bytes) -> None:
    read(data)


WORDS = [
    "name", "provider", "openai", "model", "prompt", "user", "input", "fields", "output", "schema", "type", "object",
    "generation", "stop", "retry", "backoff", "aliases", "fallback", "5m", "{{ a }}", "{{", "no", "1.0", "010",
    "2024-01-01", ".nan", "~", "<<", "!!str", "!x", "&a", "*a", "|", ">", "-", "?", "[", "]", "{", "}", ":", ": ", ",",
    "\n", "\n  ", "\n    ", "'", '"', "#", "\t", "%", "---", "\\ud800", "$ref", "#/x", "99999999999999999999", "=",
]  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=40).map("".join))
def test_given_text_like_yaml_when_read_then_nothing_but_bad_input_is_raised(text: str) -> None:
    read(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(SPECS), st.integers(0, 2000), st.integers(0, 12), st.sampled_from(WORDS))
def test_given_a_spec_with_a_piece_replaced_when_read_then_it_is_a_spec_or_bad_input(
    data: bytes, at: int, length: int, word: str
) -> None:
    at %= len(data)
    spec = read(data[:at] + word.encode() + data[at + length :])

    if spec is not None:
        assert parse_spec(yaml.safe_dump(resolved(spec)).encode()) == spec


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(Spec.model_fields)), JSON, st.sampled_from(SPECS))
def test_given_any_value_under_any_key_when_read_then_it_is_a_spec_or_bad_input(
    key: str, value: object, data: bytes
) -> None:
    content = yaml.safe_load(data) | {key: value}

    read(yaml.safe_dump(content, allow_unicode=True).encode("utf-8", "surrogatepass"))


@settings(max_examples=60, deadline=None)
@given(JSON, st.sampled_from(["properties", "type", "enum", "$ref", "pattern", "$schema", "required", "$defs"]))
def test_given_any_output_schema_when_read_then_it_is_a_spec_or_bad_input(value: object, key: str) -> None:
    content = yaml.safe_load(SPECS[1])
    content["output"]["schema"] = {"type": "object", key: value}

    read(yaml.safe_dump(content).encode("utf-8", "surrogatepass"))
