"""Set aside a shard's part of its provider's quota, or tell it to wait."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ShardItem
from tallybatch.observability import Event, observed
from tallybatch.settings import ReserveQuota
from tallybatch.steps import reserve_quota


@observed(ReserveQuota)
def handler(event: Event, settings: ReserveQuota) -> Any:
    return reserve_quota.run(ShardItem.model_validate(event), wiring.reserve_quota_ports(settings)).model_dump()
