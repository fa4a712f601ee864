"""Label distribution: how often each value of a field with few values occurs among the accepted answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import astuple

MOST_VALUES = 30
"""A field with more values than this is no label."""
LONGEST_VALUE = 64
"""Characters; a longer text is no label, and is never copied into a report."""
FEWEST = 3
"""A text that no enumeration lists is a label if it occurs so often in a shard; rarer ones are only counted, for they
may be what somebody wrote."""
NONE = "(none)"
RARE = "(rare)"
_TOO_MUCH = "\x00"
"""Marks a field that is given up."""
_ONE_OF = ("boolean", "string")

Labels = dict[str, dict[str, int]]
"""Records by value, by field."""


class LabelTally:
    """Top-level fields of the schema that are an enumeration, true or false, or text. A field is given up as soon as
    it has too many values or too long ones; when none is left, counting costs nothing."""

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        properties = (schema or {}).get("properties")
        named = properties.items() if isinstance(properties, Mapping) else ()
        self._count({name: Counter() for name, inner in named if _may_be_label(inner)})
        self._listed = {name for name, inner in named if name in self._counts and "enum" in inner}

    def _count(self, counts: dict[str, Counter[str]]) -> None:
        """Count these fields from now on."""
        self._counts, self._columns = counts, list(counts.values())
        fields = [(f"f{number}", Any, None) for number in range(len(self._counts))]
        names = {f"f{number}": name for number, name in enumerate(self._counts)}
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Fields", fields, rename=names, gc=False)).decode

    def add(self, output: msgspec.Raw) -> None:
        columns = self._columns
        if not columns:
            return
        try:
            found = self._decode(output)
        except msgspec.ValidationError:
            self._count({})
            return
        given_up = False
        for column, value in enumerate(astuple(found)):
            counts = columns[column]
            if type(value) is str:
                text = value
            elif value is None:
                text = NONE
            elif type(value) in (bool, int, float):
                text = msgspec.json.encode(value).decode()
            else:
                given_up, counts[_TOO_MUCH] = True, 1
                continue
            counts[text] += 1
            if len(text) > LONGEST_VALUE or len(counts) > MOST_VALUES:
                given_up, counts[_TOO_MUCH] = True, 1
        if given_up:
            self._count({name: counts for name, counts in self._counts.items() if _TOO_MUCH not in counts})

    @property
    def labels(self) -> Labels:
        return {
            name: dict(counts) if name in self._listed else _without_rare(counts)
            for name, counts in self._counts.items()
        }


def _without_rare(counts: Counter[str]) -> dict[str, int]:
    often = {value: count for value, count in counts.items() if count >= FEWEST or value in (NONE, "true", "false")}
    rare = counts.total() - sum(often.values())
    return {**often, RARE: rare} if rare else often


def _may_be_label(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    return "enum" in schema or any(kind in _ONE_OF for kind in kinds)


def merged(parts: Iterable[Labels]) -> Labels:
    """Of several parts of one job: a field that any of them gave up is given up."""
    total: dict[str, Counter[str]] | None = None
    for labels in parts:
        if total is None:
            total = {name: Counter(counts) for name, counts in labels.items()}
            continue
        total = {name: counts + Counter(labels[name]) for name, counts in total.items() if name in labels}
    kept = {name: counts for name, counts in (total or {}).items() if 0 < len(counts) <= MOST_VALUES}
    return {name: dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))) for name, counts in kept.items()}


def worth_showing(labels: Labels) -> Labels:
    """Fields of which most records have a label."""
    return {name: counts for name, counts in labels.items() if 2 * counts.get(RARE, 0) < sum(counts.values())}
