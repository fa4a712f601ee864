"""Say whether the canary lets the rest go."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import JobInput
from tallybatch.observability import Event, observed
from tallybatch.settings import JudgeCanary
from tallybatch.steps import judge_canary


@observed(JudgeCanary)
def handler(event: Event, settings: JudgeCanary) -> Any:
    return judge_canary.run(JobInput.model_validate(event), wiring.judge_canary_ports(settings)).model_dump()
