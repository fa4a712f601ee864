"""The README is held to what there is: commands, options, files, names and examples."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from infra.local.simulator.scenario import load_scenario
from infra.options import Backfill, StackOptions
from tallybatch.cli.errors import ExitCode
from tallybatch.cli.main import app
from tallybatch.domain.spec_file import parse_spec
from tallybatch.settings import FUNCTIONS
from tallybatch.steps.publish_shard import ResultRow

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMON_OPTIONS = {"--json", "--help", "--stack", "--endpoint-url", "--state-dir"}
"""Told once above the table of commands, not in each of its rows."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def section(heading: str) -> str:
    return README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, headings and rulers left out."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not set(line) <= set("|- :")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [cells for cells in found if cells[0] not in ("command", "phase", "where", "")]


def leaves() -> dict[str, Any]:
    """Every command of the app that does something, by its full name."""
    root = typer.main.get_command(app)
    context = root.make_context("tallybatch", [], resilient_parsing=True)

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "list_commands"):
            yield " ".join(path), command
            return
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), (*path, name))

    return dict(walk(root, ()))


LEAVES = leaves()


def options(command: Any) -> set[str]:
    return {name for each in command.params if each.param_type_name == "option" for name in each.opts}


def shell_lines() -> list[str]:
    return [line for block in blocks("bash") for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def calls() -> list[str]:
    """Each call of our command in a shell block or in running text, without what stands before it."""
    quoted = re.findall(r"`(?:uv run )?tallybatch ([^`]+)`", README)
    typed = [match for line in shell_lines() for match in re.findall(r"\btallybatch ((?!/)[^&|>]+)", line)]
    return [*quoted, *typed]


def test_the_table_lists_each_command_with_each_option_and_nothing_else() -> None:
    told: dict[str, set[str]] = {}
    for cells in rows(section("Commands")):
        for command in cells[0].split(", "):
            words = [word for word in command.strip("`").split() if word.islower()]
            told[" ".join(words)] = set(re.findall(r"--[a-z-]+", cells[-1]))
    there = {name: {one for one in options(command) if one.startswith("--")} for name, command in LEAVES.items()}
    assert told == {name: names - COMMON_OPTIONS for name, names in there.items()}


def test_the_readme_calls_commands_as_they_are() -> None:
    assert len(calls()) > 12
    for call in calls():
        words = shlex.split(call)
        name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in LEAVES), None)
        assert name, f"no such command: tallybatch {call}"
        command, rest = LEAVES[name], words[len(name.split()) :]
        given = {word for word in rest if word.startswith("--")}
        assert given <= options(command) | {"--help"}, f"tallybatch {call}"


