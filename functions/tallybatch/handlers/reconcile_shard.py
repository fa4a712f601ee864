"""One outcome per record of a shard."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ShardItem
from tallybatch.observability import Event, observed
from tallybatch.settings import ReconcileShard
from tallybatch.steps import reconcile_shard


@observed(ReconcileShard)
def handler(event: Event, settings: ReconcileShard) -> Any:
    return reconcile_shard.run(ShardItem.model_validate(event), wiring.reconcile_shard_ports(settings))
