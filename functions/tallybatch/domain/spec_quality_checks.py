"""Checks on a spec's `quality` section: what cannot be judged is said before anything is spent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tallybatch.domain import quality_rules, templates
from tallybatch.domain.input_lines import pointer_reader
from tallybatch.domain.quality_quotes import EACH
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_checks import Check, Finding, Path, nearest
from tallybatch.domain.units import shown

_POINTER = re.compile(r"(/([^~/]|~[01])*)+")
_COMPOSED = ("$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "$dynamicRef")
"""Keywords by which an object may have properties that `properties` does not list."""


def _rules(spec: Spec) -> Iterator[Finding]:
    for number, rule in enumerate(spec.quality.rules):
        if found := quality_rules.fault(rule):
            yield Finding(("quality", "rules", number), found.reason, "rule", found.line)


def _rule_fields(spec: Spec) -> Iterator[Finding]:
    """A rule over a field that is never there fails each answer: all of them are paid, at each try, for nothing."""
    used = templates.variables(spec.prompt.user) if spec.prompt is not None else frozenset()
    fields = list(spec.input.fields) or sorted(used)
    for number, rule in enumerate(spec.quality.rules):
        path: Path = ("quality", "rules", number)
        if quality_rules.fault(rule):
            continue
        for name, _, line in () if spec.is_native else quality_rules.fields_read(rule, "input"):
            if name not in fields:
                reason = f"{shown(name)} is not among input.fields, so no rule sees it{nearest(name, fields)}"
                yield Finding(path, reason, "rule", line)
        for name, asked, line in quality_rules.fields_read(rule, "output"):
            if spec.output.schema_ is None:
                reason = "without output.schema an answer has no fields"
            else:
                reason = "" if asked and _is_open(spec.output.schema_) else _field_fault(spec, name)
            if reason:
                yield Finding(path, reason, "rule", line)


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Whether answers may have properties that are not listed."""
    return schema.get("additionalProperties") is not False


def _quotes(spec: Spec) -> Iterator[Finding]:
    for number, field in enumerate(spec.quality.quotes):
        path: Path = ("quality", "quotes", number)
        if spec.is_embedding:
            yield Finding(path, "a vector quotes nothing; remove it", "embeddings")
        elif spec.output.schema_ is None:
            yield Finding(path, "without output.schema an answer is text and has no fields", "schema")
        elif reason := _field_fault(spec, field):
            yield Finding(path, reason, "pointer")


def _golden(spec: Spec) -> Iterator[Finding]:
    golden = spec.quality.golden
    if golden is None:
        return
    path: Path = ("quality", "golden", "field")
    if spec.is_embedding:
        yield Finding(("quality", "golden"), "a vector has no label; remove it", "embeddings")
    elif spec.output.schema_ is None:
        yield Finding(path, "without output.schema an answer is text and has no fields", "schema")
    elif reason := _field_fault(spec, golden.field):
        yield Finding(path, reason, "pointer")
    if golden.label is not None and golden.label.startswith("/") and not _POINTER.fullmatch(golden.label):
        yield Finding(("quality", "golden", "label"), _not_pointer(golden.label), "pointer")


def _field_fault(spec: Spec, field: str) -> str:
    """Why no answer can have this field, "" if one can."""
    if field.startswith("/") and not _POINTER.fullmatch(field):
        return _not_pointer(field)
    schema = spec.output.schema_ or {}
    properties = schema.get("properties")
    first = pointer_reader(field)[0]
    if first == EACH or not isinstance(properties, dict) or any(word in schema for word in _COMPOSED):
        return ""
    if first in properties or schema.get("additionalProperties") not in (None, False):
        return ""
    return f"{shown(field)} is not in output.schema{nearest(first, list(properties))}"


def _not_pointer(value: str) -> str:
    return f"{shown(value)} is not a JSON pointer; `~` is written `~0`, and `/` inside a name `~1`"


_SETTLED: tuple[Path, ...] = (("provider",), ("endpoint",), ("model",), ("aliases",), ("output", "schema"))

QUALITY_CHECKS: tuple[Check, ...] = (
    Check((("quality", "rules"),), _rules),
    Check((("quality", "rules"), ("input", "fields"), ("input", "format"), ("prompt",), *_SETTLED), _rule_fields),
    Check((("quality", "quotes"), *_SETTLED), _quotes),
    Check((("quality", "golden"), *_SETTLED), _golden),
)
