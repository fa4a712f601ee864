"""The fast way of rendering plain templates gives what MiniJinja gives."""

from __future__ import annotations

from typing import Any

import minijinja
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallybatch.domain.templates import Template

NAMES = ("title", "n", "true", "loop", "x_1")
TEXT = st.text(st.sampled_from('ab {}%#-\n\r\u2028é"\\'), max_size=6)
TAGS = st.sampled_from([f"{{{{ {name} }}}}" for name in NAMES] + [f"{{{{{name}}}}}" for name in NAMES])
SOURCES = st.lists(st.one_of(TEXT, TAGS), max_size=8).map("".join)
BRACED = st.tuples(st.text("a{}", max_size=4), TAGS, st.text("a{}", max_size=4)).map("".join)
"""A tag between braces that are text, or are not: `{{{ title }}`."""
VALUES = st.one_of(st.text(max_size=8), st.integers(0, 2**63 - 1), st.booleans(), st.none(), st.just(0.5))


def by_minijinja(source: str, fields: dict[str, Any]) -> str:
    environment = minijinja.Environment(templates={"t": source}, undefined_behavior="strict")
    return environment.render_template("t", **fields)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(SOURCES, BRACED), st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_a_template_renders_as_minijinja_renders_it(source: str, fields: dict[str, Any]) -> None:
    # GIVEN a template and values
    try:
        expected = by_minijinja(source, fields)
    except minijinja.TemplateError:
        # WHEN MiniJinja refuses THEN so do we
        with pytest.raises((ValueError, minijinja.TemplateError)):
            Template(source).render(fields)
        return
    # WHEN it does not THEN the text is the same
    assert Template(source).render(fields) == expected


@pytest.mark.parametrize("source", ["{{{ title }}", "a{{{ title }}}", "{{ n }}{{{ title }}", "{{{{ title }}"])
def test_given_a_brace_right_before_a_tag_when_rendered_then_it_is_what_minijinja_makes_of_it(source: str) -> None:
    fields = {"title": "x", "n": 1}
    try:
        expected = by_minijinja(source, fields)
    except minijinja.TemplateError:
        with pytest.raises((ValueError, minijinja.TemplateError)):
            Template(source).render(fields)
    else:
        assert Template(source).render(fields) == expected


@pytest.mark.parametrize("number", [2**64, 2**127, 2**200 + 1, -(2**130), 10**60])
def test_integers_of_any_size_keep_their_digits(number: int) -> None:
    assert Template("{{ n }}").render({"n": number}) == str(number)
    assert Template("{{ n or 0 }}|{{ d.n }}").render({"n": number, "d": {"n": number}}) == f"{number}|{number}"
