"""The rules of the house that no tool checks: what lies where, how large it is, and what may touch what."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallybatch.settings import FUNCTIONS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "functions" / "tallybatch"

TOP = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "uv.lock"}
FOLDERS = {"functions", "infra", "statemachines", "events", "tests"}
MAX_LINES = 400
MAX_HANDLER_LINES = 25
GENERATED = re.compile(r"(^|/)(uv\.lock|package-lock\.json|__snapshots__/.*)$|\.jsonl$")

READS_ENVIRONMENT = {"settings.py"}
MAKES_CLIENTS = {"wiring.py", "cli/stack.py"}
PROVIDER_SDKS = {"openai", "google.genai", "anthropic"}


def committed() -> list[str]:
    """Every file that is tracked, or would be by `git add --all`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def modules(folder: str = "functions/tallybatch/") -> Iterator[tuple[str, ast.Module]]:
    """(path below `folder`, syntax tree) of each module."""
    for name in committed():
        if name.startswith(folder) and name.endswith(".py"):
            yield name.removeprefix(folder), ast.parse((ROOT / name).read_text(encoding="utf-8"))


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_the_top_level_holds_nothing_but_what_it_should() -> None:
    files = {name for name in committed() if "/" not in name and not name.startswith(".")}
    folders = {name.split("/")[0] for name in committed() if "/" in name and not name.startswith(".")}
    assert files == TOP
    assert folders == FOLDERS


def test_no_file_is_too_long() -> None:
    lengths = {name: (ROOT / name).read_bytes().count(b"\n") for name in committed() if GENERATED.search(name) is None}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_each_module_says_its_place() -> None:
    silent = [
        folder + path
        for folder in ("functions/tallybatch/", "infra/")
        for path, tree in modules(folder)
        if tree.body and not ast.get_docstring(tree)
    ]
    assert silent == []


def test_a_function_has_one_name_as_handler_step_state_and_setting() -> None:
    names = {model.function for model in FUNCTIONS}
    handlers = {path.stem for path in (PACKAGE / "handlers").glob("*.py")} - {"__init__"}
    assert handlers == {snake(name) for name in names}
    assert handlers <= {path.stem for path in (PACKAGE / "steps").glob("*.py")}
    assert {model.__name__ for model in FUNCTIONS} == names
    tasks = dict(tasks_of(json.loads((ROOT / "statemachines" / "job.asl.json").read_text(encoding="utf-8"))))
    outside = {"BuildManifest", "DiscoverBackfill", "Sweep", "ResumeJob", "ResolveReview"}
    assert set(tasks) == names - outside
    assert {name: f"${{{name}}}" for name in tasks} == tasks


def tasks_of(machine: dict[str, object]) -> Iterator[tuple[str, str]]:
    """(state, function) of each task, those inside of Maps included."""
    states = machine.get("States")
    assert isinstance(states, dict)
    for name, state in states.items():
        if state["Type"] == "Task":
            yield name, state["Arguments"]["FunctionName"]
        if "ItemProcessor" in state:
            yield from tasks_of(state["ItemProcessor"])


def test_handlers_are_thin() -> None:
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in (PACKAGE / "handlers").glob("*.py")
    }
    assert {name: lines for name, lines in lengths.items() if lines > MAX_HANDLER_LINES} == {}


def test_only_the_settings_read_the_environment() -> None:
    readers = {path for path, tree in modules() for node in ast.walk(tree) if reads_environment(node)}
    assert readers == READS_ENVIRONMENT


def reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in ("environ", "getenv") for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv")


def test_only_the_composition_roots_make_aws_clients() -> None:
    assert {
        path for path, tree in modules() if any(imports_boto3(node) for node in running_code(tree))
    } == MAKES_CLIENTS


def imports_boto3(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] == "boto3" for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "boto3"


def running_code(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below `if TYPE_CHECKING`."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from running_code(child)


def test_importing_every_handler_loads_no_provider_sdk() -> None:
    names = sorted(f"tallybatch.handlers.{snake(model.function)}" for model in FUNCTIONS)
    program = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "functions", capture_output=True, text=True, timeout=120, check=True
    )
    loaded = set(done.stdout.split())
    assert set(names) <= loaded
    assert loaded & PROVIDER_SDKS == set()


def test_nothing_that_is_committed_names_a_place_on_somebodys_machine() -> None:
    """Home directories, and the folder in which this very checkout lies."""
    here = re.escape(str(ROOT.parent)) if len(ROOT.parent.parts) > 1 else r"(?!)"
    place = re.compile(rf"(?<![\w.:/}}])(?:/home/|/root/|/Users/|[A-Za-z]:\\Users\\|{here}/)\w")
    found = []
    for name in committed():
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
        found += [f"{name}: {match.group()}" for match in place.finditer(text)]
    assert found == []


def test_codes_of_problems_are_words_with_underscores() -> None:
    """A code is what a program tells problems apart by: one way to write it, in a refused spec and in a bad line."""
    makers = {"Problem", "Finding", "BadLine", "LineRefused", "BrokenFile", "blame", "refuse"}
    hyphenated = [
        (name, part.value)
        for name, tree in modules()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in makers
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
        for part in ast.walk(argument)
        if isinstance(part, ast.Constant) and re.fullmatch(r"[a-z]+(-[a-z]+)+", str(part.value))
    ]
    assert hyphenated == []
