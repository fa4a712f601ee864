"""Rules: CEL expressions over `input` and `output`, compiled once. One that cannot be evaluated is one that fails."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

VARIABLES = ("input", "output")
_TYPE_NAMES = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"})
FUNCTIONS = (
    "bytes", "contains", "double", "duration", "dyn", "endsWith", "getDate", "getDayOfMonth", "getDayOfWeek",
    "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds", "has", "int",
    "matches", "size", "startsWith", "string", "timestamp", "type", "uint",
)  # fmt: skip
"""What an expression may call beside operators and macros: those of the CEL specification that the evaluator has."""
MACROS = ("all", "exists", "exists_one", "filter", "map")
LONGEST_SHOWN = 200
_NAMED = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TEXT = re.compile(r"""[rRbB]*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""")
_BOUND = re.compile(r"\.\s*(?:all|exists|exists_one|existsOne|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
_SYNTAX = re.compile(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)")
_KINDS: dict[type[BaseException], str] = {
    KeyError: "a field is missing",
    IndexError: "an index is out of bounds",
    TypeError: "the types do not go together",
    ZeroDivisionError: "division by zero",
    OverflowError: "a number is out of range",
}


class Fault(NamedTuple):
    """Why an expression cannot be a rule. `line` is 1-based within it."""

    reason: str
    line: int = 1


@functools.cache
def _cel() -> Any:
    """The evaluator without the package around it, whose `__init__` imports a terminal application: 0.7 s of a cold
    start, for nothing."""
    if "cel.cel" not in sys.modules:
        package = importlib.util.find_spec("cel")
        folder = package.submodule_search_locations if package else None
        found = importlib.machinery.PathFinder.find_spec("cel.cel", folder)
        if found is None or found.loader is None:
            raise ImportError("common-expression-language has no extension module cel.cel")
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        sys.modules["cel.cel"] = module
    return sys.modules["cel.cel"]


def fault(rule: str) -> Fault | None:
    """What is wrong with a rule: its syntax, a variable or function that there is not, or that it looks at nothing."""
    try:
        program = _cel().compile(rule)
    except ValueError as error:
        found = _SYNTAX.search(str(error))
        if found is None:
            return Fault("not CEL")
        return Fault(f"not CEL, at column {found[2]}: {found[3][:LONGEST_SHOWN].strip()}", int(found[1]))
    bound = set(_BOUND.findall(_TEXT.sub("''", rule)))
    variables, functions = program.variables(), program.functions()
    for name in variables:
        if name not in VARIABLES and name not in bound and name not in _TYPE_NAMES:
            return Fault(f"uses {name!r}; there are only {' and '.join(VARIABLES)}", _line_of(rule, name))
    for name in functions:
        if _NAMED.fullmatch(name) and name not in FUNCTIONS:
            known = ", ".join(sorted({*FUNCTIONS, *MACROS}))
            return Fault(f"calls {name!r}, which there is not; known: {known}", _line_of(rule, name))
    if not any(name in VARIABLES for name in variables):
        return Fault("looks at neither input nor output")
    return None


class FieldRead(NamedTuple):
    """A field that a rule reads as `variable.name`. `asked`: the rule looks first whether it is there, with `has`.
    `line` is 1-based within the rule."""

    name: str
    asked: bool
    line: int


def fields_read(rule: str, variable: str) -> list[FieldRead]:
    """Top-level fields of `input` or `output` that a rule without `fault` names with a dot, each once. What is called
    is a function, and no field."""
    code = _TEXT.sub("''", rule)
    reads = re.findall(rf"(?<![\w.]){variable}\s*\.\s*([A-Za-z_]\w*)\b(?!\s*\()", code)
    asked = set(re.findall(rf"\bhas\s*\(\s*{variable}\s*\.\s*([A-Za-z_]\w*)", code))
    return [FieldRead(name, name in asked, _line_of(rule, name)) for name in dict.fromkeys(reads)]


def _line_of(rule: str, name: str) -> int:
    found = re.search(rf"\b{re.escape(name)}\b", rule)
    return rule.count("\n", 0, found.start()) + 1 if found else 1


class Rules:
    """The rules of a spec, which have no `fault`."""

    def __init__(self, rules: Sequence[str]) -> None:
        compiled = [(rule, _cel().compile(rule)) for rule in rules]
        self._rules = [(_shown(number, rule), program.execute) for number, (rule, program) in enumerate(compiled, 1)]
        self.read_input = any("input" in program.variables() for _, program in compiled)

    def broken(self, given: Any, output: Any) -> list[str]:
        """Each rule that is not true of this record, with its text; for one that has no value the kind of error."""
        variables = {"input": given, "output": output}
        reasons = []
        for shown, execute in self._rules:
            try:
                value = execute(variables)
            except Exception as error:  # whatever the evaluator raises over a model's answer, the rule is not true
                kind = next((words for known, words in _KINDS.items() if isinstance(error, known)), "not applicable")
                reasons.append(f"{shown} cannot be evaluated: {kind}")
            else:
                if value is not True:
                    reasons.append(f"{shown} is {'false' if value is False else 'neither true nor false'}")
        return reasons


def _shown(number: int, rule: str) -> str:
    text = " ".join(rule.split())
    return f"rule {number} `{text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '…'}`"
