"""`uv run poe faults [PROVIDER…]`: what can go wrong at a provider, each fault on each that has it, and where it ends.

Prints a table, and as its last line `{"scenarios", "wrong"}`. The exit code is 1 if an ending is wrong.
"""

from __future__ import annotations

import json
import sys

from infra.local.simulator.server import SimulatorServer
from tests.crash.fault_list import FAULTS
from tests.support.fault_run import PROVIDERS, Fault, Reached, Stage, scenarios

_HEAD = ("scenario", "provider", "what goes wrong", "expected", "reached", "jobs", "attempts")


def main(wanted: list[str]) -> int:
    runs = scenarios(FAULTS, wanted)
    lines = [
        _HEAD,
        *((fault.name, provider, fault.wrong, str(fault.ending_on(provider))) for fault, provider in runs),
    ]
    widths = [max(len(line[column]) for line in lines if column < len(line)) for column in range(4)]
    widths.append(widths[3])
    _row(_HEAD, widths)
    wrong = 0
    with SimulatorServer("calm", clock_scale=0) as simulator:
        stage = Stage(simulator)
        for fault, provider in runs:
            reached = stage.run(fault, provider)
            wrong += bool(reached.wrong)
            _show(fault, provider, reached, widths)
    print(f"\n{len(runs)} scenarios, {wrong} with a wrong ending")
    print(json.dumps({"scenarios": len(runs), "wrong": wrong}))
    return 1 if wrong else 0


def _show(fault: Fault, provider: str, reached: Reached, widths: list[int]) -> None:
    expected = str(fault.ending_on(provider))
    same = "the same" if reached.disposition == expected else reached.disposition
    _row((fault.name, provider, fault.wrong, expected, same, str(reached.jobs), str(reached.attempts)), widths)
    for difference in reached.wrong:
        print(f"    WRONG: {difference}")


def _row(cells: tuple[str, ...], widths: list[int]) -> None:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    print("  ".join((*padded, *(cell.rjust(8) for cell in cells[len(widths) :]))).rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(PROVIDERS)))
