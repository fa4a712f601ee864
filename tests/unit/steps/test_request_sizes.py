"""A request's size is told without rendering it where that is safe, and then it is the size of the rendered line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch import wiring
from tallybatch.domain.input_lines import LineRefused
from tallybatch.domain.records import RecordReader, decode_record, encode_sorted
from tallybatch.domain.spec_file import parse_spec
from tallybatch.steps.rendering import Requests

SPEC = """
name: x
provider: {provider}
model: {model}
prompt: {{system: "Say\\u2028it", user: "T: {{{{ title }}}}\\u2029P: {{{{ plot }}}}"}}
"""
MODELS = {
    "openai": "gpt-5-mini-2025-08-07",
    "bedrock": "amazon.nova-lite-v1:0",
    "gemini": "gemini-2.5-flash",
}
TEXT = st.text(max_size=12) | st.sampled_from(
    ["a\u2028b", "\x85", "\u2029", "\u2019quoted\u2019", 'say "hi"\\', "\x00"]
)
VALUES = st.fixed_dictionaries({"title": TEXT | st.integers() | st.booleans(), "plot": TEXT})


@settings(max_examples=150, deadline=None)
@given(VALUES, st.sampled_from(sorted(MODELS)))
def test_given_any_values_when_a_record_is_read_then_its_size_is_that_of_its_request_line(
    values: dict[str, Any], provider: str
) -> None:
    spec = parse_spec(SPEC.format(provider=provider, model=MODELS[provider]).encode())
    requests = Requests(spec, wiring.formats)
    around = requests.around(spec.input.fields)
    assert around is not None
    reader = RecordReader(
        key="id",
        fields=spec.input.fields,
        source_version="",
        identity=spec.identity("acme"),
        measure=requests.measure,
        around=around,
    )
    prepared = reader.read([encode_sorted({"id": "a", **values})])
    assert prepared.request_bytes == [len(requests.line(decode_record(prepared.lines[0])))]


@pytest.mark.parametrize(
    "user", ["{{ a }}{{ a }}", "{{ a | upper }} {{ b }}", "{% if a %}{{ b }}{% endif %}", "{{ b }}"]
)
def test_given_a_prompt_that_is_more_than_text_around_each_field_when_asked_then_it_must_be_rendered(user: str) -> None:
    spec = parse_spec(f"{{name: x, provider: openai, model: m-1, prompt: {{user: '{user}'}}}}".encode())
    assert Requests(spec, wiring.formats).around(("a", "b")) is None


def test_given_a_field_that_no_template_can_take_when_read_then_it_is_refused_as_ever() -> None:
    spec = parse_spec(b"{name: x, provider: openai, model: m-1, prompt: {user: '{{ a.b }}'}}")
    requests = Requests(spec, wiring.formats)
    with pytest.raises(LineRefused, match="the prompt cannot be filled"):
        requests.measure({"a": {}})
