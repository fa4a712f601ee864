"""What can come back for one record, or not: the right outcome, nothing lost, and only what needs it is tried again."""

from __future__ import annotations

from tests.support.films import (
    classes,
    film,
    films,
    histories,
    key_of,
    lines,
    results,
    retry_records,
    scenario,
    spec,
)
from tests.support.pipeline import Pipeline

RECORDS = 20


def test_given_records_that_need_it_when_tried_again_then_the_shard_holds_them_alone_and_tells_where_they_come_from(
    pipeline: Pipeline,
) -> None:
    hits = {3: ("error_500", "server_error"), 8: ("missing", "missing"), 14: ("bad_schema", "unqualified")}
    rules = [{"fault": fault, "contains": f"Film-{number:03}."} for number, (fault, _) in hits.items()]
    scenario(pipeline.simulator.control, records=rules)
    pipeline.push_spec(spec(shard_records=5))

    job = pipeline.run(films(RECORDS))

    first_shards = {row[0].business_key: row[0].shard_id for row in histories(pipeline.objects, job).values()}
    again = retry_records(pipeline.objects, job, 2)
    assert [record.business_key for record in again] == [key_of(number) for number in hits]
    assert [record.retry_reason for record in again] == [reason for _, reason in hits.values()]
    for record in again:
        assert (record.tries, record.attempt, record.parent_job_key) == (1, 2, job.job_key)
        assert record.parent_shard_id == first_shards[record.business_key]
    assert len({record.parent_shard_id for record in again}) == 3
    assert job.attempt == 2
    submissions = [(entry.attempt, entry.records) for entry in pipeline.certificate(job).submissions]
    assert submissions == [(1, 5), (1, 5), (1, 5), (1, 5), (2, 3)]


def test_given_a_record_that_keeps_failing_when_retried_then_its_tries_are_counted_and_bounded(
    pipeline: Pipeline,
) -> None:
    scenario(
        pipeline.simulator.control,
        records=[
            {"fault": "error_500", "contains": "Film-002.", "times": "always"},
            {"fault": "error_500", "contains": "Film-004.", "times": 2},
        ],
    )
    pipeline.push_spec(spec(max_attempts=4))

    job = pipeline.run(films(5))

    told = histories(pipeline.objects, job)
    assert [row.tries for row in told[key_of(2)]] == [1, 2, 3, 4]
    assert [row.tries for row in told[key_of(4)]] == [1, 2, 3]
    assert (job.state.value, job.attempt, job.counts["failed"]) == ("COMPLETED", 4, 1)
    assert [record.tries for record in retry_records(pipeline.objects, job, 4)] == [3]


def test_given_unqualified_answers_that_are_not_retried_when_reconciled_then_they_fail_at_once(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "bad_json", "contains": "Film-002."}])
    pipeline.push_spec(spec(retry_unqualified="false"))

    job = pipeline.run(films(5))

    assert classes(pipeline.objects, job)[key_of(2)] == ["unqualified"]
    assert (job.state.value, job.attempt, job.counts["failed"]) == ("COMPLETED", 1, 1)


def test_given_an_id_that_nobody_asked_for_when_the_job_ends_then_it_is_partial_and_nothing_is_published(
    pipeline: Pipeline,
) -> None:
    scenario(
        pipeline.simulator.control,
        records=[
            {"fault": "unknown_id", "contains": "Film-003."},
            {"fault": "error_500", "contains": "Film-009."},
        ],
    )
    pipeline.push_spec(spec())

    job = pipeline.run(films(10))

    assert (job.state.value, job.counts["unknown"], job.counts["succeeded"]) == ("PARTIAL", 1, 10)
    assert pipeline.events.kinds() == ["JobStarted", "JobPartial"]
    assert not list(pipeline.objects.list("results/"))
    assert pipeline.objects.head(pipeline.keys(job).certificate) is None
    (kept,) = [info.key for info in pipeline.objects.list(f"quarantine/{job.tenant}/{job.job_key}/")]
    (stranger,) = lines(pipeline.objects.get(kept))
    assert stranger["custom_id"].startswith("unknown-")
    raw = next(info.key for info in pipeline.objects.list("jobs/") if "/1/" in info.key and "raw/output" in info.key)
    assert pipeline.objects.get(kept) in pipeline.objects.get(raw)


def test_given_two_ids_that_were_swapped_when_reconciled_then_no_record_is_lost_or_counted_twice(
    pipeline: Pipeline,
) -> None:
    """Nothing in the two lines tells that they are swapped: both answers are well formed."""
    scenario(pipeline.simulator.control, records=[{"fault": "swapped_id", "contains": "Film-003."}])
    pipeline.push_spec(spec())

    job = pipeline.run(films(10))

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", 10)
    assert set(classes(pipeline.objects, job)) == {key_of(number) for number in range(1, 11)}


def test_given_separators_inside_strings_when_published_then_they_are_still_there(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "u2028"}])
    pipeline.push_spec(spec())
    body = film(1).replace(b"Film-001.", "Film\u2028-\u0085001".encode()) + b"\n"

    job = pipeline.run(body)

    (row,) = results(pipeline.objects, job)
    assert "\u2028" in row["output"]["genre"]
    assert "\u0085" in row["output"]["genre"]
