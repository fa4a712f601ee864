"""Records that several jobs share: answered once, waited for, taken over, never paid twice."""

from __future__ import annotations

from tallybatch.contracts import JobInput
from tests.support.films import classes, film, films, key_of, results, scenario, spec, spent
from tests.support.pipeline import Pipeline

RECORDS = 12


def request_for(pipeline: Pipeline, job_key: str, attempt: int = 1) -> JobInput:
    return JobInput(tenant="acme", job_key=job_key, bucket=pipeline.objects.bucket, attempt=attempt)


def test_given_the_same_records_under_another_version_when_run_then_they_are_reused_and_cost_nothing(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec(shard_records=5))
    first = pipeline.run(films(RECORDS))
    paid = spent(pipeline.simulator.control)

    second = pipeline.run(films(RECORDS), version="v2")

    assert (second.job_key != first.job_key, second.state.value) == (True, "COMPLETED")
    assert (second.counts["succeeded"], second.counts["reused"], second.counts["submissions"]) == (RECORDS, RECORDS, 0)
    assert spent(pipeline.simulator.control) == paid
    assert pipeline.certificate(second).tokens == {}
    ours, theirs = results(pipeline.objects, second), results(pipeline.objects, first)
    assert [(row["business_key"], row["output"], row["provider_job_id"]) for row in ours] == [
        (row["business_key"], row["output"], row["provider_job_id"]) for row in theirs
    ]
    assert pipeline.verify(second).ok


def test_given_a_version_with_some_new_records_when_run_then_only_they_are_paid(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    pipeline.run(films(RECORDS))

    second = pipeline.run(films(RECORDS + 3), version="v2")

    assert (second.counts["succeeded"], second.counts["reused"]) == (RECORDS + 3, RECORDS)
    assert [entry.records for entry in pipeline.certificate(second).submissions] == [3]
    assert len(results(pipeline.objects, second)) == RECORDS + 3


def test_given_another_tenant_with_the_same_file_when_run_then_nothing_is_shared(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    pipeline.push_spec(spec(), tenant="umbrella")
    first = pipeline.run(films(RECORDS))

    second = pipeline.run(films(RECORDS), tenant="umbrella")

    assert second.job_key != first.job_key
    assert (second.counts["reused"], second.counts["succeeded"], spent(pipeline.simulator.control)[0]) == (
        0,
        RECORDS,
        2,
    )


def test_given_records_in_flight_for_another_job_when_run_then_it_waits_and_reuses_them(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    first = pipeline.drop(films(RECORDS))["job_key"]
    (item,) = pipeline.items(pipeline.plan(request_for(pipeline, first)))
    assert pipeline.submit(item).status == "submitted"

    second = pipeline.drop(films(RECORDS + 2), version="v2")["job_key"]
    request = request_for(pipeline, second)
    reply = pipeline.one_attempt(request)

    assert (reply.verdict, reply.next_attempt) == ("retry", 2)
    assert classes(pipeline.objects, pipeline.job(second))[key_of(1)] == ["waiting"]
    pipeline.run_shard(item)  # the first job's answers are accepted, long before it is sealed
    pipeline.wait(reply.wait_s)
    pipeline.work(request.model_copy(update={"attempt": 2}))
    job = pipeline.job(second)
    assert (job.state.value, job.counts["succeeded"], job.counts["reused"]) == ("COMPLETED", RECORDS + 2, RECORDS)
    assert [entry.records for entry in pipeline.certificate(job).submissions] == [2, 0]
    assert pipeline.verify(job).ok


def test_given_records_in_flight_that_fail_there_when_that_job_ends_then_this_one_tries_them(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_400", "contains": "Film-004."}])
    pipeline.push_spec(spec())
    first = pipeline.drop(films(RECORDS))["job_key"]
    (item,) = pipeline.items(pipeline.plan(request_for(pipeline, first)))
    pipeline.submit(item)
    second = pipeline.drop(films(RECORDS), version="v2")["job_key"]
    reply = pipeline.one_attempt(request_for(pipeline, second))
    pipeline.work(request_for(pipeline, first))
    assert pipeline.job(first).counts["failed"] == 1

    pipeline.wait(reply.wait_s)
    pipeline.work(request_for(pipeline, second, 2))

    job = pipeline.job(second)
    assert (job.state.value, job.counts["succeeded"], job.counts["reused"]) == ("COMPLETED", RECORDS, RECORDS - 1)
    assert classes(pipeline.objects, job)[key_of(4)] == ["waiting", "succeeded"]


def test_given_two_jobs_that_each_failed_a_record_of_the_other_when_they_go_on_then_neither_waits_for_the_other(
    pipeline: Pipeline,
) -> None:
    """Each shard is one record; each job claims its first, and finds its second with the other."""
    scenario(pipeline.simulator.control, records=[{"fault": "error_400"}])
    pipeline.push_spec(spec(shard_records=1))
    one = pipeline.drop(film(1) + b"\n" + film(2), version="v1")["job_key"]
    two = pipeline.drop(film(2) + b"\n" + film(1), version="v2")["job_key"]
    items = {key: pipeline.items(pipeline.plan(request_for(pipeline, key))) for key in (one, two)}
    for place in (0, 1):
        for key in (one, two):
            pipeline.submit(items[key][place])
    for key in (one, two):
        for item in items[key]:
            pipeline.run_shard(item)
        assert pipeline.reconcile(request_for(pipeline, key)).verdict == "retry"

    pipeline.work(request_for(pipeline, one, 2))
    pipeline.work(request_for(pipeline, two, 2))

    jobs = [pipeline.job(key) for key in (one, two)]
    assert [(job.state.value, job.attempt) for job in jobs] == [("COMPLETED", 2), ("COMPLETED", 2)]
    assert classes(pipeline.objects, jobs[0]) == {key_of(1): ["permanent"], key_of(2): ["waiting", "succeeded"]}
    assert classes(pipeline.objects, jobs[1]) == {key_of(2): ["permanent"], key_of(1): ["waiting", "succeeded"]}
    assert spent(pipeline.simulator.control)[0] == 4


def test_given_waiting_for_another_job_when_many_rounds_pass_then_no_try_is_used_up(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec(max_attempts=1))
    first = pipeline.drop(films(RECORDS))["job_key"]
    (item,) = pipeline.items(pipeline.plan(request_for(pipeline, first)))
    pipeline.submit(item)
    request = request_for(pipeline, pipeline.drop(films(RECORDS), version="v2")["job_key"])

    for attempt in range(1, 6):
        reply = pipeline.one_attempt(request.model_copy(update={"attempt": attempt}))
        assert reply.verdict == "retry"
        pipeline.wait(reply.wait_s)
    pipeline.work(request_for(pipeline, first))
    pipeline.work(request.model_copy(update={"attempt": 6}))

    job = pipeline.job(request.job_key)
    assert (job.state.value, job.counts["reused"], spent(pipeline.simulator.control)[0]) == ("COMPLETED", RECORDS, 1)


def test_given_a_job_that_failed_with_records_in_its_hands_when_another_runs_then_it_takes_them_over(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "status:401"}])
    pipeline.push_spec(spec())
    first = pipeline.run(films(RECORDS))
    assert first.state.value == "FAILED"

    second = pipeline.run(films(RECORDS), version="v2")

    assert (second.state.value, second.counts["succeeded"], second.counts["reused"]) == ("COMPLETED", RECORDS, 0)
    assert spent(pipeline.simulator.control)[0] == 1
