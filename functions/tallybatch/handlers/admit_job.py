"""Let a job begin, or tell it to wait."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import JobInput
from tallybatch.observability import Event, observed
from tallybatch.settings import AdmitJob
from tallybatch.steps import admit_job


@observed(AdmitJob)
def handler(event: Event, settings: AdmitJob) -> Any:
    return admit_job.run(JobInput.model_validate(event), wiring.admit_job_ports(settings)).model_dump()
