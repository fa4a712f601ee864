"""Hand a shard to its provider, at most once."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ShardItem
from tallybatch.domain.submitting import SubmitRules
from tallybatch.observability import Event, observed
from tallybatch.settings import SubmitShard
from tallybatch.steps import submit_shard


@observed(SubmitShard)
def handler(event: Event, settings: SubmitShard) -> Any:
    rules = SubmitRules(settings.settle_window_s, settings.create_within_s)
    item = ShardItem.model_validate(event)
    ports = wiring.submit_shard_ports(settings, item.provider)
    return submit_shard.run(item, ports, rules=rules, unknown_wait_s=settings.unknown_wait_s).model_dump()
