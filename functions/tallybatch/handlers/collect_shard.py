"""Fetch what the provider has for a shard."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ShardItem
from tallybatch.observability import Event, observed
from tallybatch.settings import CollectShard
from tallybatch.steps import collect_shard


@observed(CollectShard)
def handler(event: Event, settings: CollectShard) -> Any:
    item = ShardItem.model_validate(event)
    return collect_shard.run(item, wiring.collect_shard_ports(settings, item.provider))
