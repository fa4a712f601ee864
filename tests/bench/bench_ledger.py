"""Records per second and CPU per 25 records of claims and accepts, against the emulator or AWS.

    python -m tests.bench.bench_ledger [--endpoint-url URL] [--records 5000]

Without a URL it starts an emulator for as long as it lasts. It makes a table of its own and deletes it. CPU is this
process's, the emulator's is not counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tallybatch.adapters.dynamodb_ledger import DynamoDBLedger
from tallybatch.ports import ClaimOutcome
from tests.support.emulated import Emulated
from tests.support.local import ephemeral_emulator
from tests.support.rows import answer, claim

_T = TypeVar("_T")


def measure(name: str, records: int, call: Callable[[], _T]) -> _T:
    wall, cpu = time.perf_counter(), time.process_time()
    results = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    batches = records / 25
    print(f"{name:34} {records / wall:8.0f} records/s  {cpu / batches * 1e3:6.2f} ms CPU per 25  wall {wall:6.2f} s")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the ledger's record statements.")
    parser.add_argument("--endpoint-url")
    parser.add_argument("--records", type=int, default=5000)
    arguments = parser.parse_args()
    if arguments.endpoint_url:
        measure_all(arguments.endpoint_url, arguments.records)
        return
    with tempfile.TemporaryDirectory() as folder, ephemeral_emulator(Path(folder)) as endpoint_url:
        measure_all(endpoint_url, arguments.records)


def measure_all(endpoint_url: str, records: int) -> None:
    emulated = Emulated(endpoint_url)
    for workers in (1, 2, 4):
        print(f"workers={workers}")
        table = emulated.new_table()
        client = emulated.dynamodb()
        run(DynamoDBLedger(client, table, workers=workers), records)
        client.delete_table(TableName=table)


def run(ledger: DynamoDBLedger, records: int) -> None:
    claims = [claim(f"r{n}") for n in range(records)]
    answers = [answer(f"r{n}") for n in range(records)]
    claimed = measure("  claim (new)", records, lambda: ledger.claim_records(claims))
    accepted = measure("  accept", records, lambda: ledger.accept_records(answers))
    again = measure("  claim (accepted: read back)", records, lambda: ledger.claim_records(claims))
    repeated = measure("  accept again (refused, compared)", records, lambda: ledger.accept_records(answers))
    assert [result.outcome for result in claimed] == [ClaimOutcome.MINE] * records
    assert [result.outcome for result in again] == [ClaimOutcome.ACCEPTED] * records
    assert all(accepted)
    assert all(repeated)


if __name__ == "__main__":
    main()
