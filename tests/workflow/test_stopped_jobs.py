"""A job whose execution was stopped without ending it: a person's `resume` lets it go on where the sweep does not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tallybatch.contracts import FailInput, JobInput
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.quotas import ADMISSION
from tallybatch.steps import cancel_job
from tallybatch.steps.resume_job import ABOUT_TO_START_S
from tallybatch.steps.sweep import MAX_RUNS, UNTOUCHED_S
from tests.support.films import films, spec
from tests.support.pipeline import Pipeline

RECORDS = 4


def stopped(pipeline: Pipeline, *, submitted: bool = True) -> str:
    pipeline.push_spec(spec())
    job_key: str = pipeline.drop(films(RECORDS))["job_key"]
    if submitted:
        request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
        (item,) = pipeline.items(pipeline.plan(request))
        pipeline.submit(item)
    pipeline.executions.end(f"{job_key}-1")
    return job_key


@pytest.mark.parametrize("submitted", [False, True])
def test_given_a_stopped_execution_when_resumed_then_the_next_one_goes_on_and_nothing_is_paid_twice(
    pipeline: Pipeline, submitted: bool
) -> None:
    job_key = stopped(pipeline, submitted=submitted)
    pipeline.wait(ABOUT_TO_START_S + 1)

    assert pipeline.resume(job_key).started is True
    assert pipeline.job(job_key).execution_name == f"{job_key}-2"
    job = pipeline.run_again(job_key)

    assert (job.state, job.run, job.attempt, job.counts["succeeded"]) == (JobState.COMPLETED, 2, 1, RECORDS)
    assert len(pipeline.simulator.control.journal()["creates"]) == 1


def test_given_a_job_that_the_sweep_has_given_up_when_resumed_then_it_goes_on(pipeline: Pipeline) -> None:
    job_key = stopped(pipeline)
    job = pipeline.job(job_key)
    pipeline.ledger.put_job(replace(job, run=MAX_RUNS), expected_version=job.version)
    pipeline.wait(UNTOUCHED_S + 1)
    assert pipeline.sweep().restarted == []

    assert pipeline.resume(job_key).started is True
    assert pipeline.run_again(job_key).state is JobState.COMPLETED


def test_given_a_stopped_job_when_two_resume_it_then_one_execution_is_started(pipeline: Pipeline) -> None:
    job_key = stopped(pipeline)
    pipeline.wait(ABOUT_TO_START_S + 1)
    first, second = pipeline.resume(job_key), pipeline.resume(job_key)
    assert (first.started, second.started, second.at_work) == (True, False, True)
    assert list(pipeline.executions.started) == [f"{job_key}-1", f"{job_key}-2"]


def test_given_a_job_that_has_just_been_touched_when_resumed_then_its_execution_may_be_about_to_start(
    pipeline: Pipeline,
) -> None:
    job_key = stopped(pipeline)
    reply = pipeline.resume(job_key)
    assert (reply.started, reply.at_work, pipeline.job(job_key).run) == (False, True, 1)


def test_given_a_job_that_has_not_begun_when_a_part_is_asked_for_then_nobody_is_told_that_it_is_published(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    for action in ("publish_partial", "acknowledge"):
        reply = pipeline.resume(job_key, action)
        assert (reply.started, reply.at_work) == (False, True)
    cancel_job.run(job_key, pipeline.ledger, pipeline.clock)
    assert pipeline.resume(job_key, "publish_partial").cancelling is True


def test_given_a_stopped_job_when_a_part_is_asked_for_then_it_is_told_that_nobody_works_on_it(
    pipeline: Pipeline,
) -> None:
    job_key = stopped(pipeline)
    pipeline.wait(ABOUT_TO_START_S + 1)
    reply = pipeline.resume(job_key, "publish_partial")
    assert (reply.started, reply.stopped, pipeline.job(job_key).run) == (False, True, 1)


def test_given_a_job_that_was_resumed_when_its_last_run_fails_once_more_then_the_new_run_is_left_alone(
    pipeline: Pipeline,
) -> None:
    """FailJob has ended the job, its reply was lost, a person was quick, and then it runs again."""
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    error = FailInput(tenant="acme", job_key=job_key, attempt=1, error={"Error": "Permanent", "Cause": "once"})
    pipeline.fail(error)
    pipeline.resume(job_key)

    pipeline.fail(error)

    assert (pipeline.job(job_key).state, pipeline.job(job_key).reason) == (JobState.VALIDATED, "")
    assert pipeline.run_again(job_key).state is JobState.COMPLETED


def test_given_a_job_that_was_resumed_when_its_last_run_is_sealed_once_more_then_the_new_run_keeps_its_place(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    cancel_job.run(job_key, pipeline.ledger, pipeline.clock)
    pipeline.execute(job_key)
    pipeline.resume(job_key)
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket", attempt=2)
    pipeline.admit(request)
    pool = pipeline.ledger.quota_line(ADMISSION)

    assert pipeline.seal(request.model_copy(update={"attempt": 1})).state == "VALIDATED"

    assert pipeline.ledger.quota_line(ADMISSION) == pool
    assert pipeline.run_again(job_key).state is JobState.COMPLETED
