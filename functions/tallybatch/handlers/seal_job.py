"""Report, certificate, and the switch of current.json."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import JobInput
from tallybatch.observability import Event, emit, observed
from tallybatch.settings import SealJob
from tallybatch.steps import seal_job


@observed(SealJob)
def handler(event: Event, settings: SealJob) -> Any:
    reply = seal_job.run(JobInput.model_validate(event), wiring.seal_job_ports(settings))
    emit(SealJob.function, counts={f"Jobs{reply.state.title()}": 1}, age_s=reply.age_s)
    return reply.model_dump()
