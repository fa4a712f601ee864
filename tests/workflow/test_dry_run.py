"""Dry run: prepare and validate, say what the job would take, and leave everything else for a drop in earnest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tallybatch.contracts import JobInput
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.rows import Job
from tallybatch.steps.dropped_file import DRY_RUN
from tests.support.films import films, results, scenario, spec, spent
from tests.support.pipeline import Pipeline

RECORDS = 25


def dry(pipeline: Pipeline, count: int = RECORDS) -> dict[str, Any]:
    return pipeline.build(pipeline.upload(films(count), intent=DRY_RUN))


def plan(pipeline: Pipeline, job_key: str) -> Any:
    return json.loads(pipeline.objects.get(pipeline.keys(pipeline.job(job_key)).plan))


def manifest(pipeline: Pipeline, job: Job) -> Manifest:
    return Manifest.model_validate_json(pipeline.objects.get(pipeline.keys(job).manifest))


def execute(pipeline: Pipeline, job_key: str) -> None:
    pipeline.work(JobInput.model_validate(pipeline.executions.started[pipeline.job(job_key).execution_name]))


def test_given_a_dry_run_when_the_file_is_dropped_then_it_is_planned_and_nothing_else_happens(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec(shard_records=10))

    reply = dry(pipeline)

    job = pipeline.job(reply["job_key"])
    assert reply == {"job_key": job.job_key, "state": "VALIDATED", "dry_run": True}
    assert (job.state, job.dry_run, job.expected) == (JobState.VALIDATED, True, RECORDS)
    told = plan(pipeline, job.job_key)
    assert (told["records"], told["shards"], told["provider_jobs"], told["canary_records"]) == (RECORDS, 3, 3, 0)
    assert (told["waves"], told["price"]) == ([3], "batch@2026-10-14")
    assert told["worst_case_output_tokens"] == RECORDS * 400 * 3
    assert 0 < told["estimated_input_tokens"] * 3 <= told["worst_case_input_tokens"]
    assert 0 < float(told["cost_low_usd"]) < float(told["cost_high_usd"]) < 0.1
    assert 0 < told["history_events"]["job"] < told["history_events"]["shard"] < 25_000
    assert spent(pipeline.simulator.control) == (0, 0)
    assert (pipeline.executions.started, pipeline.events.published) == ({}, [])
    assert pipeline.ledger.records([f"{n}" for n in range(3)]) == {}
    assert pipeline.ledger.pinned("PROMPT", "acme#genre#genre-v1") == ""


def test_given_a_dry_run_when_time_passes_and_it_is_swept_then_nobody_starts_it(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    dry(pipeline)
    pipeline.wait(100_000)

    assert pipeline.sweep(lookback_hours=1000).restarted == []
    assert pipeline.executions.started == {}


def test_given_a_dry_run_when_the_file_is_dropped_in_earnest_then_the_job_starts_and_completes(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    job_key = dry(pipeline)["job_key"]
    pipeline.wait(3600)

    assert pipeline.drop(films(RECORDS)) == {"job_key": job_key, "state": "VALIDATED"}
    execute(pipeline, job_key)

    job = pipeline.job(job_key)
    assert (job.state, job.dry_run) == (JobState.COMPLETED, False)
    assert job.deadline_at == job.created_at + 48 * 3600
    assert len(results(pipeline.objects, job)) == RECORDS
    assert pipeline.verify(job).ok


def test_given_a_spec_that_was_mended_after_the_dry_run_when_dropped_in_earnest_then_the_mended_one_counts(
    pipeline: Pipeline,
) -> None:
    """Only keys that shape no answer: the job's key stays."""
    pipeline.push_spec(spec(shard_records=10))
    job_key = dry(pipeline)["job_key"]
    pipeline.push_spec(spec(shard_records=10, max_attempts=1) + "canary: {records: 5}\n")

    assert pipeline.drop(films(RECORDS))["job_key"] == job_key
    execute(pipeline, job_key)

    job = pipeline.job(job_key)
    assert job.state is JobState.COMPLETED
    assert b"max_attempts: 1" in pipeline.objects.get(pipeline.keys(job).spec)
    assert plan(pipeline, job_key)["canary_records"] == 5
    assert len(pipeline.simulator.control.journal()["creates"]) == 3


def test_given_a_prompt_that_is_changed_after_the_dry_run_when_dropped_then_its_label_is_still_free(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    dry(pipeline)
    pipeline.push_spec(spec(system="You label films well."))

    assert pipeline.drop(films(RECORDS))["state"] == "VALIDATED"


def test_given_a_job_that_is_under_way_when_its_file_is_dropped_dry_then_it_is_left_alone(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    job = pipeline.run(films(RECORDS))
    before = spent(pipeline.simulator.control)

    assert dry(pipeline) == {"job_key": job.job_key, "state": "COMPLETED"}

    assert pipeline.job(job.job_key) == job
    assert pipeline.verify(job).ok
    assert spent(pipeline.simulator.control) == before


def test_given_a_failed_job_when_its_file_is_dropped_dry_then_it_is_not_started_again(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "status:401", "count": "always"}])
    pipeline.push_spec(spec())
    job = pipeline.run(films(RECORDS))
    assert job.state is JobState.FAILED

    assert dry(pipeline)["state"] == "FAILED"

    assert len(pipeline.executions.started) == 1


def test_given_an_earnest_drop_that_dies_before_the_start_when_its_event_comes_again_then_the_job_starts(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.push_spec(spec())
    job_key = dry(pipeline)["job_key"]
    event = pipeline.upload(films(RECORDS))
    monkeypatch.setattr(pipeline.executions, "start", _dies)
    with pytest.raises(OSError, match="killed"):
        pipeline.build(event)
    monkeypatch.undo()

    assert pipeline.build(event) == {"job_key": job_key, "state": "VALIDATED"}
    execute(pipeline, job_key)

    assert pipeline.job(job_key).state is JobState.COMPLETED


def _dies(*_: object) -> bool:
    raise OSError("killed")


def test_given_bad_lines_when_dropped_dry_then_they_are_named_as_ever(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    event = pipeline.upload(films(3) + b"[]\n", intent=DRY_RUN)

    assert pipeline.build(event)["state"] == "FAILED"
    assert pipeline.events.kinds() == ["JobFailed"]


def test_given_the_same_dry_run_twice_when_built_then_it_is_one_job(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())

    assert dry(pipeline) == dry(pipeline)
