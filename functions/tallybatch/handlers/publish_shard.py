"""Write the accepted rows of a shard."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import PublishItem
from tallybatch.observability import Event, observed
from tallybatch.settings import PublishShard
from tallybatch.steps import publish_shard


@observed(PublishShard)
def handler(event: Event, settings: PublishShard) -> Any:
    part = publish_shard.run(PublishItem.model_validate(event), wiring.objects(settings.bucket))
    return {"part": part.key, "records": part.records}
