"""A spec file's bytes to a `Spec`, or to every reason why not, each with file, line and key."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tallybatch.domain import templates
from tallybatch.domain.errors import BadInput
from tallybatch.domain.parameters import KNOWN as KNOWN_PARAMETERS
from tallybatch.domain.spec import LABEL_PATTERN, MODEL_PATTERN, NATIVE_KEYS, Spec
from tallybatch.domain.spec_checks import CHECKS, Finding, nearest
from tallybatch.domain.spec_quality import FILE_PATTERN
from tallybatch.domain.spec_quality_checks import QUALITY_CHECKS
from tallybatch.domain.spec_sections import CODE_PATTERN, WINDOW_PATTERN
from tallybatch.domain.spec_support import NOT_SUPPORTED, REMOVE, UNSUPPORTED, mark_unsupported
from tallybatch.domain.units import shown
from tallybatch.domain.yaml_file import Path, YamlFile, read_yaml

REFUSED = "the spec is refused"
_DO = "correct the file and check it again with `tallybatch spec check`"

_PLACEHOLDERS: Mapping[str, str] = {"name": "x", "provider": "openai", "model": "x"}
"""Stand in for required keys that are missing or wrong, so that the other keys can be checked all the same."""

_KINDS: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
}
_PATTERNS: Mapping[str, str] = {
    LABEL_PATTERN: "use letters, digits, `.`, `_` and `-`, at most 64, beginning with a letter or digit",
    WINDOW_PATTERN: "write the two times of day, in UTC: 22:00-06:00",
    CODE_PATTERN: "use letters, digits, `.`, `_`, `:`, `/` and `-`, at most 64, beginning with a letter or digit",
    FILE_PATTERN: "use letters, digits, `.`, `_` and `-`, at most 128, beginning with a letter or digit",
    MODEL_PATTERN: "use letters, digits, `.`, `_`, `:`, `/` and `-`, at most 256, beginning with a letter or digit",
}


def parse_spec(data: bytes, *, file: str = "spec.yaml") -> Spec:
    """Read one spec file. Raises `BadInput` with all problems, in the order of their lines; nothing else.

    `file` is its name in errors. The result has each default filled in, those that depend on other keys too.
    """
    source = read_yaml(data, file=file, what=REFUSED)
    spec = _validated(source)
    if spec is not None:
        _checked(spec, source)
    _blame_words(source)
    if source.problems or spec is None:
        problems = [problem for found in source.problems.values() for problem in found]
        raise BadInput(REFUSED, sorted(problems, key=lambda p: (p.line, p.key)), where=file, do=_DO)
    return _complete(spec)


def spec_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a spec file, for editors and `tallybatch spec schema`."""
    schema = Spec.model_json_schema(by_alias=True)
    for section in schema["properties"].values():
        if "$ref" in section:
            del section["default"]
    native = {
        "properties": {"input": {"properties": {"format": {"not": {"const": "records"}}}, "required": ["format"]}}
    }
    rules = {
        "if": {**native, "required": ["input"]},
        "then": {"properties": {"prompt": {"type": "null"}}},
        "else": {"required": ["prompt"]},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **mark_unsupported(schema), **rules}


def resolved(spec: Spec) -> dict[str, Any]:
    """Each key with its effective value, in the file's own form: `parse_spec` of its YAML gives the same spec."""
    return spec.model_dump(mode="json", by_alias=True)


def _complete(spec: Spec) -> Spec:
    """Fill in the defaults that depend on other keys."""
    given = spec.input
    if spec.is_native:
        effective = given.model_copy(update={"key": NATIVE_KEYS[given.format]})
    elif not given.fields and spec.prompt is not None:
        effective = given.model_copy(update={"fields": tuple(sorted(templates.variables(spec.prompt.user)))})
    else:
        effective = given
    label = f"schema-{spec.schema_digest[:12]}" if spec.output.schema_ is not None else "text"
    output = spec.output.model_copy(update={"schema_version": spec.output.schema_version or label})
    return spec.model_copy(update={"input": effective, "output": output, "purpose": spec.purpose or spec.name})


def _validated(source: YamlFile) -> Spec | None:
    """The spec without its wrong keys, each of which is blamed; None if nothing sound is left."""
    data = copy.deepcopy(source.data)
    for path in source.problems:
        _remove(data, path)
    for _ in range(8):
        try:
            return Spec.model_validate(data)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                path = tuple(part for part in detail["loc"] if part != "[key]")
                if not _is_blamed(source, path):
                    source.blame(path, *_told(detail, path, source))
                _remove(data, path)
    return None


def _remove(data: dict[str, Any], path: Path) -> None:
    """Take the value at `path` out of `data`; from a list, the list. A required key gets its placeholder."""
    if path and path[0] in _PLACEHOLDERS:
        data[str(path[0])] = _PLACEHOLDERS[str(path[0])]
        return
    parents: list[tuple[Any, str | int]] = []
    node: Any = data
    for part in path:
        inside = part in node if isinstance(node, dict) else isinstance(node, list) and isinstance(part, int)
        if not inside:
            break
        parents.append((node, part))
        node = node[part]
    while parents and not isinstance(parents[-1][0], dict):
        parents.pop()
    if parents:
        parent, part = parents[-1]
        del parent[part]


