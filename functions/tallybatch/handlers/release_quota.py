"""Give back what a lost shard holds of its provider's quota."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ShardItem
from tallybatch.observability import Event, observed
from tallybatch.settings import ReleaseQuota
from tallybatch.steps import release_quota


@observed(ReleaseQuota)
def handler(event: Event, settings: ReleaseQuota) -> Any:
    return release_quota.run(ShardItem.model_validate(event), wiring.release_quota_ports(settings)).model_dump()
