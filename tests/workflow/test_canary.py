"""Canary and waves: what is tried first decides about the rest, and a bad prompt costs the canary alone."""

from __future__ import annotations

import json

import pytest

from tallybatch.contracts import JobInput
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tests.support.canaries import (
    CANARY,
    RECORDS,
    assert_completed_and_paid_once,
    billed,
    canary_spec,
    creates,
    document,
    drop_again,
    run,
    tokens_of_canary,
)
from tests.support.films import classes, films, key_of, report, results, scenario
from tests.support.pipeline import Pipeline


def test_given_a_passing_canary_when_the_job_runs_then_the_rest_follows_and_every_record_is_sent_once(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, canary_spec())

    assert_completed_and_paid_once(pipeline, job)
    assert creates(pipeline) == [CANARY, 10, 10, 10, 10, 10]
    assert set(map(len, classes(pipeline.objects, job).values())) == {1}
    told = document(pipeline, job)
    assert (told["judgement"], told["records"], told["held"]) == ("passed", CANARY, RECORDS - CANARY)
    assert (told["acceptance"], told["min_acceptance"]) == (1.0, 0.8)
    assert pipeline.events.kinds() == ["JobStarted", "JobCompleted"]


def test_given_a_passing_canary_when_it_is_judged_then_the_forecast_follows_from_its_own_bill(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, canary_spec())

    told = document(pipeline, job)
    assert sum(told["tokens"].values()) > 0
    assert {kind: count * RECORDS // CANARY for kind, count in told["tokens"].items()} == told["forecast"]["tokens"]
    real = billed(pipeline)
    assert told["forecast"]["tokens"]["input"] == pytest.approx(real["input"], rel=0.05)
    assert told["forecast"]["seconds"] > 0
    certified = pipeline.certificate(job).cost_usd
    assert certified is not None
    assert float(told["forecast"]["cost_usd"]) == pytest.approx(float(certified), rel=0.05)
    assert float(told["cost_usd"]) == pytest.approx(float(certified) * CANARY / RECORDS, rel=0.05)


def test_given_a_prompt_that_yields_nothing_when_the_canary_fails_then_only_the_canary_was_paid(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "bad_schema", "times": "always"}])
    job = run(pipeline, canary_spec())

    assert job.state is JobState.FAILED
    assert "the canary failed: 0 of 10 records accepted (0.0%), 80.0% needed; 10 unqualified" in job.reason
    assert creates(pipeline) == [CANARY]
    assert tokens_of_canary(pipeline, job) == billed(pipeline)
    assert not list(pipeline.objects.list("results/"))
    assert pipeline.events.kinds() == ["JobStarted", "JobFailed"]
    told = report(pipeline.objects, job)
    assert (told["state"], told["counts"]["missing"], told["open"]) == ("FAILED", 0, RECORDS)


def test_given_a_failed_canary_when_the_prompt_is_mended_then_a_new_job_with_its_own_canary_completes(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "bad_schema", "contains": "badly", "times": "always"}])
    failed = run(pipeline, canary_spec(system="You label films badly."))
    assert failed.state is JobState.FAILED

    job = run(pipeline, canary_spec(prompt_version="genre-v2"))

    assert job.job_key != failed.job_key
    assert job.state is JobState.COMPLETED
    assert creates(pipeline)[:2] == [CANARY, CANARY]
    assert len(results(pipeline.objects, job)) == RECORDS


def test_given_a_failed_canary_when_the_same_file_is_dropped_again_then_only_its_open_records_are_asked_again(
    pipeline: Pipeline,
) -> None:
    """Each record's first answer is bad, so that the second try of the canary passes."""
    scenario(pipeline.simulator.control, records=[{"fault": "bad_schema", "times": 1}])
    failed = run(pipeline, canary_spec(max_attempts=3))
    assert (failed.state, creates(pipeline)) == (JobState.FAILED, [CANARY])
    scenario(pipeline.simulator.control)

    job = drop_again(pipeline, failed)

    assert job.state is JobState.COMPLETED
    assert creates(pipeline) == [CANARY, CANARY, 10, 10, 10, 10, 10]
    assert document(pipeline, job, 2)["judgement"] == "passed"
    assert pipeline.verify(job).ok


