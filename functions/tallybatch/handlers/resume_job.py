"""A person asks a job that has ended to go on, to count unknown ids as seen, or to publish a part."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import ResumeRequest
from tallybatch.observability import Event, observed
from tallybatch.settings import ResumeJob
from tallybatch.steps import resume_job


@observed(ResumeJob)
def handler(event: Event, settings: ResumeJob) -> Any:
    return resume_job.run(ResumeRequest.model_validate(event), wiring.resume_job_ports(settings)).model_dump()
