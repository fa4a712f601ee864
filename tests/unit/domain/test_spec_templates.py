"""The prompt template: strict, bounded, and read for its variables before any record is."""

import pytest

from tallybatch.domain.templates import Template, faults, line_of, variables


def test_given_all_fields_when_rendered_then_text_is_neither_escaped_nor_lost() -> None:
    assert Template("{{ name }}: {{ source }}").render({"name": "<b> & ☃", "source": 1}) == "<b> & ☃: 1"


def test_given_a_missing_field_when_rendered_then_it_is_an_error_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"`director` is undefined \(line 2 of the template\)"):
        Template("{{ title }}\n{{ director }}").render({"title": "Alien"})


def test_given_an_empty_field_when_rendered_with_a_fallback_then_the_fallback_is_taken() -> None:
    assert Template('{{ director or "unknown" }}').render({"director": None}) == "unknown"


def test_given_a_loop_without_end_when_rendered_then_it_stops() -> None:
    template = Template("{% for i in range(90000) %}{% for j in range(90000) %}{{ a }}{% endfor %}{% endfor %}")

    with pytest.raises(ValueError, match="fuel"):
        template.render({"a": 1})


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ("{{ a", 1, "template syntax"),
        ("a\n{% for x in %}", 2, "template syntax"),
        ("\n\n{{ a | shout }}", 3, "filter shout is unknown"),
        ("{{ a is happy }}", 1, "test happy is unknown"),
        ("{{ shout(a) }}", 1, "shout is unknown"),
        ("{% include 'other' %}", 1, "non-existing template"),
        ("{{ " + "(" * 10_000, 1, "recursion"),
    ],
)
def test_given_a_template_that_cannot_work_when_checked_then_line_and_reason_are_told(
    source: str, line: int, reason: str
) -> None:
    (fault,) = faults(source)

    assert fault.line == line
    assert reason in fault.reason


@pytest.mark.parametrize(
    "source", ["{{ a.b.c }}", "{{ 1 / a }}", "{% for x in a %}{{ x | upper }}{% endfor %}", "plain"]
)
def test_given_a_template_that_depends_on_the_record_when_checked_then_it_passes(source: str) -> None:
    assert faults(source) == []


def test_given_a_template_when_its_variables_are_taken_then_globals_and_locals_are_not_among_them() -> None:
    assert variables("{% set n = 1 %}{% for x in xs %}{{ x }}{{ n }}{{ range(2) }}{{ a.b }}{% endfor %}") == {"xs", "a"}


def test_given_a_variable_when_looked_for_then_the_line_is_that_of_its_use_not_of_its_mention() -> None:
    assert line_of("title\n{{ a.title }}\n{{ title_x }}\n{%\n if title %}{% endif %}", "title") == 5
    assert line_of("nothing", "title") == 1
