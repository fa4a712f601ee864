"""List the shards of an attempt."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import JobInput
from tallybatch.observability import Event, observed
from tallybatch.settings import PlanAttempt
from tallybatch.steps import plan_attempt


@observed(PlanAttempt)
def handler(event: Event, settings: PlanAttempt) -> Any:
    return plan_attempt.run(JobInput.model_validate(event), wiring.plan_attempt_ports(settings)).model_dump()
