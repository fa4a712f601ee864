"""A schedule, or a person, asks what the providers have that the ledger does not know."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import SweepRequest
from tallybatch.observability import Event, observed
from tallybatch.settings import Sweep
from tallybatch.steps import sweep


@observed(Sweep)
def handler(event: Event, settings: Sweep) -> Any:
    return sweep.run(SweepRequest.model_validate(event), wiring.sweep_ports(settings)).model_dump()
