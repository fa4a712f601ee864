"""Report, certificate, and the switch of current.json."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import JobInput
from tallybatch.observability import Event, observed
from tallybatch.settings import SealJob
from tallybatch.steps import seal_job


@observed(SealJob)
def handler(event: Event, settings: SealJob) -> Any:
    return seal_job.run(JobInput.model_validate(event), wiring.seal_job_ports(settings)).model_dump()
