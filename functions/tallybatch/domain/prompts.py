"""Prompts: a MiniJinja template filled strictly, so that an undefined variable is an error and never an empty word."""

from __future__ import annotations

from typing import Any

import minijinja

from tallybatch.domain.input_lines import LineRefused

_SAFE_INT = 1 << 63


class Prompt:
    """The user template of a spec, compiled once."""

    def __init__(self, template: str) -> None:
        self._render = minijinja.Environment(templates={"user": template}, undefined_behavior="strict").render_template

    def render(self, values: dict[str, Any]) -> str:
        """Raises `LineRefused`; the reason names the variable, never its value."""
        for value in values.values():
            kind = type(value)
            if (kind is int and not -_SAFE_INT <= value < _SAFE_INT) or kind is dict or kind is list:
                values = _exact(values)
                break
        try:
            return self._render("user", **values)
        except minijinja.TemplateError as error:
            raise LineRefused("template", f"the prompt cannot be filled: {error.message or error.kind}") from None


def _exact(value: Any) -> Any:
    """Integers beyond 64 bits as their digits: MiniJinja would round those beyond 128 bits to a float."""
    if type(value) is int and not -_SAFE_INT <= value < _SAFE_INT:
        return str(value)
    if type(value) is dict:
        return {key: _exact(item) for key, item in value.items()}
    if type(value) is list:
        return [_exact(item) for item in value]
    return value
