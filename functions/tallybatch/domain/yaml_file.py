"""YAML to plain values, each with its line. First half of reading a spec; the second is `spec_file`.

Stricter than YAML 1.1 where that guesses: `no` is not silently false, `0471` not 313, `2024-01-01` not a date.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tallybatch.domain.errors import BadInput, Problem

MAX_FILE_BYTES = 256 * 1024
MAX_NODES = 100_000
"""Nodes after aliases are expanded."""
MAX_DEPTH = 64

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_NOT_DECIMAL = re.compile(r"[-+]?0[xb][0-9a-fA-F_]+")
_INT_DIGITS = 20
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is: 1-based line of its key (or list item); `text` as written if it is an unquoted scalar.

    `block_line` is the line of the first content of a literal block (`|`), else 0.
    """

    line: int
    text: str | None = None
    block_line: int = 0


@dataclass(slots=True)
class YamlFile:
    """`places` has an entry for each path in `data`; `words` are paths at which `yes`, `no`, `on` or `off` was read
    as true or false; `problems` are those that do not stop the reading."""

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, Place] = field(default_factory=dict)
    words: set[Path] = field(default_factory=set)
    problems: dict[Path, list[Problem]] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """Line of the nearest enclosing place that is in the file; 1 for the file itself."""
        for length in range(len(path), 0, -1):
            place = self.places.get(path[:length])
            if place is not None:
                return place.line
        return 1

    def blame(self, path: Path, reason: str, code: str, *, line: int = 0) -> None:
        problem = Problem(reason, line or self.line(path), dotted(path), code)
        self.problems.setdefault(path, []).append(problem)


def dotted(path: Path) -> str:
    """`output.schema.enum[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_yaml(data: bytes, *, file: str, what: str) -> YamlFile:
    """Read one mapping. Raises `BadInput` for what cannot be read at all; collects the rest in `problems`."""

    def refuse(reason: str, line: int, code: str) -> BadInput:
        return BadInput(what, [Problem(reason, line, "", code)], where=file)

    text = _decode(data, refuse)
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise refuse("the file is empty", 1, "empty")
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1
            raise refuse("the file must be a mapping of keys, such as `name: film-genre`", line, "not_a_mapping")
        reader = _Reader()
        result = YamlFile()
        reader.file = result
        result.data = reader.mapping(node, ())
        return result
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise refuse(f"the character U+{ord(text[error.position]):04X} is not allowed in YAML", line, "yaml") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise refuse(_told(error), mark.line + 1 if mark else 1, "yaml") from None
    except _TooMuchError as error:
        raise refuse(str(error), error.line, "too_large") from None
    finally:
        if loader is not None:
            loader.dispose()


def _decode(data: bytes, refuse: Any) -> str:
    if len(data) > MAX_FILE_BYTES:
        raise refuse(f"the file has {len(data)} bytes; at most {MAX_FILE_BYTES} are read", 0, "too_large")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise refuse("the file is UTF-16; save it as UTF-8", 1, "encoding")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise refuse(
            f"byte 0x{error.object[error.start]:02X} is not UTF-8; save the file as UTF-8", line, "encoding"
        ) from None


def _told(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "cannot be read"
    if r"'\t'" in problem:
        return "a tab cannot indent in YAML; use spaces"
    context = f"{error.context}: " if error.context else ""
    return f"not valid YAML: {context}{problem}"


class _TooMuchError(Exception):
    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


class _Loader(yaml.SafeLoader):
    """Composes nodes, within a depth; builds nothing."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            line = parent.start_mark.line + 1 if parent is not None else 1
            raise _TooMuchError(f"nested deeper than {MAX_DEPTH} levels", line)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


_Loader.add_implicit_resolver(f"{_TAG}float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789"))
"""JSON's `1e5`, which YAML 1.1 takes for text."""


