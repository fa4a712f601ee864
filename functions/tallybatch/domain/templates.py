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
_SAFE_INT = 1 << 63
_BROKEN_KINDS = frozenset({"UnknownFilter", "UnknownTest", "UnknownFunction", "TemplateNotFound"})
"""Errors that do not depend on the record."""


@dataclass(frozen=True, slots=True)
class TemplateFault:
    """`line` is 1-based, within the template."""

    line: int
    reason: str


_PLAIN_TAG = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_WORDS = frozenset({"true", "false", "none", "True", "False", "None", "not", "loop", "self"})


def _plain_parts(source: str) -> list[str] | None:
    """Text and variable names in turn, if the template is nothing but text and `{{ name }}`; else None."""
    if source.endswith(("\r", "\r\n")):
        return None
    parts = _PLAIN_TAG.split(source.removesuffix("\n"))
    if any("{{" in text or "{%" in text or "{#" in text or "}}" in text for text in parts[::2]):
        return None
    if any(text.endswith("{") for text in parts[:-1:2]):  # `{{{`: MiniJinja's tag begins one character earlier
        return None
    return parts if _WORDS.isdisjoint(parts[1::2]) else None


class Template:
    """A compiled template. Rendering raises `ValueError` with the reason: an undefined variable, too long a loop.

    The record loop renders every record, so a template that only names variables, filled with strings and integers,
    is joined here; MiniJinja does all else. Both give the same text (tested with random templates and values).
    """

    def __init__(self, source: str) -> None:
        self._parts = _plain_parts(source)
        self._names = self._parts[1::2] if self._parts else []
        environment = minijinja.Environment(templates={_NAME: source}, undefined_behavior="strict")
        environment.fuel = FUEL
        self._render = environment.render_template

    @property
    def each_once(self) -> frozenset[str] | None:
        """The variables, if the template is nothing but text around them and names none twice."""
        names = frozenset(self._names)
        return names if self._parts is not None and len(names) == len(self._names) else None

    def render(self, fields: dict[str, Any]) -> str:
        """The text for one record; integers of any size keep their digits."""
        if self._parts is not None:
            joined = self._join(fields)
            if joined is not None:
                return joined
        for value in fields.values():
            kind = type(value)
            if (kind is int and not -_SAFE_INT <= value < _SAFE_INT) or kind is dict or kind is list:
                fields = _exact(fields)
                break
        try:
            return self._render(_NAME, **fields)
        except minijinja.TemplateError as error:
            raise ValueError(f"{_told(error)} (line {error.line} of the template)") from None

    def _join(self, fields: dict[str, Any]) -> str | None:
        parts: list[Any] = list(self._parts or ())
        position = 1
        for name in self._names:
            value = fields.get(name)
            kind = type(value)
            if kind is str:
                parts[position] = value
            elif kind is int:
                parts[position] = str(value)
            else:
                return None
            position += 2
        return "".join(parts)


def _exact(value: Any) -> Any:
    """Integers beyond 64 bits as their digits: MiniJinja rounds those beyond 128 bits to a float."""
    if type(value) is int and not -_SAFE_INT <= value < _SAFE_INT:
        return str(value)
    if type(value) is dict:
        return {key: _exact(item) for key, item in value.items()}
    if type(value) is list:
        return [_exact(item) for item in value]
    return value


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
