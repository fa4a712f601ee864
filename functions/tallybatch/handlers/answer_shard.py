"""Ask a shard's records one by one, as far as the time goes."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ShardItem
from tallybatch.observability import Event, observed
from tallybatch.settings import AnswerShard
from tallybatch.steps import answer_shard
from tallybatch.steps.answer_shard import AnswerRules


@observed(AnswerShard)
def handler(event: Event, settings: AnswerShard) -> Any:
    item = ShardItem.model_validate(event)
    rules = AnswerRules(settings.work_s, settings.call_timeout_s)
    return answer_shard.run(item, wiring.answer_shard_ports(settings, item.provider), rules=rules).model_dump()
