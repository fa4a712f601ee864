"""`uv run poe outcomes [PROVIDER…]`: every outcome class on each provider, and the disposition that it reaches.

The deployed template runs on the emulator, the providers are simulated, files are dropped by bare put_object. What must
be reached stands in `expected.py`. Prints a table, and as its last line `{"cells", "wrong"}`. The exit code is 1 if a
cell is wrong.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infra.local import stack
from tests.outcomes.cases import PROVIDERS, Case
from tests.outcomes.expected import AT_ONCE, IN_ORDER
from tests.outcomes.expected_jobs import LEAST, SLOW_S, SMALL_SETS
from tests.outcomes.look import Cell
from tests.outcomes.play import play
from tests.outcomes.stage import Stage
from tests.support.deployed import Deployed

WORKERS = 6
"""Jobs at once: the emulator is one process."""
_HEAD = ("outcome", "provider", "expected", "reached")


def main(wanted: Collection[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tallybatch-outcomes-") as folder:
        place = Path(folder)
        try:
            cells = run(Stage(Deployed(stack.up(place, scenario="calm", report=_note))), wanted)
        finally:
            stack.down(place)
    wrong = show(cells)
    print(f"\n{len(cells)} cells, {wrong} wrong, in {time.monotonic() - began:.0f} s")
    print(json.dumps({"cells": len(cells), "wrong": wrong}))
    return 1 if wrong else 0


def run(stage: Stage, providers: Collection[str]) -> list[Cell]:
    """The cells of all cases on these providers."""
    cells: list[Cell] = []
    stage.take([*IN_ORDER, *AT_ONCE])
    out = [(case, provider) for case in IN_ORDER for provider in providers]
    with ThreadPoolExecutor(len(out)) as waiting, ThreadPoolExecutor(WORKERS) as working:
        list(waiting.map(lambda provider: _drop_in_order(stage, provider), providers))
        played = [waiting.submit(_played, stage, case, provider, dropped=True) for case, provider in out]
        at_once = [(case, name) for case in AT_ONCE for name in providers if name in case.providers]
        played += [working.submit(_played, stage, case, provider) for case, provider in at_once]
        _let_the_slow_end(stage, providers)
        cells += [cell for one in played for cell in one.result()]
        if "bedrock" in providers:
            stage.set_bedrock_minimum(LEAST)
            stage.take(SMALL_SETS, least=LEAST)
            played = [working.submit(_played, stage, case, "bedrock") for case in SMALL_SETS]
            cells += [cell for one in played for cell in one.result()]
    order = {provider: number for number, provider in enumerate(PROVIDERS)}
    return sorted(cells, key=lambda cell: (cell.outcome.startswith("job"), cell.outcome, order[cell.provider]))


def _drop_in_order(stage: Stage, provider: str) -> None:
    for case in IN_ORDER:
        stage.drop(case, provider)
        stage.created(case, provider)
        if case.again is not None and case.again_at == "created":
            stage.drop_beside(case.again, case, provider)


def _let_the_slow_end(stage: Stage, providers: Collection[str]) -> None:
    """Once what waits for it does so on each provider: there is one virtual clock."""
    for case in IN_ORDER:
        for provider in providers:
            if case.again is not None:
                stage.waits(case.again, provider)
    stage.line.simulator.advance(SLOW_S)


def _played(stage: Stage, case: Case, provider: str, *, dropped: bool = False) -> list[Cell]:
    began = time.monotonic()
    cells = play(stage, case, provider, dropped=dropped)
    bad = sum(bool(cell.wrong) for cell in cells)
    _note(f"{case.name} on {provider}: {len(cells)} cells, {bad} wrong, {time.monotonic() - began:.0f} s")
    return cells


def show(cells: Sequence[Cell]) -> int:
    """The table; how many cells are wrong."""
    rows = [(cell.outcome, cell.provider, cell.expected, _reached(cell)) for cell in cells]
    widths = [max(len(row[column]) for row in (_HEAD, *rows)) for column in range(len(_HEAD))]
    _row(_HEAD, widths)
    for cell, row in zip(cells, rows, strict=True):
        _row(row, widths)
        for difference in cell.wrong:
            print(f"    WRONG: {difference}")
    return sum(bool(cell.wrong) for cell in cells)


def _reached(cell: Cell) -> str:
    return "the same" if cell.reached == cell.expected else cell.reached


def _row(cells: Sequence[str], widths: Sequence[int]) -> None:
    print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip(), flush=True)


def _note(text: str) -> None:
    print(text, file=sys.__stderr__, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or PROVIDERS))
