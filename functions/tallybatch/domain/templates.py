"""The prompt template: MiniJinja in strict mode, so that an undefined variable is an error and never an empty word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import minijinja

FUEL = 1_000_000
"""Instructions one rendering may take; a template that loops without end is an error, not a hung function."""

_NAME = "prompt.user"
_CHECK_FUEL = 10_000
_BROKEN_KINDS = frozenset({"UnknownFilter", "UnknownTest", "UnknownFunction", "TemplateNotFound"})
"""Errors that do not depend on the record."""


@dataclass(frozen=True, slots=True)
class TemplateFault:
    """`line` is 1-based, within the template."""

    line: int
    reason: str


class Template:
    """A compiled template. Rendering raises `ValueError` with the reason: an undefined variable, too long a loop."""

    def __init__(self, source: str) -> None:
        self._environment = minijinja.Environment(templates={_NAME: source}, undefined_behavior="strict")
        self._environment.fuel = FUEL

    def render(self, fields: dict[str, Any]) -> str:
        try:
            return self._environment.render_template(_NAME, **fields)
        except minijinja.TemplateError as error:
            raise ValueError(f"{_told(error)} (line {error.line} of the template)") from None


def variables(source: str) -> frozenset[str]:
    """Names that a record must bring. Empty for a template that does not parse."""
    environment = minijinja.Environment()
    try:
        names = environment.undeclared_variables_in_str(source)
    except minijinja.TemplateError:
        return frozenset()
    return frozenset(names) - environment.globals.keys()


def faults(source: str) -> list[TemplateFault]:
    """Why no record could be rendered: bad syntax, or a filter, test, function or other template that does not exist.

    MiniJinja looks filters up while it renders, so this renders once with nothing; a branch not taken is not seen.
    """
    environment = minijinja.Environment(undefined_behavior="chainable")
    environment.fuel = _CHECK_FUEL
    try:
        environment.add_template(_NAME, source)
    except minijinja.TemplateError as error:
        return [TemplateFault(error.line or 1, f"template syntax: {_told(error)}")]
    try:
        environment.render_template(_NAME)
    except minijinja.TemplateError as error:
        if error.kind in _BROKEN_KINDS:
            return [TemplateFault(error.line or 1, f"template: {_told(error)}")]
    return []


def line_of(source: str, variable: str) -> int:
    """1-based line of the first tag that mentions `variable`; 1 if none does by that spelling."""
    word = re.compile(rf"(?<![\w.]){re.escape(variable)}(?!\w)")
    for tag in re.finditer(r"\{[{%].*?[%}]\}", source, re.DOTALL):
        found = word.search(tag.group())
        if found:
            return source.count("\n", 0, tag.start() + found.start()) + 1
    return 1


def _told(error: minijinja.TemplateError) -> str:
    return error.detail or error.message.splitlines()[0]
