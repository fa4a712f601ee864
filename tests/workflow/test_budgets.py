"""A tenant's month: a job whose worst case does not fit stops before its first call, and goes on with more money."""

from __future__ import annotations

import json

from msgspec.structs import replace

from tallybatch.contracts import JobInput
from tallybatch.domain.budgets import EACH, period_of
from tallybatch.domain.rows import Job
from tallybatch.steps.review_queue import queue_lines
from tests.support.films import films, results, scenario, spec, spent
from tests.support.pipeline import TENANT, Pipeline

TO_PEOPLE = spec(sections="review: {classes: [conflict]}")


def limit(pipeline: Pipeline, nano: int) -> None:
    assert pipeline.ledger.move_budget(replace(pipeline.ledger.budget(TENANT, EACH), limit=nano))


def month(pipeline: Pipeline, job: Job) -> tuple[int, int]:
    """Set aside and spent."""
    stored = pipeline.ledger.budget(TENANT, period_of(job.created_at))
    return stored.reserved, stored.spent


def test_given_a_budget_when_a_job_runs_then_its_worst_case_is_set_aside_and_only_its_bill_stays(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "bad_schema", "contains": "Film-003."}])
    limit(pipeline, 10**9)
    pipeline.push_spec(spec())
    job = pipeline.run(films(10))

    assert job.state.value == "COMPLETED"
    assert month(pipeline, job) == (0, pipeline.simulator.control.journal()["billed_nano_usd"])
    hold = pipeline.ledger.budget_hold(TENANT, period_of(job.created_at), job.job_key)
    assert hold is not None
    assert hold.closed
    assert hold.worst > hold.spent > 0


def test_given_too_little_money_when_a_job_begins_then_it_fails_with_the_figures_and_goes_on_once_there_is_more(
    pipeline: Pipeline,
) -> None:
    limit(pipeline, 1_000_000)
    pipeline.push_spec(spec())
    job = pipeline.run(films(10))

    assert job.state.value == "FAILED"
    assert f"tenant {TENANT}" in job.reason
    assert "US dollars more, and 0.001 are left" in job.reason
    assert f"`tallybatch budget set --tenant {TENANT} --month {period_of(job.created_at)} --usd N`" in job.reason
    assert f"`tallybatch resume {job.job_key[:12]}`" in job.reason
    assert spent(pipeline.simulator.control) == (0, 0)
    assert month(pipeline, job) == (0, 0)

    limit(pipeline, 10**9)
    again = pipeline.run(films(10))
    assert (again.job_key, again.state.value) == (job.job_key, "COMPLETED")
    assert month(pipeline, again)[0] == 0


def undecided(pipeline: Pipeline) -> Job:
    """A job with one record that waits for people, in a month that has no money left."""
    answered_twice = {"fault": "duplicate_different", "contains": "Film-003.", "times": "always"}
    scenario(pipeline.simulator.control, records=[answered_twice])
    pipeline.push_spec(TO_PEOPLE)
    job = pipeline.run(films(10))
    assert (job.state.value, job.counts["in_review"]) == ("PARTIAL", 1)
    limit(pipeline, month(pipeline, job)[1])
    return job


def decision(pipeline: Pipeline, job: Job, kind: str) -> bytes:
    (line,) = queue_lines(job, pipeline.keys(job), pipeline.objects)
    record_id = json.loads(line)["record_id"]
    return json.dumps({"record_id": record_id, "decision": kind, "reason": "no"}).encode() + b"\n"


def test_given_no_limit_when_a_job_runs_then_its_bill_counts_for_a_limit_that_is_set_later(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    first = pipeline.run(films(10))

    billed = pipeline.simulator.control.journal()["billed_nano_usd"]
    assert month(pipeline, first) == (0, billed)
    limit(pipeline, billed + 1_000_000)
    second = pipeline.run(films(10, first=100), version="v2")
    assert second.state.value == "FAILED"
    assert "and 0.001 are left" in second.reason
    assert pipeline.simulator.control.journal()["billed_nano_usd"] == billed


def test_given_a_job_at_work_when_the_limit_is_lowered_and_it_is_started_again_then_it_keeps_its_part(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    key = pipeline.drop(films(10))["job_key"]
    request = JobInput(tenant=TENANT, job_key=key, bucket="bucket")
    pipeline.admit(request)
    held = month(pipeline, pipeline.job(key))
    limit(pipeline, 0)

    pipeline.admit(request)

    assert month(pipeline, pipeline.job(key)) == held
    pipeline.execute(key)
    assert pipeline.job(key).state.value == "COMPLETED"


def test_given_no_money_left_when_a_part_is_to_be_published_then_it_is_for_that_costs_nothing(
    pipeline: Pipeline,
) -> None:
    job = undecided(pipeline)
    pipeline.resume(job.job_key, "publish_partial")
    job = pipeline.run_again(job.job_key)

    assert job.state.value == "PARTIAL"
    assert len(results(pipeline.objects, job)) == 9


def test_given_no_money_left_when_people_reject_the_last_record_then_the_job_completes(pipeline: Pipeline) -> None:
    job = undecided(pipeline)
    pipeline.hand_in(job, decision(pipeline, job, "reject"))

    assert pipeline.run_again(job.job_key).state.value == "COMPLETED"


def test_given_no_money_left_when_people_send_a_record_back_then_that_waits_for_money_and_is_not_forgotten(
    pipeline: Pipeline,
) -> None:
    job = undecided(pipeline)
    creates = len(pipeline.simulator.control.journal()["creates"])
    pipeline.hand_in(job, decision(pipeline, job, "requeue"))
    stopped = pipeline.run_again(job.job_key)

    assert stopped.state.value == "FAILED"
    assert "and 0 are left" in stopped.reason
    assert len(pipeline.simulator.control.journal()["creates"]) == creates

    limit(pipeline, 10**9)
    scenario(pipeline.simulator.control)
    pipeline.resume(job.job_key)
    job = pipeline.run_again(job.job_key)
    assert job.state.value == "COMPLETED"
    assert len(results(pipeline.objects, job)) == 10
    hold = pipeline.ledger.budget_hold(TENANT, period_of(job.created_at), job.job_key)
    assert hold is not None
    assert month(pipeline, job) == (0, hold.spent)


def test_given_one_job_that_holds_the_money_when_another_begins_then_it_waits_for_nobody_and_fails(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    limit(pipeline, 20_000_000)
    first = pipeline.drop(films(10))["job_key"]
    pipeline.admit(JobInput(tenant=TENANT, job_key=first, bucket="bucket"))
    second = pipeline.run(films(10, first=100), version="v2")

    assert second.state.value == "FAILED"
    assert "set aside for jobs" in second.reason
    assert pipeline.simulator.control.journal()["creates"] == []
    pipeline.execute(first)
    assert pipeline.job(first).state.value == "COMPLETED"


def test_given_a_job_that_was_lost_after_its_end_when_swept_then_its_part_is_given_back(pipeline: Pipeline) -> None:
    limit(pipeline, 10**9)
    pipeline.push_spec(spec())
    job = pipeline.run(films(5))
    period = period_of(job.created_at)
    hold = pipeline.ledger.budget_hold(TENANT, period, job.job_key)
    assert hold is not None
    stored = pipeline.ledger.budget(TENANT, period)
    leaked = replace(hold, reserved=500, closed=False)
    assert pipeline.ledger.move_budget(replace(stored, reserved=500), leaked)

    pipeline.sweep()

    assert month(pipeline, job) == (0, hold.spent)
    assert pipeline.ledger.budget_hold(TENANT, period, job.job_key) == replace(hold, updated_at=pipeline.clock.now())
