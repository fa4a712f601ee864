"""Prompts are filled strictly and exactly: no empty word for a missing value, no digit lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallybatch.domain.input_lines import MAX_DEPTH
from tallybatch.domain.templates import Template


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("Title: {{ title }}", {"title": "Heat"}, "Title: Heat"),
        ("{{ a.b[1] }}", {"a": {"b": [0, "x"]}}, "x"),
        ('{{ title or "unknown" }}', {"title": None}, "unknown"),
        ("{{ a | upper }}{% if b %}!{% endif %}", {"a": "x", "b": True}, "X!"),
        ("<{{ a }}>", {"a": "<b>&\"'"}, "<<b>&\"'>"),
        ("{{ a }}\n", {"a": "{{ b }}"}, "{{ b }}"),
        ("plain\n", {}, "plain"),
    ],
)
def test_given_values_when_rendered_then_the_text_is_as_written(
    template: str, values: dict[str, Any], text: str
) -> None:
    assert Template(template).render(values).rstrip("\n") == text


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=30))
def test_given_any_text_when_rendered_then_it_is_neither_escaped_nor_read_as_a_template(text: str) -> None:
    assert Template("[{{ a }}]").render({"a": text}) == f"[{text}]"


@settings(max_examples=50, deadline=None)
@given(st.integers(min_value=-(2**200), max_value=2**200))
@pytest.mark.parametrize("template", ["{{ a }}", "{{ b.c[0] }}"])
def test_given_any_integer_when_rendered_then_every_digit_is_there(template: str, number: int) -> None:
    assert Template(template).render({"a": number, "b": {"c": [number]}}) == str(number)


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64, 2**127, 2**128, -(2**63), -(2**63) - 1])
def test_given_an_integer_at_a_limit_when_rendered_beside_others_then_all_are_exact(number: int) -> None:
    text = Template("{{ big }} {{ small }} {{ on }} {{ list[1].x }}").render(
        {"big": number, "small": 7, "on": True, "list": [1, {"x": number}]}
    )
    assert text.split() == [str(number), "7", "True", str(number)]


@pytest.mark.parametrize(
    ("template", "value"),
    [("{{ a[0] }}", [2**130]), ("{{ a.b }}", {"b": 2**130}), ("{{ a[0].b[0] }}", [{"b": [2**130]}])],
)
def test_given_a_large_integer_inside_one_list_or_mapping_when_rendered_then_every_digit_is_there(
    template: str, value: Any
) -> None:
    assert Template(template).render({"a": value}) == str(2**130)


def test_given_a_small_number_beside_a_large_one_when_rendered_then_it_is_still_a_number() -> None:
    assert Template("{{ a + 1 }} {{ b[0] + 1 }}").render({"a": 1, "b": [2], "c": 2**70}) == "2 3"


@pytest.mark.parametrize(
    ("template", "values"),
    [
        ("{{ missing }}", {}),
        ("{{ a.b }}", {"a": {"c": "secret"}}),
        ("{{ a[3] }}", {"a": ["secret"]}),
        ("{% for x in missing %}{% endfor %}", {"a": "secret"}),
        ("{{ a.b.c }}", {"a": {}}),
        ("{{ a + 1 }}", {"a": "secret"}),
        ("{% if missing %}{% endif %}", {"a": "secret"}),
    ],
)
def test_given_a_template_that_cannot_be_filled_when_rendered_then_it_is_refused_without_a_value(
    template: str, values: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"line 1 of the template") as caught:
        Template(template).render(values)
    assert "secret" not in str(caught.value)


def test_given_the_deepest_value_a_line_may_hold_when_rendered_then_it_is() -> None:
    value: Any = 2**70
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert str(2**70) in Template("{{ a }}").render({"a": value})
