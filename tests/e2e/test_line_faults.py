"""The provider fails under the deployed line: nothing is paid twice, nothing is lost, and what ends early says why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tallybatch.domain.rows import Job
from tests.e2e.conftest import Faults, load_scenario
from tests.support.deployed import Deployed, caught_events, eventually, failures, fresh_tenant
from tests.support.films import classes, films, report, results, spec

pytestmark = pytest.mark.xdist_group("e2e")

LOST_CREATE = "openai.create.lost_reply"
ONE_AFTER_THE_OTHER = "5, max_parallel: 1"


@pytest.fixture(scope="module")
def usual_day(line: Deployed) -> Iterator[Job]:
    """The scenario of the demo: the first create's reply is lost, 2 % of the records fail and 1 % are missing once."""
    tenant = fresh_tenant("usual")
    line.push_spec(tenant, spec(shard_records=120))
    lost_before = line.simulator.journal()["faults"].get(LOST_CREATE, 0)
    line.simulator.set_scenario("demo")
    try:
        job = line.run(tenant, films(240))
        journal = line.simulator.journal()
    finally:
        load_scenario(line)
    assert journal["faults"][LOST_CREATE] == lost_before + 1
    assert {"error_500", "error_429", "missing"} & journal["record_faults"].keys()
    yield job


def test_given_a_lost_create_and_failing_records_when_the_job_ends_then_each_submission_was_created_once(
    line: Deployed, usual_day: Job
) -> None:
    submissions = line.ledger.submissions(usual_day.job_key)
    assert {row.attempt for row in submissions} == {1, 2}
    assert Counter(entry["marker"] for entry in line.creates(usual_day)) == Counter(
        row.submission_key for row in submissions
    )
    assert usual_day.counts["provider_jobs"] == usual_day.counts["submissions"] == len(submissions) == 3


def test_given_a_lost_create_and_failing_records_when_the_job_ends_then_every_record_has_its_answer(
    line: Deployed, usual_day: Job
) -> None:
    assert usual_day.state == "COMPLETED", usual_day.reason
    assert {name: usual_day.counts[name] for name in ("succeeded", "failed", "missing", "unknown", "duplicate")} == {
        "succeeded": 240, "failed": 0, "missing": 0, "unknown": 0, "duplicate": 0,
    }  # fmt: skip
    told = classes(line.objects, usual_day)
    again = {key: history for key, history in told.items() if history != ["succeeded"]}
    assert again
    assert {history[-1] for history in again.values()} == {"succeeded"}
    assert len(results(line.objects, usual_day)) == 240
    assert line.verify(usual_day).ok


def test_given_a_sealed_job_when_one_byte_of_any_object_is_flipped_then_verify_names_the_object(
    line: Deployed, usual_day: Job
) -> None:
    objects = [info.key for info in line.objects.list(line.keys(usual_day).prefix)]
    assert len(objects) > 20
    for key in objects:
        body = line.objects.get(key)
        middle = len(body) // 2
        line.put(key, body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :])

        verification = line.verify(usual_day)

        assert line.objects.uri(key) in verification.difference
        line.put(key, body)
    assert line.verify(usual_day).ok


def test_given_one_shard_is_lost_when_the_others_are_done_then_it_resumes_and_is_not_created_again(
    line: Deployed, faults: Faults
) -> None:
    # GIVEN the first shard's poll is refused, which no retry mends
    faults(calls=[{"on": "get", "nth": 1, "fault": "status:403"}])
    tenant = fresh_tenant("lost")
    line.push_spec(tenant, spec(shard_records=ONE_AFTER_THE_OTHER))
    # WHEN
    job = line.run(tenant, films(10))
    # THEN
    lost, kept, resumed, *_ = line.children(job)
    assert [failures(child["events"]) for child in (lost, kept, resumed)] == [["ProviderRefused"], [], []]
    assert json.loads(lost["input"])["shard_id"] == json.loads(resumed["input"])["shard_id"]
    assert lost["stopDate"] <= kept["startDate"], "max_parallel is 1"
    assert line.entered(job)[6:9] == ["IsClosed", "WaitBeforeRetry", "PlanAttempt"]
    assert (job.state, job.counts["succeeded"]) == ("COMPLETED", 10), job.reason
    assert set(Counter(entry["marker"] for entry in line.creates(job)).values()) == {1}
    assert len(line.creates(job)) == 2
    assert {row.attempt for row in line.ledger.submissions(job.job_key)} == {1}
    assert line.verify(job).ok


def test_given_a_provider_that_is_away_when_polled_then_the_task_is_retried_by_the_name_of_its_error(
    line: Deployed, faults: Faults
) -> None:
    # GIVEN more failures than a task may have whose error no Retry names
    faults(calls=[{"on": "get", "nth": 1, "count": 4, "fault": "status:503", "should_retry": False}])
    tenant = fresh_tenant("away")
    line.push_spec(tenant, spec())
    # WHEN
    job = line.run(tenant, films(3))
    # THEN
    shard, publish = line.children(job)
    assert failures(shard["events"]) == ["ProviderUnavailable"] * 4
    assert (shard["status"], publish["status"], job.state) == ("SUCCEEDED", "SUCCEEDED", "COMPLETED")
    assert len(line.creates(job)) == 1


def test_given_a_key_that_the_provider_refuses_when_the_job_runs_then_fail_job_ends_it_with_report_and_event(
    line: Deployed, faults: Faults
) -> None:
    # GIVEN
    faults(calls=[{"on": "create", "count": "always", "fault": "status:401"}])
    tenant = fresh_tenant("refused")
    line.push_spec(tenant, spec())
    # WHEN
    with caught_events(line, "JobFailed") as caught:
        job = line.run(tenant, films(3))
        eventually(lambda: job.job_key in caught(), "the event of the failed job")
        event = caught()[job.job_key]
    # THEN
    assert job.state == "FAILED"
    assert job.reason.startswith("ProviderRefused: ")
    assert "401" in job.reason
    assert line.entered(job)[5:] == ["ReconcileJob", "FailJob", "JobFailed"]
    assert set(failures(line.history(line.execution_arn(job)))) == {"ProviderRefused"}
    execution = line.execution(job)
    assert (execution["status"], execution["error"]) == ("FAILED", "JobFailed")
    assert report(line.objects, job)["state"] == "FAILED"
    assert event["detail"] == {"job_key": job.job_key, "tenant": tenant, "spec": "genre", "reason": job.reason}
    assert line.creates(job) == []
