"""A tenant's month: a job whose worst case does not fit stops before its first call, and goes on with more money."""

from __future__ import annotations

from msgspec.structs import replace

from tallybatch.domain.budgets import EACH, period_of
from tallybatch.domain.rows import Job
from tests.support.films import films, scenario, spec, spent
from tests.support.pipeline import TENANT, Pipeline


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
    assert "US dollars, and 0.001 are left" in job.reason
    assert spent(pipeline.simulator.control) == (0, 0)
    assert month(pipeline, job) == (0, 0)

    limit(pipeline, 10**9)
    again = pipeline.run(films(10))
    assert (again.job_key, again.state.value) == (job.job_key, "COMPLETED")
    assert month(pipeline, again)[0] == 0


def test_given_one_job_that_holds_the_money_when_another_begins_then_it_waits_for_nobody_and_fails(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    limit(pipeline, 20_000_000)
    first = pipeline.drop(films(10))["job_key"]
    from tallybatch.contracts import JobInput

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
