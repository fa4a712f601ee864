"""Records per second and CPU per 25 records of claims and accepts, against the emulator or AWS.

    python -m tests.bench.bench_ledger --endpoint-url http://127.0.0.1:4566 [--records 5000]

It makes a table of its own and deletes it. CPU is this process's, the emulator's is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from tallybatch.adapters.dynamodb_ledger import DynamoDBLedger
from tallybatch.ports import ClaimOutcome
from tests.support.emulated import Emulated
from tests.support.rows import answer, claim


def measure(name: str, records: int, call: Callable[[], Sequence[object]]) -> Sequence[object]:
    wall, cpu = time.perf_counter(), time.process_time()
    results = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    batches = records / 25
    print(f"{name:34} {records / wall:8.0f} records/s  {cpu / batches * 1e3:6.2f} ms CPU per 25  wall {wall:6.2f} s")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the ledger's record statements.")
    parser.add_argument("--endpoint-url", required=True)
    parser.add_argument("--records", type=int, default=5000)
    arguments = parser.parse_args()
    emulated, records = Emulated(arguments.endpoint_url), arguments.records
    for workers in (1, 2, 4):
        client, table = emulated.dynamodb(), emulated.new_table()
        ledger = DynamoDBLedger(client, table, workers=workers)
        claims = [claim(f"r{n}") for n in range(records)]
        answers = [answer(f"r{n}") for n in range(records)]
        print(f"workers={workers}")
        claimed = measure("  claim (new)", records, lambda: ledger.claim_records(claims))
        assert {result.outcome for result in ledger.claim_records(claims[:25])} == {ClaimOutcome.MINE}
        accepted = measure("  accept", records, lambda: ledger.accept_records(answers))
        again = measure("  claim (accepted: read back)", records, lambda: ledger.claim_records(claims))
        repeated = measure("  accept again (refused, compared)", records, lambda: ledger.accept_records(answers))
        assert len(claimed) == len(again) == records
        assert all(accepted)
        assert all(repeated)
        client.delete_table(TableName=table)


if __name__ == "__main__":
    main()
