"""Canary and approval on the deployed line, with a real task token: through command, function and ledger."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tallybatch.cli.main import app
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tests.e2e.conftest import Faults
from tests.support.canaries import CANARY, RECORDS, canary_spec, manual
from tests.support.deployed import Deployed, caught_events, eventually, fresh_tenant
from tests.support.films import films, results

pytestmark = pytest.mark.xdist_group("e2e")


def command(line: Deployed, *words: str, code: int = 0) -> dict[str, Any]:
    assert line.status.stack
    place = ["--stack", line.status.stack, "--endpoint-url", line.endpoint_url, "--json"]
    done = CliRunner().invoke(app, [*words, *place])
    assert done.exit_code == code, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def waiting(line: Deployed, tenant: str) -> Job:
    """A job whose canary has passed, and whose execution has handed out its token."""
    line.push_spec(tenant, manual())
    line.drop(tenant, films(RECORDS))

    def look() -> list[Job]:
        return [job for job in line.jobs(tenant) if job.approval is not None and job.approval.token]

    [job] = eventually(look, "the canary waits for approval")
    return job


def test_given_a_canary_that_waits_when_approved_by_command_then_the_execution_goes_on_to_its_certificate(
    line: Deployed, faults: Faults
) -> None:
    faults()
    tenant = fresh_tenant("approve")
    with caught_events(line, "NeedsApproval") as arrived:
        job = waiting(line, tenant)
        event = eventually(lambda: arrived().get(job.job_key), "the event that asks for approval")
    assert job.approval is not None
    assert event is not None
    told = event["detail"]
    assert (told["records"], told["accepted"], told["expected"]) == (CANARY, CANARY, RECORDS)
    assert job.approval.token not in json.dumps(event)
    assert len(line.creates(job)) == 1

    answered = command(line, "approve", job.job_key, "--reason", "as expected")
    assert answered["approval"]["decision"] == "approved"
    [ended] = line.ended(tenant)

    assert (ended.state, len(results(line.objects, ended))) == (JobState.COMPLETED, RECORDS)
    assert [name for name in line.entered(ended) if "Canary" in name] == ["JudgeCanary", "ApproveCanary", "JudgeCanary"]
    assert line.entered(ended).count("PlanAttempt") == 3
    assert line.verify(ended).ok
    assert command(line, "approve", job.job_key)["state"] == "COMPLETED"
    logged = json.dumps(line.log("ApproveCanary"))
    assert job.job_key in logged
    assert job.approval.token not in logged


def test_given_a_canary_that_waits_when_rejected_by_command_then_the_execution_ends_at_the_canarys_price(
    line: Deployed, faults: Faults
) -> None:
    faults()
    tenant = fresh_tenant("reject")
    job = waiting(line, tenant)

    command(line, "approve", job.job_key, "--reject")
    [ended] = line.ended(tenant)

    assert (ended.state, len(line.creates(ended))) == (JobState.CANCELLED, 1)


def test_given_a_prompt_that_yields_nothing_when_the_canary_fails_then_its_gate_stops_the_job(
    line: Deployed, faults: Faults
) -> None:
    faults(records=[{"fault": "bad_schema", "times": "always"}])
    tenant = fresh_tenant("canary")
    line.push_spec(tenant, canary_spec())
    line.drop(tenant, films(RECORDS))
    [job] = line.ended(tenant)

    assert (job.state, len(line.creates(job))) == (JobState.FAILED, 1)
    assert "the canary failed: 0 of 10 records accepted" in job.reason


def test_given_nobody_who_answers_when_the_token_times_out_then_the_job_is_expired(
    line: Deployed, faults: Faults
) -> None:
    faults()
    tenant = fresh_tenant("expire")
    line.push_spec(tenant, manual(", approval_timeout: 1m"))
    line.drop(tenant, films(RECORDS))
    [job] = line.ended(tenant, within_s=150)

    assert (job.state, len(line.creates(job))) == (JobState.EXPIRED, 1)
    assert "approval expired" in job.reason
    refused = command(line, "approve", job.job_key, code=5)
    assert refused["error"]["type"] == "ApprovalExpired"
