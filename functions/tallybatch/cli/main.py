"""The command `tallybatch`: its sub-commands, its error boundary, and those commands that other packages bring."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points, version
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
import typer.main

from tallybatch.cli import (
    approving,
    backfill,
    budgeting,
    cancelling,
    costs,
    explaining,
    jobs,
    output,
    planning,
    quota,
    results,
    reviewing,
    specs,
    steering,
    submit,
    sweeping,
)
from tallybatch.cli.errors import ExitCode, as_document, as_lines, exit_code
from tallybatch.domain.errors import Permanent
from tallybatch.settings import Settings

if TYPE_CHECKING:
    from typer._click import Command, Context

PLUGINS = "tallybatch.commands"
"""Entry point group of commands that live outside this package: a Typer app, or a function that is one command."""


class CommandLine(Settings):
    """What the command itself is told by the environment."""

    debug: str = ""
    """TALLYBATCH_DEBUG: anything but 0 shows stack traces."""


class Root(typer.core.TyperGroup):
    """Loads plugged-in commands when they are asked for, and turns errors into exit codes: nothing but `Exit` and usage
    errors leaves it."""

    def list_commands(self, ctx: Context) -> list[str]:
        return [*_plugins(), *super().list_commands(ctx)]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        if plugin := _plugins().get(cmd_name):
            return _loaded(plugin)
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        ctx.meta[__name__] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Context) -> Any:
        try:
            return super().invoke(ctx)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except (typer.TyperException, typer.Abort, BrokenPipeError) as error:
            if ctx.meta[__name__] and isinstance(error, typer.TyperException):
                output.answer({"error": {"type": "Usage", "message": error.format_message()}}, as_json=True)
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


app.add_typer(specs.app, name="spec")
app.command()(planning.plan)
app.command()(planning.prices)
app.command()(costs.cost)
app.add_typer(budgeting.app, name="budget")
app.command()(submit.submit)
app.command()(jobs.jobs)
app.command()(jobs.show)
app.command()(jobs.follow)
app.command()(explaining.explain)
app.command()(approving.approve)
app.command()(cancelling.cancel)
app.command()(steering.resume)
app.command()(steering.acknowledge)
app.command()(steering.publish)
app.add_typer(reviewing.app, name="review")
app.command()(results.results)
app.command()(jobs.report)
app.command()(results.verify)
app.add_typer(backfill.app, name="backfill")
app.add_typer(quota.app, name="quota")
app.command()(sweeping.sweep)


def main() -> None:
    app()


def _tell(error: Exception, *, as_json: bool) -> None:
    if CommandLine.load().debug not in ("", "0"):
        output.note("".join(traceback.format_exception(error)))
    if as_json:
        output.answer(as_document(error), as_json=True)
    for line in as_lines(error):
        output.note(line)


@cache
def _plugins() -> dict[str, EntryPoint]:
    return {found.name: found for found in sorted(entry_points(group=PLUGINS))}


def _loaded(plugin: EntryPoint) -> Command:
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    try:
        found = plugin.load()
    except ImportError as error:
        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        alone.command(name=plugin.name, context_settings=anything)(_absent(plugin, error))
        return typer.main.get_command(alone)
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        group.name = plugin.name
        return group
    alone.command(name=plugin.name)(found)
    return typer.main.get_command(alone)


def _absent(plugin: EntryPoint, error: ImportError) -> Callable[[], None]:
    reason = str(error)

    def absent() -> None:
        raise Permanent(
            f"`tallybatch {plugin.name}` needs a checkout of the repository and its development packages",
            why=reason,
            do=f"clone it and run `uv run tallybatch {plugin.name}` there",
        )

    absent.__doc__ = f"Needs a checkout of the repository.\n\nExample: `uv run tallybatch {plugin.name}`"
    return absent
