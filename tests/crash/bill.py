"""`uv run poe bill [SCENARIOS]`: random bad days on each provider, and whether the ledger has the provider's bill.

Each job is reconciled four times. The simulator prices from a list of its own (`infra.local.simulator.bill`). Prints a
table, and as its last line `{"scenarios", "difference_nano_usd"}`. The exit code is 1 if there is a difference.
"""

from __future__ import annotations

import json
import sys

from infra.local.simulator.server import SimulatorServer
from tests.support.bills import run_day
from tests.support.fault_run import PROVIDERS

_ROW = "{:>8}  {:8}  {:9}  {:>8}  {:>6}  {:>14}  {:>14}  {:>10}"


def main(scenarios: int) -> int:
    print(
        _ROW.format("scenario", "provider", "ended", "attempts", "ghosts", "billed nano$", "booked nano$", "difference")
    )
    difference = 0
    with SimulatorServer("calm", clock_scale=0) as simulator:
        for seed in range(1, scenarios + 1):
            for provider in PROVIDERS:
                bill = run_day(simulator, seed, provider)
                difference += abs(bill.difference)
                told = (bill.job.state.value, bill.job.attempt, bill.ghosts, bill.billed, bill.booked, bill.difference)
                print(_ROW.format(seed, provider, *told), flush=True)
    print(json.dumps({"scenarios": scenarios * len(PROVIDERS), "difference_nano_usd": difference}))
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
