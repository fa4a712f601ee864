"""A schedule, or a person, asks for files that were not taken yet."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import BackfillRequest
from tallybatch.observability import Event, observed
from tallybatch.settings import DiscoverBackfill
from tallybatch.steps import discover_backfill


@observed(DiscoverBackfill)
def handler(event: Event, settings: DiscoverBackfill) -> Any:
    reply = discover_backfill.run(BackfillRequest.model_validate(event), wiring.discover_backfill_ports(settings))
    return reply.model_dump()
