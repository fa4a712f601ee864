"""What every command has: help with an example, a JSON form, and a version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, version
from typing import Any

import pytest
import typer.main

from tallybatch.cli import main
from tests.support.operating import Operator


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    with group.make_context("tallybatch", [], resilient_parsing=True) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            yield (*path, name), command
            if hasattr(command, "list_commands"):
                yield from _commands(command, (*path, name))


ALL = dict(_commands(typer.main.get_command(main.app)))
LEAVES = [path for path, command in ALL.items() if not hasattr(command, "list_commands")]


def test_the_commands_of_the_public_contract_are_there() -> None:
    assert {" ".join(path) for path in LEAVES} >= {
        *("demo", "local up", "local down", "local status", "local reset", "local logs"),
        *("spec check", "spec show", "spec schema", "spec push", "submit", "jobs", "show", "follow", "cancel"),
        *("results", "report", "verify", "backfill run", "sweep"),
    }


@pytest.mark.parametrize("path", list(ALL), ids=" ".join)
def test_help_has_an_example_of_that_very_command(path: tuple[str, ...], operator: Operator) -> None:
    said = operator.run(*path, "--help")
    assert said.code == 0
    words = " ".join(said.out.split())
    assert f"Example: tallybatch {' '.join(path)}" in words


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_has_json(path: tuple[str, ...]) -> None:
    assert "--json" in {name for parameter in ALL[path].params for name in parameter.opts}


def test_given_one_command_when_it_is_run_then_the_others_are_not_imported() -> None:
    shown = """
import sys
from tallybatch.cli.main import app
app(["spec", "schema"], standalone_mode=False)
print(*sorted({"boto3", "rich.progress"} & set(sys.modules)), "tallybatch.cli.specs" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "True"


def test_version(operator: Operator) -> None:
    said = operator.run("--version")
    assert (said.code, said.out) == (0, f"tallybatch {version('tallybatch')}\n")


def test_a_wrong_option_is_a_usage_error_and_json_too(operator: Operator) -> None:
    said = operator.run("jobs", "--bogus", "--json")
    assert said.code == 2
    assert "--bogus" in said.json["error"]["message"]
    assert "--bogus" in said.err


def test_an_option_before_the_command_is_a_usage_error_and_json_too(operator: Operator) -> None:
    said = operator.run("--json", "jobs")
    assert (said.code, said.json["error"]["type"]) == (2, "Usage")
    assert "--json" in said.json["error"]["message"]


def test_a_mistyped_command_gets_a_suggestion(operator: Operator) -> None:
    said = operator.run("submitt")
    assert said.code == 2
    assert "Did you mean 'submit'?" in said.err


def test_given_an_install_without_the_repository_when_a_command_of_it_is_run_then_it_says_so(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = EntryPoint("demo", "no_such_package.demo:demo", main.PLUGINS)
    monkeypatch.setattr(main, "_commands", lambda: {"demo": gone})
    said = operator.run("demo", "--records", "5", "--json")
    assert said.code == 5
    assert "checkout" in said.json["error"]["what"]
    assert "no_such_package" in said.json["error"]["why"]


def test_given_a_plugin_that_is_broken_when_help_is_asked_then_the_other_commands_are_there(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = EntryPoint("broken", "tallybatch.cli.specs:nothing", main.PLUGINS)
    whole = EntryPoint("prices", "tallybatch.cli.planning:prices", main.PLUGINS)
    monkeypatch.setattr(main, "_commands", lambda: {"broken": broken, "prices": whole})
    shown = operator.run("--help")
    assert (shown.code, "The price of a model" in shown.out) == (0, True)
    said = operator.run("broken", "--json")
    assert said.code == 5
    assert "specs:nothing" in said.json["error"]["why"]
