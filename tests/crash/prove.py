"""`python -m tests.crash.prove`: the whole crash matrix of every provider, as a table and one line of JSON.

Several processes share the work, each with an emulator and a simulator of its own. Exits with 1 on any violation.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.crash.matrix import Matrix, on_an_emulator, providers
from tests.crash.watched import Watched

KINDS = (Matrix, Watched)
Row = tuple[str, str, str, str, str, list[str]]
"""Provider, task, call, fault, what came after it, and what was wrong then."""


def share(names: list[str], part: int, of: int, step: int) -> list[Row]:
    """Try out every `of`-th trial from `part` on; with a `step`, only every `step`-th of all."""
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="tallybatch-") as folder,
        on_an_emulator(Path(folder), names, KINDS) as matrices,
    ):
        for matrix in matrices:
            trials = matrix.trials()[::step][part::of]
            began = time.monotonic()
            for number, trial in enumerate(trials, 1):
                for point, wrong in matrix.violations([trial]):
                    call = point.call
                    rows.append((matrix.provider, call.task, call.label, point.fault.value, point.then, wrong))
                    for what in wrong:
                        sys.stderr.write(f"VIOLATION {matrix.provider} {call} {point.fault} {point.then}: {what}\n")
                if number % 25 == 0 or number == len(trials):
                    took = (time.monotonic() - began) / number
                    sys.stderr.write(f"{matrix.provider} [{part}]: {number} of {len(trials)} runs, {took:.2f} s each\n")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.prove", description=__doc__)
    parser.add_argument("--provider", action="append", choices=providers(), help="default: all of them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="only every N-th run, for a quick look")
    arguments = parser.parse_args()
    names = arguments.provider or providers()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.processes, mp_context=spawn) as pool:
        work = [
            pool.submit(share, names, part, arguments.processes, arguments.every) for part in range(arguments.processes)
        ]
        rows = [row for done in work for row in done.result()]
    print(table(rows))
    violations = sum(len(row[5]) for row in rows)
    print(json.dumps({"points": len(rows), "violations": violations, "providers": names}))
    return 1 if violations else 0


def table(rows: list[Row]) -> str:
    """Points and violations by provider, call and fault; violations are told in words below their line."""
    points = Counter(row[:5] for row in rows)
    lines = [f"{'provider':9}{'task':16}{'fault':8}{'then':9}{'points':>7}{'wrong':>6}  call"]
    for key in sorted(points):
        wrong = [what for row in rows if row[:5] == key for what in row[5]]
        provider, task, call, fault, then = key
        lines.append(f"{provider:9}{task:16}{fault:8}{then:9}{points[key]:7}{len(wrong):6}  {call}")
        lines += [f"{'':9}{what}" for what in wrong]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
