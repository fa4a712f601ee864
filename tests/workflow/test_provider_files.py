"""After a job is sealed its files at the provider are deleted, and what was deleted is on record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.domain.submitting import CREATE_TIMEOUT_S
from tallybatch.steps import cancel_job
from tests.support.films import films, scenario, spec
from tests.support.interrupted import InterruptedPipeline, Interrupter, Killed
from tests.support.orphans import create_behind_the_back
from tests.support.pipeline import RULES, Pipeline

DAY_S = 24 * 3600
RECORDS = 8
SETTLED_S = RULES.create_within_s + CREATE_TIMEOUT_S + RULES.settle_window_s
"""So long after its claim a create that was never heard of is taken for absent."""


def journal(pipeline: Pipeline) -> dict[str, Any]:
    return pipeline.simulator.control.journal()


def deleted_at_the_provider(pipeline: Pipeline) -> list[str]:
    return sorted(entry.get("file_id") or entry["job_id"] for entry in journal(pipeline)["deletes"])


def completed(pipeline: Pipeline) -> Job:
    pipeline.push_spec(spec(provider=pipeline.provider_name))
    job = pipeline.run(films(RECORDS))
    assert job.state is JobState.COMPLETED
    return job


def recorded(pipeline: Pipeline, job: Job) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(pipeline.objects.get(f"deletions/acme/{job.job_key}.json"))
    return document


@pytest.mark.parametrize(("provider", "result"), [("openai", "output"), ("gemini", "job")])
def test_given_a_sealed_job_when_a_day_has_passed_then_its_files_are_deleted_and_each_is_on_record(
    simulator: SimulatorServer, provider: str, result: str
) -> None:
    # GIVEN two attempts, so two submissions with a request file and a result file each
    pipeline = Pipeline(simulator, provider_name=provider)
    scenario(simulator.control, records=[{"fault": "error_500", "contains": "Film-003."}])
    job = completed(pipeline)
    # WHEN too early
    pipeline.wait(DAY_S - 600)
    assert pipeline.sweep().deleted_files == 0
    assert deleted_at_the_provider(pipeline) == []
    # WHEN due
    pipeline.wait(600)
    reply = pipeline.sweep()
    # THEN
    told = recorded(pipeline, job)
    assert (told["job_key"], told["provider"], told["certificate"]) == (job.job_key, provider, job.certificate)
    assert {file["outcome"] for file in told["files"]} == {"deleted"}
    uploads = {entry["file_id"] for entry in journal(pipeline)["uploads"]}
    assert {file["file"] for file in told["files"] if file["channel"] == "input"} == uploads
    assert {file["channel"] for file in told["files"]} == {"input", result} | (
        {"error"} if result == "output" else set()
    )
    rows = pipeline.ledger.submissions(job.job_key)
    assert {file["submission_key"] for file in told["files"]} == {row.submission_key for row in rows}
    assert len(rows) == 2
    assert sorted(file["file"] for file in told["files"]) == deleted_at_the_provider(pipeline)
    assert reply.deleted_files == len(told["files"]) >= 4
    assert all(file["at"] >= job.updated_at + DAY_S for file in told["files"])
    assert pipeline.job(job.job_key).deletions == pipeline.objects.uri(f"deletions/acme/{job.job_key}.json")
    assert pipeline.verify(job).ok
    assert pipeline.sweep().deleted_files == 0
    assert pipeline.job(job.job_key).updated_at == job.updated_at


def test_given_a_duplicate_that_was_harvested_when_due_then_its_results_are_deleted_too(pipeline: Pipeline) -> None:
    scenario(
        pipeline.simulator.control,
        calls=[{"on": "create", "fault": "lost_reply"}],
        jobs=[{"fault": f"invisible_in_list_for_s:{SETTLED_S + 60}"}],
        durations={"validating": 1, "in_progress": 60, "finalizing": 1},
    )
    job = completed(pipeline)
    (row,) = pipeline.ledger.submissions(job.job_key)
    creates = {entry["job_id"] for entry in journal(pipeline)["creates"]}
    assert (row.generation, len(row.ghosts)) == (2, 1)
    pipeline.wait(DAY_S)

    pipeline.sweep()

    files = recorded(pipeline, job)["files"]
    assert len(creates) == 2
    assert {file["file"] for file in files if file["channel"] == "input"} == {
        entry["file_id"] for entry in journal(pipeline)["uploads"]
    }
    assert {file["provider_job_id"] for file in files if file["channel"] == "output"} == creates
    assert {file["outcome"] for file in files} == {"deleted"}


@pytest.mark.parametrize("fault", ["cancelled", "failed"])
def test_given_a_job_without_a_certificate_when_swept_then_its_files_stay(pipeline: Pipeline, fault: str) -> None:
    faults = {"failed": [{"on": "create", "count": "always", "fault": "status:401"}], "cancelled": []}[fault]
    scenario(pipeline.simulator.control, calls=faults)
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    if fault == "cancelled":
        cancel_job.run(job_key, pipeline.ledger, pipeline.clock)
    pipeline.execute(job_key)
    assert pipeline.job(job_key).state.value == fault.upper()
    pipeline.wait(2 * DAY_S)
    assert pipeline.sweep().deleted_files == 0
    assert deleted_at_the_provider(pipeline) == []
    assert pipeline.job(job_key).provider_files_deleted_at == 0


def test_given_a_stack_that_keeps_files_when_swept_then_they_stay(pipeline: Pipeline) -> None:
    job = completed(pipeline)
    pipeline.keep_files_s = -1
    pipeline.wait(30 * DAY_S)
    assert pipeline.sweep(lookback_hours=2000).deleted_files == 0
    assert pipeline.job(job.job_key).provider_files_deleted_at == 0


def test_given_files_of_an_orphan_when_swept_then_they_are_nobodys_to_delete(pipeline: Pipeline) -> None:
    create_behind_the_back(pipeline.simulator.openai_base_url, "ab" * 32)
    pipeline.wait(2 * DAY_S)
    assert (len(pipeline.sweep().orphans), deleted_at_the_provider(pipeline)) == (1, [])


def test_given_a_provider_that_does_not_answer_when_due_then_nothing_is_recorded_until_it_does(
    pipeline: Pipeline,
) -> None:
    job = completed(pipeline)
    pipeline.wait(DAY_S)
    scenario(pipeline.simulator.control, calls=[{"on": "delete", "count": 1, "fault": "status:503"}])

    reply = pipeline.sweep()

    assert [gap.provider for gap in reply.gaps] == ["openai"]
    assert pipeline.objects.head(f"deletions/acme/{job.job_key}.json") is None
    assert pipeline.sweep().deleted_files == 2
    assert {file["outcome"] for file in recorded(pipeline, job)["files"]} == {"deleted"}


def test_given_a_provider_that_refuses_when_due_then_that_is_on_record_and_not_tried_for_ever(
    pipeline: Pipeline,
) -> None:
    job = completed(pipeline)
    pipeline.wait(DAY_S)
    scenario(pipeline.simulator.control, calls=[{"on": "delete", "count": 1, "fault": "status:403"}])

    assert pipeline.sweep().deleted_files == 1

    refused, deleted = recorded(pipeline, job)["files"]
    assert (refused["outcome"], refused["channel"], deleted["outcome"]) == ("refused", "output", "deleted")
    assert "403" in refused["why"]
    assert pipeline.sweep().deleted_files == 0


def test_given_a_job_at_bedrock_when_due_then_there_is_nothing_to_delete_and_nothing_is_claimed(
    simulator: SimulatorServer,
) -> None:
    pipeline = Pipeline(simulator, provider_name="bedrock")
    scenario(simulator.control, limits={"min_records": 1})
    job = completed(pipeline)
    pipeline.wait(DAY_S)
    assert pipeline.sweep().deleted_files == 0
    row = pipeline.job(job.job_key)
    assert (bool(row.provider_files_deleted_at), row.deletions) == (True, "")
    assert list(pipeline.objects.list("deletions/")) == []
    assert pipeline.verify(job).ok


def test_given_the_sweep_dies_at_any_call_when_swept_again_then_all_is_deleted_and_on_record(
    simulator: SimulatorServer,
) -> None:
    def due(interrupter: Interrupter) -> tuple[InterruptedPipeline, Job]:
        simulator.control.set_scenario("calm")
        simulator.control.reset()
        pipeline = InterruptedPipeline(simulator)
        pipeline.interrupter = Interrupter()
        job = completed(pipeline)
        pipeline.wait(DAY_S)
        pipeline.interrupt(interrupter)
        return pipeline, job

    whole = Interrupter()
    pipeline, job = due(whole)
    with whole.armed():
        pipeline.sweep()
    expected = {file["channel"] for file in recorded(pipeline, job)["files"]}
    points = whole.points()
    assert sum(whole.calls[number].endswith("delete_file") for number, _ in points) >= 4
    for point in points:
        interrupter = Interrupter(point)
        pipeline, job = due(interrupter)
        with pytest.raises(Killed), interrupter.armed():
            pipeline.sweep()
        pipeline.sweep()
        files = recorded(pipeline, job)["files"]
        assert {file["channel"] for file in files} == expected, interrupter.struck
        assert {file["outcome"] for file in files} <= {"deleted", "absent"}, interrupter.struck
        assert len(deleted_at_the_provider(pipeline)) == len(files), interrupter.struck
        assert pipeline.job(job.job_key).provider_files_deleted_at
        assert pipeline.verify(job).ok
