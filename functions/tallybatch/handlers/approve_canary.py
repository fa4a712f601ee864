"""Ask a person to let the rest go."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ApprovalRequest
from tallybatch.observability import Event, observed
from tallybatch.settings import ApproveCanary
from tallybatch.steps import approve_canary


@observed(ApproveCanary)
def handler(event: Event, settings: ApproveCanary) -> Any:
    approve_canary.run(ApprovalRequest.model_validate(event), wiring.approve_canary_ports(settings))
