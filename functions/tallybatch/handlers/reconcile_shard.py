"""One outcome per record of a shard."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ShardItem
from tallybatch.observability import RECORD_METRICS, RECORDS_OPEN, Event, emit, observed
from tallybatch.settings import ReconcileShard
from tallybatch.steps import reconcile_shard


@observed(ReconcileShard)
def handler(event: Event, settings: ReconcileShard) -> Any:
    counts = reconcile_shard.run(ShardItem.model_validate(event), wiring.reconcile_shard_ports(settings))
    named = {metric: counts.get(outcome, 0) for outcome, metric in RECORD_METRICS.items()}
    emit(ReconcileShard.function, counts={**named, RECORDS_OPEN: sum(counts.values()) - sum(named.values())})
    return counts