@pytest.mark.parametrize("line", [line for line in shell_lines() if "tallybatch " in line])
def test_what_the_readme_types_has_all_that_the_command_needs(line: str) -> None:
    words = shlex.split(re.split(r"\btallybatch (?!/)", line, maxsplit=1)[1])
    name = next(" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in LEAVES)
    context = LEAVES[name].make_context(name, words[len(name.split()) :])
    assert context.params


def test_the_first_two_blocks_are_the_demo_and_the_tests_and_ci_runs_the_same() -> None:
    first, second, *_ = shell_lines()
    assert first == "pip install uv && uv run tallybatch demo --json"
    assert second == "pip install uv && uv run poe test"
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").rstrip().endswith("run --locked poe test")


def test_each_task_that_the_readme_names_exists() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    there = set(re.findall(r"^\[tool\.poe\.tasks\.([a-z]+)\]$", text, flags=re.MULTILINE))
    named = set(re.findall(r"\bpoe ([a-z]+)", README))
    assert named == there


def test_the_exit_codes_are_those_of_the_command() -> None:
    (line,) = [line for line in section("Commands").splitlines() if line.startswith("Exit codes: ")]
    told = {int(code) for code in re.findall(r"\b(\d) ", line)}
    assert told == {code.value for code in ExitCode if code is not ExitCode.INTERRUPTED}


def test_what_the_map_of_the_house_names_exists() -> None:
    named = re.findall(r"`([\w./-]+/[\w./-]*|[\w-]+\.[a-z]+)`", section("The house"))
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_each_top_folder_and_test_folder_is_in_the_map() -> None:
    house = section("The house")
    for folder in ("functions", "statemachines", "infra", "events", "tests"):
        assert f"`{folder}/" in house
    kinds = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert [kind for kind in kinds - {"support", "data"} if f"`{kind}`" not in house] == []


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_picture_is_well_formed_and_shows_the_states() -> None:
    (picture,) = blocks("mermaid")
    lines = [line.strip() for line in picture.strip().splitlines()]
    assert lines[0] == "flowchart LR"
    assert sum(line.startswith("subgraph ") for line in lines) == lines.count("end")
    for opened, closed in ("[]", "()", "{}"):
        assert picture.count(opened) == picture.count(closed)
    assert picture.count('"') % 2 == 0
    node = r"[a-z]+(?:\[[^\]]+\]|\[\([^)]+\)\])?"
    edge = re.compile(rf"{node}(?: (?:-->|<-->|-- [^-]+ -->) {node})+")
    other = [line for line in lines[1:] if not line.startswith("subgraph ") and line != "end"]
    assert [line for line in other if not edge.fullmatch(line)] == []
    machine = json.loads((ROOT / "statemachines" / "job.asl.json").read_text(encoding="utf-8"))
    steps = {*machine["States"], *machine["States"]["ShardMap"]["ItemProcessor"]["States"]}
    shown = set(re.findall(r"\[([A-Z]\w+)\]", picture)) - {"EventBridge Scheduler"}
    assert shown <= steps | {model.function for model in FUNCTIONS}


def test_the_operations_table_names_real_states_and_every_function() -> None:
    machine = (ROOT / "statemachines" / "job.asl.json").read_text(encoding="utf-8")
    states = set(re.findall(r'"(\w+)": \{\s*"(?:Comment|Type)"', machine))
    functions = {model.function for model in FUNCTIONS}
    words = {word for cells in rows(section("Operations")) for word in re.findall(r"\w+", cells[1])}
    named = {word for word in words if word in functions or re.match(r"[A-Z][a-z]+[A-Z]", word)}
    assert functions <= named
    assert named <= states | functions


def test_the_events_are_those_that_are_published() -> None:
    steps = (ROOT / "functions" / "tallybatch" / "steps").glob("*.py")
    published = {
        name for path in steps for name in re.findall(r'"((?:Job|Orphan)[A-Z]\w+)"', path.read_text(encoding="utf-8"))
    }
    assert set(re.findall(r"`((?:Job|Orphan)[A-Z]\w+)`", section("Operations"))) == published


def test_the_scenarios_are_those_that_ship() -> None:
    there = {path.stem for path in (ROOT / "infra" / "local" / "simulator" / "scenarios").glob("*.yaml")}
    paragraph = section("Commands").split("The simulator's scenarios", 1)[1]
    assert set(re.findall(r"`([a-z-]+)`", paragraph)) - {"--scenario"} == there
    for name in there:
        assert load_scenario(name).name == name


def test_the_example_of_a_spec_is_one() -> None:
    example, more = blocks("yaml")
    base = (
        "name: a\nprovider: openai\nmodel: m-1\nprompt: {user: '{{ title }}'}\noutput: {schema: {type: object}}\n"
        "generation: {max_output_tokens: 500}\n"
    )
    assert parse_spec((base + more).encode()).quality.golden
    spec = parse_spec(example.encode(), file="tickets.yaml")
    assert spec.name == yaml.safe_load(example)["name"]
    (records,) = blocks("jsonl")
    assert [set(json.loads(line)) for line in records.splitlines()] == [{"id", "text"}] * 3


def test_the_example_of_a_schedule_is_one_and_the_options_exist() -> None:
    (declared,) = [json.loads(block) for block in blocks("json") if block.startswith("[")]
    (backfill,) = [Backfill.model_validate(each) for each in declared]
    assert backfill.schedule.startswith("cron(")
    told = section("On AWS").split("Options of a deployment", 1)[1].split("Data outlives", 1)[0]
    assert set(re.findall(r"`([a-z_]+)`", told)) == set(StackOptions.model_fields) - {"local"}


def test_the_example_of_a_result_has_the_fields_of_one() -> None:
    (example,) = [json.loads(block) for block in blocks("json") if block.startswith("{")]
    assert set(example) <= set(ResultRow.__struct_fields__)
