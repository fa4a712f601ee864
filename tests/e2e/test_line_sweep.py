"""The sweeper and cancel on the deployed line: through the command, the function, the ledger and the provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from tallybatch.cli.main import app
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.steps.sweep import UNTOUCHED_S
from tests.e2e.conftest import Faults, load_scenario
from tests.support.deployed import Deployed, caught_events, eventually, fresh_tenant
from tests.support.films import classes, films, results, spec
from tests.support.orphans import create_behind_the_back

pytestmark = pytest.mark.xdist_group("e2e")

SLOW = {"validating": 0.1, "in_progress": 6000, "finalizing": 0.1, "cancelling": 0.5}
RECORDS = 10


def command(line: Deployed, *words: str) -> dict[str, Any]:
    """What `tallybatch … --json` answers about this stack."""
    assert line.status.stack
    place = ["--stack", line.status.stack, "--endpoint-url", line.endpoint_url, "--json"]
    done = CliRunner().invoke(app, [*words, *place])
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def at_work(line: Deployed, tenant: str) -> Job:
    """A job whose shard is at the provider, where it takes hours."""
    line.push_spec(tenant, spec())
    line.drop(tenant, films(RECORDS))

    def look() -> list[Job]:
        return [job for job in line.jobs(tenant) if job.state in (JobState.SUBMITTED, JobState.RUNNING)]

    [job] = eventually(look, "the job is at the provider")
    return job


def test_given_a_job_made_behind_the_ledgers_back_when_swept_then_it_is_found_announced_and_cancelled_when_asked(
    line: Deployed, faults: Faults
) -> None:
    faults(durations=SLOW)
    marker = fresh_tenant("orphan").ljust(64, "0")
    with caught_events(line, "OrphanFound") as arrived:
        job_id = create_behind_the_back(f"{line.status.simulator_url}/openai/v1", marker)

        reply = command(line, "sweep")

        [orphan] = [each for each in reply["orphans"] if each["provider_job_id"] == job_id]
        assert (orphan["provider"], orphan["marker"], orphan["why"].partition(":")[0]) == ("openai", marker, "unknown")
        assert reply["cancelled"] == []
        assert "openai" not in {gap["provider"] for gap in reply["gaps"]}
        eventually(lambda: "" in arrived(), "the orphan was announced")
        assert arrived()[""]["detail"]["provider_job_id"] == job_id
    assert job_id in command(line, "sweep", "--cancel")["cancelled"]
    assert job_id in {entry["job_id"] for entry in line.simulator.journal()["cancels"]}


def test_given_an_execution_that_is_aborted_when_swept_then_the_job_completes_with_no_second_create(
    line: Deployed, faults: Faults
) -> None:
    faults(durations=SLOW)
    tenant = fresh_tenant("aborted")
    job = at_work(line, tenant)
    line.states.stop_execution(executionArn=line.execution_arn(job))
    eventually(lambda: line.execution(job)["status"] == "ABORTED", "the execution was aborted")
    assert f"{job.job_key}-2" not in command(line, "sweep")["restarted"]

    def older() -> Job | None:
        now = line.jobs(tenant)[0]
        return line.ledger.put_job(
            replace(now, updated_at=now.updated_at - UNTOUCHED_S - 1), expected_version=now.version
        )

    eventually(older, "the row looks untouched")
    assert f"{job.job_key}-2" in command(line, "sweep")["restarted"]
    line.simulator.advance(2 * SLOW["in_progress"])
    [ended] = line.ended(tenant)

    assert (ended.state, ended.run, ended.counts["succeeded"]) == ("COMPLETED", 2, RECORDS), ended.reason
    assert len(line.creates(ended)) == 1
    assert line.verify(ended).ok


def test_given_a_job_that_is_two_fifths_done_when_cancelled_and_dropped_again_then_only_the_rest_is_paid(
    line: Deployed, faults: Faults
) -> None:
    faults(durations=SLOW)
    tenant = fresh_tenant("cancelled")
    job = at_work(line, tenant)
    line.simulator.advance(0.45 * SLOW["in_progress"])

    told = command(line, "cancel", job.job_key, "--follow")

    assert (told["state"], told["succeeded"], told["results_uri"]) == ("CANCELLED", 4, None)
    load_scenario(line)
    line.drop(tenant, films(RECORDS))
    eventually(lambda: line.jobs(tenant)[0].run == 2, "the job was reopened")
    [ended] = line.ended(tenant)
    assert (ended.state, ended.counts["succeeded"]) == ("COMPLETED", RECORDS), ended.reason
    assert sorted(classes(line.objects, ended).values()) == [["missing", "succeeded"]] * 6 + [["succeeded"]] * 4
    assert len(results(line.objects, ended)) == RECORDS
    assert [row.input_records for row in line.ledger.submissions(ended.job_key)] == [RECORDS, 6]
    assert line.verify(ended).ok
