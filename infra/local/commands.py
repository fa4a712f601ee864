"""`tallybatch local …`: the commands around `stack.py`, loaded into the CLI by the entry point group
`tallybatch.commands`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from infra.local import stack
from infra.local.logs import logs as read_logs
from infra.local.stack import LocalStatus
from tallybatch.cli.errors import as_document, as_lines
from tallybatch.domain.errors import BadInput, NotFound, TallybatchError

app = typer.Typer(
    name="local",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The embedded default: the same stack on this machine, with the providers simulated. Needs no AWS account "
    "and no key, and never spends money unless --provider-url says so.\n\nExample: `tallybatch local up --json`",
)

EXIT_NOT_DONE, EXIT_USAGE, EXIT_REFUSED = 1, 2, 5

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; progress goes to stderr.")]
StateDirOption = Annotated[
    Path, typer.Option("--state-dir", help="Where processes, ports, logs and data are kept.", show_default=False)
]


@app.command()
def up(
    provider_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL",
            help="Send a provider's traffic to this server instead of the simulator, with the key in the environment "
            "(OPENAI_API_KEY). This may cost money. Repeatable.",
        ),
    ] = None,
    scenario: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="The simulator's answers and faults: a built-in name or a file.")
    ] = "demo",
    state_dir: StateDirOption = stack.STATE_DIR,
    as_json: AsJson = False,
) -> None:
    """Start what does not run and deploy what has changed; does nothing when all is up.

    Example: `tallybatch local up --scenario calm`

    Example: `tallybatch local up --provider-url openai=http://127.0.0.1:8000/v1`
    """
    with _errors(as_json):
        done = stack.up(state_dir, provider_urls=_urls(provider_url or []), scenario=scenario, report=_progress)
    _show(done, as_json)


@app.command()
def down(state_dir: StateDirOption = stack.STATE_DIR, as_json: AsJson = False) -> None:
    """End every process of the local stack; data is kept for the next `up`.

    Example: `tallybatch local down`
    """
    with _errors(as_json):
        done = stack.down(state_dir, report=_progress)
    _show(done, as_json)


@app.command()
def status(state_dir: StateDirOption = stack.STATE_DIR, as_json: AsJson = False) -> None:
    """What runs, and where. Exit code 1 unless all of it is up.

    Example: `tallybatch local status --json`
    """
    with _errors(as_json):
        now = stack.status(state_dir)
    _show(now, as_json)
    if now.state != "up":
        raise typer.Exit(EXIT_NOT_DONE)


@app.command()
def reset(state_dir: StateDirOption = stack.STATE_DIR, as_json: AsJson = False) -> None:
    """End everything and forget all local data.

    Example: `tallybatch local reset && tallybatch local up`
    """
    with _errors(as_json):
        done = stack.reset(state_dir, report=_progress)
    _show(done, as_json)


@app.command()
def logs(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")] = False,
    state_dir: StateDirOption = stack.STATE_DIR,
    as_json: AsJson = False,
) -> None:
    """What the emulator, the simulator and the functions wrote. With --json and --follow, one document per line.

    Example: `tallybatch local logs --follow`
    """
    with _errors(as_json):
        lines = read_logs(state_dir, follow=follow)
        if as_json and not follow:
            print(json.dumps([{"source": line.source, "text": line.text} for line in lines]))
            return
        try:
            for line in lines:
                shown = json.dumps({"source": line.source, "text": line.text}) if as_json else None
                print(shown or f"{line.source}: {line.text}", flush=follow)
        except (KeyboardInterrupt, BrokenPipeError):
            raise typer.Exit(0) from None


def _urls(given: list[str]) -> dict[str, str]:
    urls = {}
    for each in given:
        name, equals, url = each.partition("=")
        if not equals:
            raise BadInput(
                f"{each!r} is not NAME=URL", where="--provider-url", do="e.g. openai=http://127.0.0.1:8000/v1"
            )
        urls[name] = url
    return urls


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(found: LocalStatus, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found.to_json()))
        return
    for name, value in found.to_json().items():
        if value is not None:
            print(f"{name:18} {value}")


@contextmanager
def _errors(as_json: bool) -> Iterator[None]:
    """Errors as every command tells them, on stderr (and as JSON on stdout), and as the exit code of their kind."""
    try:
        yield
    except BadInput as error:
        _fail(error, EXIT_USAGE, as_json)
    except NotFound as error:
        _fail(error, EXIT_NOT_DONE, as_json)
    except TallybatchError as error:
        _fail(error, EXIT_REFUSED, as_json)


def _fail(error: TallybatchError, code: int, as_json: bool) -> NoReturn:
    if as_json:
        print(json.dumps(as_document(error)))
    for line in as_lines(error):
        print(line, file=sys.stderr)
    raise typer.Exit(code)
