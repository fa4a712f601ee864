"""A job that ended without completing: a new drop of its file goes on from there, and pays for nothing twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tallybatch.contracts import FailInput, JobInput
from tallybatch.domain.errors import Permanent
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.ports import Ledger
from tallybatch.steps import seal_job
from tests.support.films import classes, films, key_of, report, results, scenario, spec, tokens_of
from tests.support.hooked import Hooked
from tests.support.pipeline import Pipeline

RECORDS = 12


def execute(pipeline: Pipeline, name: str) -> None:
    """Run the execution that was started under this name."""
    pipeline.work(JobInput.model_validate(pipeline.executions.started[name]))


def creates(pipeline: Pipeline) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pipeline.simulator.control.journal()["creates"]
    return found


def test_given_a_job_that_failed_for_its_key_when_dropped_again_with_the_right_one_then_it_completes(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "status:401", "count": 2}])
    pipeline.push_spec(spec(shard_records=6))
    event = pipeline.upload(films(RECORDS))
    job_key = pipeline.build(event)["job_key"]
    execute(pipeline, f"{job_key}-1")
    assert pipeline.job(job_key).state.value == "FAILED"

    assert pipeline.build(event)["state"] == "FAILED"
    assert list(pipeline.executions.started) == [f"{job_key}-1"]
    assert pipeline.drop(films(RECORDS)) == {"job_key": job_key, "state": "VALIDATED"}
    execute(pipeline, f"{job_key}-2")

    job = pipeline.job(job_key)
    assert (job.state.value, job.reason, job.run) == ("COMPLETED", "", 2)
    assert len(results(pipeline.objects, job)) == RECORDS
    assert tokens_of(pipeline.certificate(job)) == pipeline.simulator.control.journal()["tokens_billed"]
    assert pipeline.verify(job).ok


def test_given_a_job_whose_deadline_passed_while_it_was_out_when_dropped_again_then_the_same_provider_job_is_read(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "get", "fault": "status:503", "count": "always"}])
    pipeline.push_spec(spec(deadline="30m"))
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    execute(pipeline, f"{job_key}-1")
    job = pipeline.job(job_key)
    assert (job.state.value, len(creates(pipeline))) == ("PARTIAL", 1)
    assert not list(pipeline.objects.list("results/"))

    pipeline.simulator.control.set_scenario("calm")
    pipeline.drop(films(RECORDS))
    execute(pipeline, f"{job_key}-2")

    job = pipeline.job(job_key)
    assert (job.state.value, job.counts["succeeded"], len(creates(pipeline))) == ("COMPLETED", RECORDS, 1)
    assert pipeline.verify(job).ok


def test_given_a_failed_job_whose_submission_is_out_when_another_needs_its_records_then_it_waits_and_pays_nothing(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    first = pipeline.drop(films(RECORDS))["job_key"]
    request = JobInput(tenant="acme", job_key=first, bucket="bucket")
    (item,) = pipeline.items(pipeline.plan(request))
    pipeline.submit(item)
    pipeline.fail(FailInput(tenant="acme", job_key=first, bucket="bucket", error={"Error": "States.Timeout"}))
    row = pipeline.ledger.submission(first, 1, item.shard_id)
    assert row is not None
    assert (pipeline.job(first).state.value, row.state) == ("FAILED", SubmissionState.SUBMITTED)

    second = pipeline.drop(films(RECORDS), version="v2")["job_key"]
    reply = pipeline.one_attempt(JobInput(tenant="acme", job_key=second, bucket="bucket"))
    assert classes(pipeline.objects, pipeline.job(second))[key_of(1)] == ["waiting"]
    pipeline.drop(films(RECORDS))
    execute(pipeline, f"{first}-2")
    pipeline.wait(reply.wait_s)
    pipeline.work(JobInput(tenant="acme", job_key=second, bucket="bucket", attempt=reply.next_attempt))

    assert (pipeline.job(first).state.value, pipeline.job(second).state.value) == ("COMPLETED", "COMPLETED")
    assert pipeline.job(second).counts["reused"] == RECORDS
    assert len(creates(pipeline)) == 1


def test_given_a_job_that_is_partial_for_a_strange_id_when_dropped_again_then_it_stays_so_and_pays_nothing(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "unknown_id", "contains": "Film-003."}])
    pipeline.push_spec(spec())
    job = pipeline.run(films(RECORDS))
    assert job.state.value == "PARTIAL"

    pipeline.drop(films(RECORDS))
    execute(pipeline, f"{job.job_key}-2")

    assert pipeline.job(job.job_key).state.value == "PARTIAL"
    assert (len(creates(pipeline)), list(pipeline.objects.list("results/"))) == (1, [])


def test_given_a_provider_that_was_down_until_the_deadline_when_dropped_again_then_the_job_goes_on_at_once(
    pipeline: Pipeline,
) -> None:
    """The next run begins with nothing to ask, for all had failed at the deadline: that nobody took it was long ago."""
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "status:503", "count": "always"}])
    pipeline.push_spec(spec(deadline="30m", shard_records=6))
    job = pipeline.run(films(RECORDS))
    assert (job.state.value, len(creates(pipeline))) == ("FAILED", 0)
    (step,) = [step for step in report(pipeline.objects, job)["next_steps"] if "deadline" in step]
    assert "Drop the file again" in step

    pipeline.simulator.control.set_scenario("calm")
    pipeline.drop(films(RECORDS))
    execute(pipeline, f"{job.job_key}-2")

    job = pipeline.job(job.job_key)
    assert (job.state.value, job.reason, len(creates(pipeline))) == ("COMPLETED", "", 2)
    assert len(results(pipeline.objects, job)) == RECORDS
    assert pipeline.verify(job).ok


def test_given_a_job_that_failed_after_it_was_sealed_when_proven_then_its_certificate_stands_and_it_goes_on(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report tells of the failure, and is no longer the one that was certified."""
    sealing = pipeline.seal_ports

    def broken() -> seal_job.Ports:
        def refuse(*_: Any, **__: Any) -> None:
            raise Permanent("the table is gone", where="here")

        ports = sealing()
        return replace(ports, ledger=cast("Ledger", Hooked(ports.ledger, put_job=refuse)))

    monkeypatch.setattr(pipeline, "seal_ports", broken)
    pipeline.push_spec(spec())
    job = pipeline.run(films(RECORDS))
    monkeypatch.undo()

    found = pipeline.verify(job)
    assert (job.state.value, report(pipeline.objects, job)["state"]) == ("FAILED", "FAILED")
    assert (found.difference, found.gone_on) == ("", True)
    assert len(results(pipeline.objects, job)) == RECORDS

    pipeline.wait(1)
    pipeline.drop(films(RECORDS))
    execute(pipeline, f"{job.job_key}-2")

    job = pipeline.job(job.job_key)
    assert (job.state.value, pipeline.verify(job).ok, pipeline.verify(job).gone_on) == ("COMPLETED", True, False)
    assert (len(creates(pipeline)), len(results(pipeline.objects, job))) == (1, RECORDS)
