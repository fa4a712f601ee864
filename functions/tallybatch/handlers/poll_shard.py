"""Ask the provider how a shard is."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ShardItem
from tallybatch.observability import Event, observed
from tallybatch.settings import PollShard
from tallybatch.steps import poll_shard


@observed(PollShard)
def handler(event: Event, settings: PollShard) -> Any:
    item = ShardItem.model_validate(event)
    waited_s = float(event.get("waited_s", 0))
    ports = wiring.poll_shard_ports(settings, item.provider)
    return poll_shard.run(item, ports, waited_s=waited_s, max_wait_s=settings.max_wait_s).model_dump()
