"""Every call to AWS that a deployed function has made, held against its role: the emulator itself enforces no IAM.

It comes last (`conftest.py`), so that it sees what all tests of the run made the functions do. Alone, it sees what it
does itself: a job, one that asks record by record, one that is stopped and resumed, a sweep.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.settings import FUNCTIONS
from tallybatch.steps.sweep import UNTOUCHED_S
from tests.e2e.conftest import Faults
from tests.support.deployed import Deployed, eventually, fresh_tenant
from tests.support.films import films, spec
from tests.support.iam_declared import declared_sources
from tests.support.iam_deployed import DeployedRoles
from tests.support.iam_needs import Call, recorded
from tests.support.local import calls_dir

pytestmark = pytest.mark.xdist_group("e2e")

NOT_HERE = {"ApproveCanary", "DiscoverBackfill", "FailJob", "JudgeCanary", "ReleaseQuota", "ResolveReview"}
"""What other tests of the run make the functions do."""
HOURS = {"validating": 0.1, "in_progress": 6000, "finalizing": 0.1}


@pytest.fixture
def calls(line: Deployed, local_state_dir: Path, faults: Faults) -> list[Call]:
    """What the functions have asked of AWS since the stack came up."""
    ran(line, spec())
    ran(line, spec(sections="lane: on_demand"))
    faults(durations=HOURS)
    tenant = fresh_tenant("resumed")
    line.push_spec(tenant, spec())
    line.drop(tenant, films(5))
    stop(line, tenant)
    assert "errorType" not in line.invoke("SweepFunction", {})
    stop(line, tenant, run=2)
    reply = line.invoke("ResumeJobFunction", {"job_key": line.jobs(tenant)[0].job_key, "action": "resume", "by": "ada"})
    assert reply.get("started"), reply
    line.simulator.advance(2 * HOURS["in_progress"])
    [ended] = line.ended(tenant)
    assert ended.state == JobState.COMPLETED, ended.reason
    return recorded(calls_dir(local_state_dir))


def ran(line: Deployed, text: str) -> None:
    tenant = fresh_tenant("privileges")
    line.push_spec(tenant, text)
    job = line.run(tenant, films(5))
    assert job.state == JobState.COMPLETED, job.reason


def stop(line: Deployed, tenant: str, *, run: int = 1) -> None:
    """Stop the run of the tenant's one job as soon as it is at the provider, and let it look untouched for long."""

    def at_the_provider() -> list[Job]:
        at_work = {JobState.SUBMITTED, JobState.RUNNING}
        return [job for job in line.jobs(tenant) if job.state in at_work and job.run == run]

    [job] = eventually(at_the_provider, f"run {run} is at the provider")
    line.states.stop_execution(executionArn=line.execution_arn(job))
    eventually(lambda: line.execution(job)["status"] == "ABORTED", "the execution was aborted")

    def older() -> Job | None:
        now = line.jobs(tenant)[0]
        return line.ledger.put_job(
            replace(now, updated_at=now.updated_at - UNTOUCHED_S - 1), expected_version=now.version
        )

    eventually(older, "the row looks untouched")


def test_given_all_that_the_functions_did_when_held_against_their_roles_then_aws_would_have_let_them(
    line: Deployed, calls: list[Call]
) -> None:
    # GIVEN
    roles = DeployedRoles(line)
    seen = {call.function.rpartition("-")[2] for call in calls}
    assert seen >= {model.function for model in FUNCTIONS} - NOT_HERE
    # WHEN
    discover = f"{line.status.stack}-DiscoverBackfill"
    read_by_backfills = {call.source_bucket for call in calls if call.function == discover}
    denied = roles.denied(calls, {discover: declared_sources(read_by_backfills - {""}, "lake/")})
    # THEN
    print(f"functions that made no call: {sorted({model.function for model in FUNCTIONS} - seen)}")  # noqa: T201
    print("granted, and not needed by any call:", *roles.unused(calls), sep="\n  ")  # noqa: T201
    assert not denied, "\n".join(denied)
