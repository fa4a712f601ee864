"""Doing it again changes nothing: events, drops, jobs that share records, and every step after its job has closed."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from tallybatch.contracts import JobInput, PublishItem, S3Event
from tallybatch.domain.errors import NotClosed, Permanent
from tallybatch.domain.rows import Job
from tallybatch.steps import publish_shard
from tests.support.films import bytes_of, classes, current, films, key_of, results, scenario, spec, spent
from tests.support.pipeline import Pipeline

RECORDS = 12


def request_for(pipeline: Pipeline, job_key: str, attempt: int = 1) -> JobInput:
    return JobInput(tenant="acme", job_key=job_key, bucket=pipeline.objects.bucket, attempt=attempt)


def publish_items(pipeline: Pipeline, job: Job) -> list[PublishItem]:
    return pipeline.publish_items(pipeline.reconcile(request_for(pipeline, job.job_key, job.attempt)))


def test_given_one_event_three_times_in_parallel_when_built_then_there_is_one_job(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec(shard_records=5))
    event = pipeline.upload(films(RECORDS))
    barrier = threading.Barrier(3)
    replies: list[dict[str, Any]] = []

    def deliver() -> None:
        barrier.wait()
        replies.append(pipeline.build(event))

    threads = [threading.Thread(target=deliver) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert len(replies) == 3
    (job_key,) = {reply["job_key"] for reply in replies}
    assert [job.job_key for job in pipeline.ledger.jobs()] == [job_key]
    assert len(pipeline.executions.started) == 1
    manifests = [info.key for info in pipeline.objects.list("jobs/") if info.key.endswith("manifest.json")]
    assert len(manifests) == 1
    pipeline.execute(job_key)
    assert (pipeline.job(job_key).state.value, spent(pipeline.simulator.control)[0]) == ("COMPLETED", 3)


def test_given_an_event_that_comes_late_when_the_job_is_under_way_then_nothing_moves_back(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    event = pipeline.upload(films(RECORDS))
    job_key = pipeline.build(event)["job_key"]
    pipeline.one_attempt(request_for(pipeline, job_key))
    before, stored = pipeline.job(job_key), bytes_of(pipeline.objects)

    pipeline.build(event)

    assert (pipeline.job(job_key), len(pipeline.executions.started)) == (before, 1)
    assert bytes_of(pipeline.objects) == stored


def test_given_an_event_of_an_object_that_was_replaced_when_built_then_only_the_new_one_becomes_a_job(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    old = pipeline.upload(films(3))
    new = pipeline.upload(films(4))

    assert "ignored" in pipeline.build(
        S3Event(
            detail=old.detail.model_copy(update={"object": old.detail.object.model_copy(update={"version_id": ""})})
        )
    )
    job = pipeline.job(pipeline.build(new)["job_key"])

    assert job.expected == 4
    assert len(list(pipeline.ledger.jobs())) == 1


@pytest.mark.parametrize(
    "key",
    [
        "jobs/acme/abc/manifest.json", "results/acme/genre/v1/current.json", "quarantine/acme/abc/bad_lines.jsonl",
        "specs/acme/genre.yaml", "inbox/acme/genre/v1/", "golden/acme/a.jsonl",
    ],
)  # fmt: skip
def test_given_a_write_of_the_pipeline_when_its_event_comes_then_it_is_ignored(pipeline: Pipeline, key: str) -> None:
    pipeline.objects.put(key, films(1))
    stored = bytes_of(pipeline.objects)

    reply = pipeline.build(S3Event.model_validate({"detail": {"bucket": {"name": "bucket"}, "object": {"key": key}}}))

    assert set(reply) == {"ignored"}
    assert bytes_of(pipeline.objects) == stored
    assert list(pipeline.ledger.jobs()) == []


def test_given_a_completed_job_when_the_same_file_is_dropped_again_then_nothing_is_done_or_spent(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    job = pipeline.run(films(RECORDS))
    before, stored, paid = pipeline.job(job.job_key), bytes_of(pipeline.objects), spent(pipeline.simulator.control)

    again = pipeline.run(films(RECORDS))

    at = again.dropped_at
    assert again == replace(
        before, drop=again.drop, dropped_at=at, places=dict.fromkeys(before.places, at), version=again.version
    )
    assert again.drop != before.drop
    left = bytes_of(pipeline.objects)
    assert {key for key in left if left[key] != stored.get(key)} <= {"results/acme/genre/v1/current.json"}
    assert spent(pipeline.simulator.control) == paid
    assert len(pipeline.executions.started) == 1


def test_given_the_same_content_under_another_name_when_dropped_then_it_is_the_same_job(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    job = pipeline.run(films(RECORDS))

    again = pipeline.run(films(RECORDS), name="copy of films.jsonl")

    assert again.job_key == job.job_key
    assert len(pipeline.executions.started) == 1


def test_given_a_closed_job_when_every_step_runs_again_then_no_byte_changes(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_500", "contains": "Film-003."}])
    pipeline.push_spec(spec(shard_records=5))
    event = pipeline.upload(films(RECORDS))
    job_key = pipeline.build(event)["job_key"]
    pipeline.execute(job_key)
    job, stored, paid = pipeline.job(job_key), bytes_of(pipeline.objects), spent(pipeline.simulator.control)
    submissions = pipeline.ledger.submissions(job_key)

    pipeline.wait(5000)
    pipeline.build(event)
    for attempt in (1, 2):
        request = request_for(pipeline, job_key, attempt)
        for item in pipeline.items(pipeline.plan(request)):
            assert pipeline.submit(item).status == "submitted"
            assert pipeline.poll(item).status == "terminal"
            pipeline.collect(item)
            pipeline.reconcile_shard(item)
        reply = pipeline.reconcile(request)
        assert reply.verdict == ("retry" if attempt == 1 else "closed")
    for published in pipeline.publish_items(reply):
        publish_shard.run(published, pipeline.objects)
    pipeline.seal(request)

    assert bytes_of(pipeline.objects) == stored
    assert (pipeline.job(job_key), pipeline.ledger.submissions(job_key), spent(pipeline.simulator.control)) == (
        job,
        submissions,
        paid,
    )
    assert pipeline.verify(job).ok


def test_given_a_shard_that_is_still_out_when_reconciled_then_it_is_refused(pipeline: Pipeline) -> None:
    """Its records would be taken for missing, and paid again."""
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    (item,) = pipeline.items(pipeline.plan(request_for(pipeline, job_key)))
    pipeline.submit(item)

    with pytest.raises(Permanent, match="still out"):
        pipeline.reconcile_shard(item)

    pipeline.run_shard(item)
    assert classes(pipeline.objects, pipeline.job(job_key))[key_of(1)] == ["succeeded"]


def test_given_a_job_that_is_not_closed_when_published_then_it_is_refused(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "unknown_id", "contains": "Film-003."}])
    pipeline.push_spec(spec())
    job = pipeline.run(films(RECORDS))
    stored = bytes_of(pipeline.objects)

    for item in publish_items(pipeline, job):
        with pytest.raises(NotClosed, match="unknown 1"):
            publish_shard.run(item, pipeline.objects)

    assert bytes_of(pipeline.objects) == stored
    assert pipeline.seal(request_for(pipeline, job.job_key)).state == "PARTIAL"
    assert bytes_of(pipeline.objects) == stored


def test_given_a_newer_state_of_a_file_when_the_older_job_seals_last_then_readers_keep_the_newer(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    older = pipeline.drop(films(RECORDS))["job_key"]
    request = request_for(pipeline, older)
    reply = pipeline.one_attempt(request)
    for item in pipeline.publish_items(reply):
        publish_shard.run(item, pipeline.objects)
    pipeline.wait(60)
    newer = pipeline.run(films(RECORDS - 2))
    assert newer.state.value == "COMPLETED"
    shown = current(pipeline.objects, newer)

    pipeline.seal(request)

    assert pipeline.job(older).state.value == "COMPLETED"
    assert current(pipeline.objects, newer) == shown
    (entry,) = shown["sources"].values()
    assert entry["job_key"] == newer.job_key
    assert pipeline.verify(pipeline.job(older)).ok


def test_given_two_files_in_one_version_when_both_are_sealed_then_readers_see_both(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())

    first = pipeline.run(films(5), name="a.jsonl")
    pipeline.run(films(7, first=6), name="b.jsonl")

    sources = current(pipeline.objects, first)["sources"]
    assert [key.rsplit("/", 1)[1] for key in sources] == ["a.jsonl", "b.jsonl"]
    assert [source["counts"]["expected"] for source in sources.values()] == [5, 7]
    assert [row["business_key"] for row in results(pipeline.objects, first)] == [key_of(n) for n in range(1, 13)]


def test_given_jobs_that_seal_at_once_when_they_race_then_none_is_lost(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    requests = []
    for number in range(4):
        job_key = pipeline.drop(films(2, first=1 + 2 * number), name=f"{number}.jsonl")["job_key"]
        request = request_for(pipeline, job_key)
        for item in pipeline.publish_items(pipeline.one_attempt(request)):
            publish_shard.run(item, pipeline.objects)
        requests.append(request)
    barrier = threading.Barrier(len(requests))

    def seal(request: JobInput) -> None:
        barrier.wait()
        pipeline.seal(request)

    threads = [threading.Thread(target=seal, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    job = pipeline.job(requests[0].job_key)
    assert len(current(pipeline.objects, job)["sources"]) == 4
    assert len(results(pipeline.objects, job)) == 8


def test_given_keys_that_need_care_when_dropped_then_each_is_one_job(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    names = ["a b+c.jsonl", "100%.jsonl", "%2F.jsonl", "фильмы.jsonl", "e\u0301té.jsonl"]

    for number, name in enumerate(names):
        job = pipeline.run(films(1, first=1 + number), name=name, version="v 1+2%")
        assert (job.state.value, json.dumps(job.source_uri)) == (
            "COMPLETED",
            json.dumps(f"s3://bucket/inbox/acme/genre/v 1+2%/{name}"),
        )

    assert len(current(pipeline.objects, job)["sources"]) == len(names)
