"""The command `tallybatch`: its sub-commands, its error boundary, and those commands that other packages bring."""

from __future__ import annotations

import traceback
from collections import UserDict
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points, version
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
import typer.main

from tallybatch.cli import output
from tallybatch.cli.errors import ExitCode, as_document, as_lines, exit_code
from tallybatch.domain.errors import Permanent
from tallybatch.settings import Settings

if TYPE_CHECKING:
    from typer._click import Command, Context

PLUGINS = "tallybatch.commands"
"""Entry point group of commands that live outside this package: a Typer app, or a function that is one command."""


COMMANDS = {
    "spec": "specs:app",
    "plan": "planning:plan",
    "prices": "planning:prices",
    "cost": "costs:cost",
    "budget": "budgeting:app",
    "submit": "submit:submit",
    "jobs": "jobs:jobs",
    "show": "jobs:show",
    "follow": "jobs:follow",
    "explain": "explaining:explain",
    "approve": "approving:approve",
    "cancel": "cancelling:cancel",
    "resume": "steering:resume",
    "acknowledge": "steering:acknowledge",
    "publish": "steering:publish",
    "review": "reviewing:app",
    "results": "results:results",
    "report": "jobs:report",
    "verify": "results:verify",
    "backfill": "backfill:app",
    "quota": "quota:app",
    "sweep": "sweeping:sweep",
}
"""Where each command is, in the order of the help. Only the one that is asked for is imported: all of them with what
they need take over a second."""


class CommandLine(Settings):
    """What the command itself is told by the environment."""

    debug: str = ""
    """TALLYBATCH_DEBUG: anything but 0 shows stack traces."""


class Commands(UserDict[str, Any]):
    """Commands by name: each is an entry point, and loaded when it is asked for."""

    def __getitem__(self, name: str) -> Command:
        return _loaded(super().__getitem__(name))


class Root(typer.core.TyperGroup):
    """Turns errors into exit codes: nothing but `Exit` and usage errors leaves it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands(_commands())

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        ctx.meta[__name__] = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            _tell_usage(ctx, error)
            raise

    def invoke(self, ctx: Context) -> Any:
        try:
            return super().invoke(ctx)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except (typer.TyperException, typer.Abort, BrokenPipeError) as error:
            _tell_usage(ctx, error)
            raise
        except Exception as error:
            _tell(error, as_json=ctx.meta[__name__])
            raise typer.Exit(exit_code(error)) from error


app = typer.Typer(
    cls=Root,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 the job did not complete, 2 usage, 3 input or spec refused, 4 not found, "
    "5 the provider or AWS refused.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tallybatch {version('tallybatch')}")
        raise typer.Exit(ExitCode.DONE)


@app.callback()
def _root(
    with_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Drop a JSONL file into S3; every record comes back with exactly one accepted answer, paid for once, with proof.

    Example: `tallybatch demo`
    """


def main() -> None:
    app()


def _tell_usage(ctx: Context, error: BaseException) -> None:
    if ctx.meta[__name__] and isinstance(error, typer.TyperException):
        output.answer({"error": {"type": "Usage", "message": error.format_message()}}, as_json=True)


def _tell(error: Exception, *, as_json: bool) -> None:
    if CommandLine.load().debug not in ("", "0"):
        output.note("".join(traceback.format_exception(error)))
    if as_json:
        output.answer(as_document(error), as_json=True)
    for line in as_lines(error):
        output.note(line)


@cache
def _commands() -> dict[str, EntryPoint]:
    plugged_in = sorted(entry_points(group=PLUGINS))
    own = [EntryPoint(name, f"tallybatch.cli.{place}", PLUGINS) for name, place in COMMANDS.items()]
    return {command.name: command for command in [*plugged_in, *own]}


@cache
def _loaded(command: EntryPoint) -> Command:
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    try:
        found = command.load()
    except Exception as error:  # a plugin may fail in any way, and the other commands must not
        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        alone.command(name=command.name, context_settings=anything)(_absent(command, error))
        return typer.main.get_command(alone)
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=command.name)
        return typer.main.get_group(alone).commands[command.name]
    alone.command(name=command.name)(found)
    return typer.main.get_command(alone)


def _absent(plugin: EntryPoint, error: Exception) -> Callable[[], None]:
    ours = plugin.dist is None or plugin.dist.name == "tallybatch"
    if ours and isinstance(error, ImportError):
        told = Permanent(
            f"`tallybatch {plugin.name}` needs a checkout of the repository and its development packages",
            why=str(error),
            do=f"clone it and run `uv run tallybatch {plugin.name}` there",
        )
        summary, example = "Needs a checkout of the repository.", f"uv run tallybatch {plugin.name}"
    else:
        told = Permanent(
            f"`tallybatch {plugin.name}` cannot be loaded",
            why=f"{plugin.value}: {type(error).__name__}: {error}",
            do=f"update or remove the package {plugin.dist.name} that brings it" if plugin.dist else "report it",
        )
        summary, example = "Cannot be loaded.", f"tallybatch {plugin.name}"

    def absent() -> None:
        raise told

    absent.__doc__ = f"{summary}\n\nExample: `{example}`"
    return absent
