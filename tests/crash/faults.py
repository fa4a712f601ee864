"""`uv run poe faults`: what can go wrong at a provider, each fault on each provider that has it, and where it ends.

Prints a table, and as its last line `{"scenarios", "wrong"}`. The exit code is 1 if an ending is wrong.
"""

from __future__ import annotations

import json
import sys

from infra.local.simulator.server import SimulatorServer
from tests.crash.fault_list import FAULTS
from tests.support.fault_run import Fault, Reached, Stage

_HEAD = ("scenario", "provider", "what goes wrong", "expected", "reached", "jobs", "attempts")


def main() -> int:
    scenarios = [(fault, provider) for fault in FAULTS for provider in fault.providers]
    lines = [
        _HEAD,
        *((fault.name, provider, fault.wrong, str(fault.ending_on(provider))) for fault, provider in scenarios),
    ]
    widths = [max(len(line[column]) for line in lines if column < len(line)) for column in range(4)]
    widths.append(widths[3])
    _row(_HEAD, widths)
    wrong = 0
    with SimulatorServer("calm", clock_scale=0) as simulator:
        stage = Stage(simulator)
        for fault, provider in scenarios:
            reached = stage.run(fault, provider)
            wrong += bool(reached.wrong)
            _show(fault, provider, reached, widths)
    print(f"\n{len(scenarios)} scenarios, {wrong} with a wrong ending")
    print(json.dumps({"scenarios": len(scenarios), "wrong": wrong}))
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
    sys.exit(main())
