"""Events come late, twice and in any order: what S3 had last is the newer, and an old event starts nothing again."""

from __future__ import annotations

from tallybatch.contracts import S3Event
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.steps import cancel_job
from tests.support.films import current, films, results, spec
from tests.support.pipeline import Pipeline

RECORDS = 4


def run(pipeline: Pipeline, event: S3Event) -> Job:
    job_key = pipeline.build(event)["job_key"]
    pipeline.execute(job_key)
    return pipeline.job(job_key)


def cancelled(pipeline: Pipeline, event: S3Event) -> Job:
    job_key = pipeline.build(event)["job_key"]
    cancel_job.run(job_key, pipeline.ledger, pipeline.clock)
    pipeline.execute(job_key)
    assert pipeline.job(job_key).state is JobState.CANCELLED
    return pipeline.job(job_key)


def test_given_a_file_that_was_replaced_when_the_events_come_in_the_other_order_then_the_newer_answers_stay(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    older = pipeline.upload(films(RECORDS))
    pipeline.wait(60)
    newer = pipeline.upload(films(RECORDS + 2))
    pipeline.wait(60)

    job = run(pipeline, newer)
    pipeline.wait(60)
    late = run(pipeline, older)

    assert (job.state, late.state, late.created_at > job.created_at) == (JobState.COMPLETED, JobState.COMPLETED, True)
    (source,) = current(pipeline.objects, job)["sources"].values()
    assert (source["job_key"], source["dropped_at"]) == (job.job_key, job.dropped_at)
    assert len(results(pipeline.objects, job)) == RECORDS + 2


def test_given_a_job_that_was_dropped_again_and_cancelled_when_an_event_of_the_first_drop_comes_then_it_stays_so(
    pipeline: Pipeline,
) -> None:
    """A dead letter that is sent again, say."""
    pipeline.push_spec(spec())
    first = pipeline.upload(films(RECORDS))
    cancelled(pipeline, first)
    pipeline.wait(60)
    second = pipeline.upload(films(RECORDS))
    job = cancelled(pipeline, second)
    assert job.run == 2

    for event in (first, second, first):
        assert pipeline.build(event) == {"job_key": job.job_key, "state": "CANCELLED"}
    assert pipeline.job(job.job_key) == job

    pipeline.wait(60)
    assert run(pipeline, pipeline.upload(films(RECORDS))).state is JobState.COMPLETED