class _Reader:
    """Nodes to values. Aliases are expanded, counted, and may not contain themselves."""

    file: YamlFile

    def __init__(self) -> None:
        self._count = 0
        self._open: set[int] = set()

    def _enter(self, node: yaml.Node) -> None:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MAX_NODES:
            raise _TooMuchError(f"more than {MAX_NODES} values after aliases are expanded", line)
        if id(node) in self._open:
            raise _TooMuchError("an alias that contains itself", line)
        if len(self._open) >= MAX_DEPTH:
            raise _TooMuchError(f"nested deeper than {MAX_DEPTH} levels", line)

    def value(self, node: yaml.Node, path: Path, line: int) -> Any:
        plain = node.value if isinstance(node, yaml.ScalarNode) and node.style is None else None
        block_line = node.start_mark.line + 2 if getattr(node, "style", None) == "|" else 0
        self.file.places[path] = Place(line, plain, block_line)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(node, path)
        self._enter(node)
        return self._scalar(node, path)

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self._check_tag(node, "map", path)
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}
        pairs = self._pairs(node, path)
        self._open.add(id(node))
        for key_node, value_node, merged in pairs:
            line = key_node.start_mark.line + 1
            key = self._key(key_node, path, line)
            if key is None or (merged and key in result):
                continue
            here = (*path, key)
            if key in lines:
                reason = f"the key appears twice, on lines {lines[key]} and {line}"
                self.file.blame(here, reason, "duplicate_key", line=line)
                continue
            if not merged:
                lines[key] = line
            result[key] = self.value(value_node, here, line)
        self._open.remove(id(node))
        return result

    def _pairs(self, node: yaml.MappingNode, path: Path) -> list[tuple[yaml.Node, yaml.Node, bool]]:
        """Keys and values, the mapping's own first, then those that `<<` merges in, which never override."""
        self._enter(node)
        self._open.add(id(node))
        own = [(key, value, False) for key, value in node.value if key.tag != f"{_TAG}merge"]
        merged: list[tuple[yaml.Node, yaml.Node, bool]] = []
        for key, value in node.value:
            if key.tag != f"{_TAG}merge":
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    line = key.start_mark.line + 1
                    self.file.blame((*path, "<<"), "only mappings can be merged", "yaml", line=line)
                    continue
                merged += [(inner, item, True) for inner, item, _ in self._pairs(source, path)]
                self._count += len(merged)
        self._open.remove(id(node))
        return own + merged

    def _key(self, node: yaml.Node, path: Path, line: int) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self.file.blame((*path, "?"), "a key must be text", "yaml", line=line)
            return None
        key = self._text(node, path, line)
        if node.tag not in (f"{_TAG}str", f"{_TAG}value"):
            kind = _READ_AS.get(node.tag, "something else than text")
            reason = f'YAML reads the key {node.value} as {kind}; quote it: "{node.value}":'
            self.file.blame((*path, key), reason, "quote", line=line)
        return key

    def _sequence(self, node: yaml.SequenceNode, path: Path) -> list[Any]:
        self._enter(node)
        self._open.add(id(node))
        self._check_tag(node, "seq", path)
        items = [self.value(item, (*path, i), item.start_mark.line + 1) for i, item in enumerate(node.value)]
        self._open.remove(id(node))
        return items

    def _check_tag(self, node: yaml.Node, expected: str, path: Path) -> None:
        if node.tag != _TAG + expected:
            line = node.start_mark.line + 1
            self.file.blame(path, f"the tag {_tag_shown(node.tag)} is not allowed", "yaml", line=line)

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        text: str = node.value
        match node.tag.removeprefix(_TAG):
            case "str" | "value" | "merge":
                return self._text(node, path, node.start_mark.line + 1)
            case "null":
                return None
            case "bool" if text.lower() in _BOOLS:
                if text.lower() not in ("true", "false"):
                    self.file.words.add(path)
                return _BOOLS[text.lower()]
            case "int":
                return self._int(text, path)
            case "float":
                return self._float(text, path)
            case "timestamp":
                self.file.blame(path, f'YAML reads {text} as a date; quote it: "{text}"', "quote")
            case _:
                self.file.blame(path, f"the tag {_tag_shown(node.tag)} is not allowed", "yaml")
        return text

    def _int(self, text: str, path: Path) -> int | str:
        if _DECIMAL.fullmatch(text) and len(text) <= 2 * _INT_DIGITS:
            number = int(text.replace("_", ""))
        elif _NOT_DECIMAL.fullmatch(text) and len(text) <= 2 * _INT_DIGITS:
            number = int(text.replace("_", ""), 0)
        elif _DECIMAL.fullmatch(text):
            number = _INT_MAX + 1
        else:
            reason = f'YAML does not read {text} as it looks; quote it: "{text}", or write a plain decimal number'
            self.file.blame(path, reason, "quote")
            return text
        if not _INT_MIN <= number <= _INT_MAX:
            self.file.blame(path, "the number does not fit into 64 bits; quote it if it is text", "number")
            return 0
        return number

    def _float(self, text: str, path: Path) -> float | str:
        try:
            number = float(text.replace("_", ""))
        except ValueError:
            if ":" in text or not text.lower().lstrip("+-").startswith("."):
                reason = f'YAML does not read {text} as it looks; quote it: "{text}", or write a plain decimal number'
                self.file.blame(path, reason, "quote")
                return text
            number = math.inf
        if not math.isfinite(number):
            self.file.blame(path, f"{text} is not a number that JSON can hold", "number")
            return 0.0
        return number

    def _text(self, node: yaml.Node, path: Path, line: int) -> str:
        """Joins surrogate pairs, which JSON escapes bring; half of a pair is no character."""
        text: str = node.value
        try:
            text.encode()
        except UnicodeEncodeError:
            try:
                return text.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                self.file.blame(path, "a lone surrogate is not a character", "encoding", line=line)
                return text.encode("utf-8", "replace").decode()
        return text


_BOOLS: Mapping[str, bool] = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_READ_AS: Mapping[str, str] = {
    f"{_TAG}bool": "true or false",
    f"{_TAG}int": "a number",
    f"{_TAG}float": "a number",
    f"{_TAG}null": "nothing",
    f"{_TAG}timestamp": "a date",
}


def _tag_shown(tag: str) -> str:
    return "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
