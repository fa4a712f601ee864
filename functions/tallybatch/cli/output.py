"""stdout holds the answer and nothing else; progress, notes and errors go to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_WIDE = 400
"""Columns when stdout is not a terminal, so that nothing is cut for whoever reads it by program."""


def stdout() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def stderr() -> Console:
    return Console(stderr=True, highlight=False)


def answer(document: Any, *, as_json: bool, human: RenderableType | None = None) -> None:
    """Print the result of a command, once: as one JSON document, or in its form for people if it has one."""
    if as_json or human is None:
        print(json.dumps(document, indent=2))
    else:
        show(human)


def show(human: RenderableType) -> None:
    """Print for people; without the padding of a terminal when it goes elsewhere."""
    console = stdout()
    if console.is_terminal:
        console.print(human)
        return
    with console.capture() as captured:
        console.print(human)
    for line in captured.get().splitlines():
        print(line.rstrip())


def note(text: str) -> None:
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "") -> Table:
    """Values are shown as they are (no markup); numbers to the right, None as a dash."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        numeric = any(isinstance(row[number], int | float) for row in rows)
        made.add_column(column, justify="right" if numeric else "left", overflow="fold", header_style="bold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def facts(pairs: Sequence[tuple[str, Any]]) -> Table:
    """A name and a value a line."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(Text(name), value if isinstance(value, Text) else _cell(value))
    return made


def state_text(state: str) -> Text:
    colour = {"COMPLETED": "green", "FAILED": "red", "PARTIAL": "yellow", "CANCELLED": "yellow", "EXPIRED": "yellow"}
    return Text(state, style=colour.get(state, "cyan"))


def _cell(value: Any) -> Text:
    if isinstance(value, Text):
        return value
    if value is None or value == "":
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text(f"{value:,}" if isinstance(value, int) else str(value))
