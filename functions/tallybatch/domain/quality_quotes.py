"""Quotes: fields of the output that must occur in the record's input, word for word, whatever the white space."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from tallybatch.domain.input_lines import pointer_reader

EACH = "*"
"""As a step of a pointer: each element of a list, or each value of an object."""


class Quotes:
    """`fields` are names or JSON pointers into the output. What is absent or null quotes nothing: whether it may be
    absent is the schema's business."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = [(field, pointer_reader(field)) for field in fields]

    def missing(self, given: Any, output: Any) -> list[str]:
        """A reason for each field with a quote that is not in the input. An empty text is not a quote."""
        reasons = []
        sources: list[str] | None = None
        for field, steps in self._fields:
            for value in _values(output, steps):
                if not isinstance(value, str):
                    reasons.append(f"quote {field} is not text")
                    break
                quote = _plain(value)
                if not quote:
                    reasons.append(f"quote {field} is empty")
                    break
                if sources is None:
                    sources = [_plain(text) for text in _texts(given)]
                if not any(quote in source for source in sources):
                    reasons.append(f"quote {field} does not occur in the input")
                    break
        return reasons


def _plain(text: str) -> str:
    """Composed, too: a word with an accent is the same word in both of its Unicode spellings."""
    return unicodedata.normalize("NFC", " ".join(text.split()))


def _values(node: Any, steps: Sequence[str]) -> Iterator[Any]:
    """What is at the pointer; of a list each element."""
    if not steps:
        if isinstance(node, list):
            for item in node:
                yield from _values(item, steps)
        elif node is not None:
            yield node
        return
    step, rest = steps[0], steps[1:]
    if step == EACH and isinstance(node, list | dict):
        for inner in node.values() if isinstance(node, dict) else node:
            yield from _values(inner, rest)
    elif isinstance(node, dict) and step in node:
        yield from _values(node[step], rest)
    elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
        yield from _values(node[int(step)], rest)


def _texts(node: Any) -> Iterator[str]:
    """Every text in the input, at any depth. Depth is bounded where the input is read."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for inner in node.values():
            yield from _texts(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _texts(inner)
