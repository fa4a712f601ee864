"""End a job that could not go on."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import FailInput
from tallybatch.observability import Event, emit, observed
from tallybatch.settings import FailJob
from tallybatch.steps import fail_job


@observed(FailJob)
def handler(event: Event, settings: FailJob) -> Any:
    reply = fail_job.run(FailInput.model_validate(event), wiring.fail_job_ports(settings))
    emit(FailJob.function, counts={"JobsFailed": 1})
    return reply.model_dump()
