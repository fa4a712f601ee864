"""Events come late, twice and in any order: what S3 had last is the newer, and an old event starts nothing again."""

from __future__ import annotations

import json

import pytest

from tallybatch.contracts import S3Event
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.steps import cancel_job
from tests.support.films import current, films, report, results, spec, spent
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


def test_given_a_file_that_becomes_again_what_it_was_when_dropped_then_readers_get_its_answers_and_nothing_is_paid(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    first = run(pipeline, pipeline.upload(films(RECORDS)))
    pipeline.wait(60)
    between = run(pipeline, pipeline.upload(films(RECORDS + 2)))
    assert len(results(pipeline.objects, between)) == RECORDS + 2
    paid = spent(pipeline.simulator.control)
    pipeline.wait(60)

    back = pipeline.upload(films(RECORDS))
    for _ in range(2):
        assert pipeline.build(back) == {"job_key": first.job_key, "state": "COMPLETED"}

    job = pipeline.job(first.job_key)
    assert (job.run, job.attempt, job.state) == (first.run, first.attempt, JobState.COMPLETED)
    (source,) = current(pipeline.objects, job)["sources"].values()
    assert (source["job_key"], source["dropped_at"]) == (job.job_key, job.dropped_at)
    assert len(results(pipeline.objects, job)) == RECORDS
    assert spent(pipeline.simulator.control) == paid
    assert pipeline.verify(job).ok


def test_given_a_file_that_becomes_again_what_it_was_while_its_job_runs_when_both_end_then_it_is_the_newer_one(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    first = pipeline.build(pipeline.upload(films(RECORDS)))["job_key"]
    pipeline.wait(60)
    between = pipeline.build(pipeline.upload(films(RECORDS + 2)))["job_key"]
    pipeline.wait(60)
    assert pipeline.build(pipeline.upload(films(RECORDS)))["job_key"] == first

    for job_key in (first, between):
        pipeline.execute(job_key)

    (source,) = current(pipeline.objects, pipeline.job(first))["sources"].values()
    assert source["job_key"] == first


@pytest.mark.parametrize("completed", [True, False], ids=["completed", "cancelled"])
@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("name: genre", "name: other"),
        ("purpose: catalogue", "purpose: audit"),
        ("schema_version: GenreV1", "schema_version: GenreV2"),
    ],
    ids=["spec", "purpose", "form of the answer"],
)
def test_given_content_that_is_a_job_for_something_else_when_dropped_then_it_is_refused_and_told_what_to_do(
    pipeline: Pipeline, line: str, changed: str, completed: bool
) -> None:
    """Else nobody would be asked, no results would appear in its place, and the drop would look done."""
    pipeline.push_spec(spec())
    first = pipeline.upload(films(RECORDS))
    job = run(pipeline, first) if completed else cancelled(pipeline, first)
    pipeline.wait(60)

    name = "other" if changed == "name: other" else "genre"
    pipeline.push_spec(spec().replace(line, changed), name=name)
    refused = pipeline.job(pipeline.drop(films(RECORDS), spec=name)["job_key"])
    assert (refused.state, refused.counts["succeeded"]) == (JobState.FAILED, 0)
    assert job.job_key[:12] in refused.reason
    assert "another dataset version" in report(pipeline.objects, refused)["next_steps"][0]
    assert pipeline.job(job.job_key) == job

    again = pipeline.run(films(RECORDS), spec=name, version="v2")
    assert (again.state, again.spec) == (JobState.COMPLETED, name)


def sources(pipeline: Pipeline, job: Job) -> dict[str, str]:
    """The job that readers get for each file, by its name."""
    found = current(pipeline.objects, job)["sources"]
    return {key.rpartition("/")[2]: entry["job_key"] for key, entry in found.items()}


@pytest.mark.parametrize("in_flight", [False, True], ids=["when it has completed", "while it is at work"])
def test_given_two_files_of_one_content_when_one_of_them_changes_then_each_has_its_own_results(
    pipeline: Pipeline, in_flight: bool
) -> None:
    pipeline.push_spec(spec())
    event = pipeline.upload(films(RECORDS), name="x.jsonl")
    job_key = pipeline.build(event)["job_key"]
    if not in_flight:
        pipeline.execute(job_key)
    pipeline.wait(60)
    pipeline.drop(films(RECORDS), name="y.jsonl")
    pipeline.wait(60)
    newer = pipeline.run(films(RECORDS + 2), name="x.jsonl")
    if in_flight:
        pipeline.execute(job_key)
    job = pipeline.job(job_key)
    assert sources(pipeline, job) == {"x.jsonl": newer.job_key, "y.jsonl": job_key}

    pipeline.wait(60)
    pipeline.drop(films(RECORDS), name="y.jsonl")
    pipeline.build(event)
    assert sources(pipeline, job) == {"x.jsonl": newer.job_key, "y.jsonl": job_key}

    pipeline.wait(60)
    pipeline.drop(films(RECORDS), name="x.jsonl")
    assert sources(pipeline, job) == {"x.jsonl": job_key, "y.jsonl": job_key}


def test_given_two_files_of_one_content_when_readers_are_told_something_else_of_the_second_then_the_proof_fails(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    job = pipeline.run(films(RECORDS), name="x.jsonl")
    pipeline.wait(60)
    pipeline.drop(films(RECORDS), name="y.jsonl")
    assert pipeline.verify(job).ok

    key = "results/acme/genre/v1/current.json"
    told = current(pipeline.objects, job)
    told["sources"]["inbox/acme/genre/v1/y.jsonl"]["counts"]["succeeded"] += 1
    pipeline.objects.put(key, json.dumps(told).encode())
    found = pipeline.verify(job)
    assert not found.ok
    assert key in found.difference