def _is_blamed(source: YamlFile, path: Path) -> bool:
    """Whether `path`, a part of it, or what it is a part of has a problem already."""
    return any(path[: len(bad)] == bad or bad[: len(path)] == path for bad in source.problems)


def _checked(spec: Spec, source: YamlFile) -> None:
    for check in (*CHECKS, *QUALITY_CHECKS):
        if any(_is_blamed(source, path) for path in check.reads):
            continue
        findings = list(check.run(spec))
        blamed = [_is_blamed(source, finding.path) for finding in findings]
        for finding, known in zip(findings, blamed, strict=True):
            if not known:
                reason, line = _located(finding, source)
                source.blame(finding.path, reason, finding.code, line=line)
    for row in UNSUPPORTED:
        wrong_inside = any(bad[: len(row.path)] == row.path and bad != row.path for bad in source.problems)
        if wrong_inside and not row.only:
            source.blame(row.path, REMOVE, NOT_SUPPORTED)


def _located(finding: Finding, source: YamlFile) -> tuple[str, int]:
    """The line in the file of a line in a text: exact in a `|` block, else the text's own line and a word."""
    place = source.places.get(finding.path)
    if place is None or finding.text_line == 0:
        return finding.reason, 0
    if place.block_line:
        return finding.reason, place.block_line + finding.text_line - 1
    return finding.reason + (f" (line {finding.text_line} of the text)" if finding.text_line > 1 else ""), 0


def _blame_words(source: YamlFile) -> None:
    """`no` is fine where true or false is asked for; anywhere else somebody may have meant the word."""
    for path in source.words:
        if path not in _BOOLEAN_PATHS and not _is_blamed(source, path):
            text = source.places[path].text
            read = shown(_value_at(path, source))
            source.blame(path, f'YAML reads {text} as {read}; quote it: "{text}", or write {read}', "quote")


def _quote_it(path: Path, source: YamlFile) -> str:
    text, value = source.places[path].text, _value_at(path, source)
    kind = shown(value) if isinstance(value, bool) else f"the number {value}"
    return f'must be text, but YAML reads {text} as {kind}; quote it: "{text}"'


def _value_at(path: Path, source: YamlFile) -> Any:
    value: Any = source.data
    for part in path:
        value = value[part]
    return value


def _told(detail: ErrorDetails, path: Path, source: YamlFile) -> tuple[str, str]:
    """Reason and code, in our words, of what pydantic found."""
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "missing":
        return "is required", "missing"
    if kind == "extra_forbidden":
        return _unknown_key(path), "unknown_key"
    if value is None and (kind in _KINDS or kind in ("literal_error", "unit")):
        return "has no value; give it one, or remove the key to get the default", "empty"
    if kind == "string_type" and isinstance(value, bool | int | float) and path in source.places:
        return _quote_it(path, source), "quote"
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}, not {shown(value)}", "type"
    if kind == "literal_error":
        valid = _quoted(context["expected"])
        return f"{shown(value)} is none of {', '.join(valid)}{nearest(str(value), valid)}", "value"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"must be {words} {context[bound]}, not {shown(value)}", "range"
    if kind == "string_pattern_mismatch":
        wrong = path[-1] if detail["loc"][-1] == "[key]" else value
        return f"{shown(wrong)} is not allowed; {_PATTERNS[context['pattern']]}", "value"
    if kind == "string_too_short":
        return "must not be empty", "value"
    if kind == "string_too_long":
        return f"must have at most {context['max_length']} characters", "value"
    return detail["msg"], "value"


def _quoted(expected: str) -> list[str]:
    """The values in pydantic's `'a', 'b' or 'c'`."""
    return [word for i, word in enumerate(expected.split("'")) if i % 2]


def _unknown_key(path: Path) -> str:
    key = str(path[-1])
    valid = _keys(_section(Spec, path[:-1]))
    homes = [name for name, section in _sections(Spec) if key in _keys(section)] if len(path) == 1 else []
    if key in KNOWN_PARAMETERS and len(path) == 1:
        homes.append("generation")
    if homes:
        return f"unknown key '{key}' here; it belongs under '{homes[0]}'"
    return f"unknown key '{key}'" + (nearest(key, valid) or f"; valid: {', '.join(valid)}")


def _keys(section: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()] if section else []


def _sections(model: type[BaseModel]) -> Iterable[tuple[str, type[BaseModel]]]:
    for name in model.model_fields:
        section = _section(model, (name,))
        if section is not None:
            yield name, section


def _section(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model that describes the mapping at `path`."""
    for part in path:
        if isinstance(part, int):
            continue
        field = next((f for name, f in model.model_fields.items() if (f.alias or name) == part), None)
        found = _model_in(field.annotation) if field else None
        if found is None:
            return None
        model = found
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner))), None)


_BOOLEAN_PATHS = frozenset(
    (name, key)
    for name, section in _sections(Spec)
    for key, field in section.model_fields.items()
    if field.annotation is bool
)
