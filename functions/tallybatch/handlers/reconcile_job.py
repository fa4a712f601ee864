"""Close the sets of a job, or say what is open."""

from __future__ import annotations

from typing import Any

from tallybatch import wiring
from tallybatch.contracts import JobInput
from tallybatch.observability import Event, observed
from tallybatch.settings import ReconcileJob
from tallybatch.steps import reconcile_job


@observed(ReconcileJob)
def handler(event: Event, settings: ReconcileJob) -> Any:
    return reconcile_job.run(JobInput.model_validate(event), wiring.reconcile_job_ports(settings)).model_dump()