def test_given_a_gate_that_was_too_strict_when_it_is_lowered_and_the_file_dropped_again_then_the_same_job_goes_on(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_400", "rate": 0.2, "times": "always"}])
    failed = run(pipeline, canary_spec("records: 20, min_acceptance: 1.0"))
    assert (failed.state, creates(pipeline)) == (JobState.FAILED, [10, 10])
    pipeline.push_spec(canary_spec("records: 20, min_acceptance: 0.5"))

    job = drop_again(pipeline, failed)

    assert (job.state, creates(pipeline)) == (JobState.COMPLETED, [10, 10, 10, 10, 10, 10])
    told = document(pipeline, job, 2)
    assert (told["judgement"], told["min_acceptance"]) == ("passed", 0.5)
    assert pipeline.verify(job).ok


def test_given_a_canary_that_the_provider_left_unanswered_when_judged_then_it_is_asked_again_first(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, jobs=[{"fault": "expire", "nth": 1, "done": 0.3}])
    job = run(pipeline, canary_spec())

    assert_completed_and_paid_once(pipeline, job)
    assert document(pipeline, job, 1)["judgement"] == "undecided"
    assert document(pipeline, job, 2)["judgement"] == "passed"
    assert creates(pipeline)[:2] == [CANARY, 7]


def test_given_failures_within_the_gate_when_the_canary_passes_then_its_open_records_join_the_first_wave(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_500", "rate": 0.12}])
    job = run(pipeline, canary_spec("records: 30, min_acceptance: 0.5"))

    assert_completed_and_paid_once(pipeline, job)
    first = document(pipeline, job)
    assert first["judgement"] == "passed"
    assert 0 < first["counts"]["unanswered"] < 15
    assert creates(pipeline)[1] == 10


@pytest.mark.parametrize(("count", "least"), [(CANARY, 1), (CANARY - 1, 1), (30, 21)])
def test_given_a_canary_as_large_as_the_job_when_it_runs_then_it_is_just_the_job(
    pipeline: Pipeline, count: int, least: int
) -> None:
    pipeline.min_records = {"openai": least}
    job = run(pipeline, canary_spec(shard_records=100), count)

    assert_completed_and_paid_once(pipeline, job, count)
    assert creates(pipeline) == [count]
    assert pipeline.objects.head(pipeline.keys(job).canary(1)) is None


def test_given_a_provider_with_a_minimum_when_the_canary_is_smaller_then_it_is_raised_to_it(pipeline: Pipeline) -> None:
    pipeline.min_records = {"openai": 20}
    job = run(pipeline, canary_spec(shard_records=20))

    assert_completed_and_paid_once(pipeline, job)
    assert creates(pipeline) == [20, 20, 20]


# Waves


def waves(pipeline: Pipeline, job: Job) -> list[int]:
    names = [info.key for info in pipeline.objects.list(pipeline.keys(job).attempt(2)) if "/shards-" in info.key]
    return [len(json.loads(pipeline.objects.get(name))) for name in sorted(names, key=lambda n: int(n.split("-")[-2]))]


def test_given_many_shards_when_the_canary_has_passed_then_they_go_one_then_four_then_all_that_are_left(
    pipeline: Pipeline,
) -> None:
    text = canary_spec(shard_records=2).replace("{max_records: 2}", "{max_records: 2, max_parallel: 16}")
    job = run(pipeline, text)

    assert_completed_and_paid_once(pipeline, job)
    assert waves(pipeline, job) == [1, 4, 20]


def test_given_a_first_shard_that_fails_wholesale_when_the_next_wave_is_planned_then_one_shard_was_the_price(
    pipeline: Pipeline,
) -> None:
    """What was good for the canary is no good any more: a model that changed under its name."""
    pipeline.push_spec(canary_spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    assert pipeline.one_attempt(request).verdict == "canary"
    scenario(pipeline.simulator.control, records=[{"fault": "bad_schema", "times": "always"}])

    pipeline.work(request)

    job = pipeline.job(job_key)
    assert job.state is JobState.FAILED
    assert "the first 1 of the job's shards had 0 of 10 records accepted" in job.reason
    assert creates(pipeline) == [CANARY, 10]

    scenario(pipeline.simulator.control)
    again = drop_again(pipeline, job)
    assert again.state is JobState.COMPLETED
    assert creates(pipeline)[2] == 10
    assert pipeline.verify(again).ok


def test_given_a_first_shard_that_was_never_answered_when_the_next_wave_is_planned_then_it_goes_on(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, jobs=[{"fault": "expire", "nth": 2, "done": 0}])
    job = run(pipeline, canary_spec())

    assert_completed_and_paid_once(pipeline, job)


# The sample


def test_given_declared_strata_when_the_canary_is_drawn_then_the_rare_one_is_in_it(pipeline: Pipeline) -> None:
    lines = b"".join(
        json.dumps({"id": key_of(n), "title": f"Film-{n:03}.", "kind": "rare" if n == 17 else "usual"}).encode() + b"\n"
        for n in range(1, RECORDS + 1)
    )
    text = canary_spec(f"records: {CANARY}, strata: [kind]").replace("fields: [title]", "fields: [title, kind]")
    pipeline.push_spec(text)
    job = pipeline.run(lines)

    assert job.state is JobState.COMPLETED
    strata = document(pipeline, job, name="sample.json")
    assert sum(row["records"] for row in strata) == RECORDS
    assert sum(row["taken"] for row in strata) == CANARY
    rare = [row for row in strata if row["stratum"].startswith('kind="rare"')]
    assert [(row["records"], row["taken"]) for row in rare] == [(1, 1)]
