"""What can happen to a provider's job as a whole: every terminal state is harvested, and no fault is paid for twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tallybatch.contracts import JobInput, ReconcileReply
from tallybatch.domain.errors import Permanent
from tallybatch.domain.rows import Job
from tests.support.films import (
    classes,
    films,
    histories,
    key_of,
    report,
    results,
    scenario,
    spec,
    tokens_of,
)
from tests.support.pipeline import Pipeline

RECORDS = 20


def run(pipeline: Pipeline, *jobs: dict[str, Any], records: int = RECORDS, **changed: Any) -> Job:
    scenario(pipeline.simulator.control, jobs=list(jobs))
    pipeline.push_spec(spec(**changed))
    return pipeline.run(films(records))


def told(pipeline: Pipeline, job: Job) -> Counter[tuple[str, ...]]:
    """How many records had which outcomes, attempt by attempt."""
    return Counter(tuple(row) for row in classes(pipeline.objects, job).values())


def anomalies(pipeline: Pipeline, job: Job) -> dict[str, int]:
    return {name: count for entry in pipeline.certificate(job).submissions for name, count in entry.anomalies.items()}


def assert_complete(pipeline: Pipeline, job: Job) -> None:
    assert (job.state.value, job.reason, job.counts["succeeded"]) == ("COMPLETED", "", RECORDS)
    assert len({row["business_key"] for row in results(pipeline.objects, job)}) == RECORDS
    assert pipeline.verify(job).ok
    assert set(pipeline.simulator.control.journal()["jobs_per_marker"].values()) == {1}


def test_given_counts_that_are_wrong_when_reconciled_then_the_files_win_and_it_is_reported(pipeline: Pipeline) -> None:
    job = run(pipeline, {"fault": "wrong_counts"})

    assert_complete(pipeline, job)
    assert anomalies(pipeline, job) == {"counts_disagree": 1}
    assert [row["anomaly"] for row in report(pipeline.objects, job)["anomalies"]] == ["counts_disagree"]


def test_given_a_completed_job_in_which_every_row_failed_when_closed_then_each_is_named_and_nothing_is_published(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, {"fault": "only_error_file:error_400", "count": "always"})

    assert (job.state.value, job.counts["succeeded"], job.counts["failed"]) == ("FAILED", 0, RECORDS)
    assert f"none of {RECORDS} records was accepted" in job.reason
    assert not list(pipeline.objects.list("results/"))
    assert {row[0].code for row in histories(pipeline.objects, job).values()} == {"context_length_exceeded"}


def test_given_a_job_that_fails_validation_for_good_when_closed_then_its_records_are_permanent_and_not_retried(
    pipeline: Pipeline,
) -> None:
    """One of two shards; the other's records are accepted."""
    job = run(pipeline, {"fault": "fail_validation:model_not_found"}, shard_records=10)

    assert (job.state.value, job.attempt) == ("COMPLETED", 1)
    assert pipeline.certificate(job).failed == {"permanent": 10}
    rows = [row[0] for row in histories(pipeline.objects, job).values() if row[0].outcome.value == "permanent"]
    assert {(row.code, row.tries) for row in rows} == {("model_not_found", 1)}
    assert len(pipeline.simulator.control.journal()["creates"]) == 2
    refusals = [entry.refusal for entry in pipeline.certificate(job).submissions if entry.refusal]
    assert len(refusals) == 1
    assert "model_not_found" in refusals[0]
    assert pipeline.verify(job).ok


@pytest.mark.parametrize("code", ["model_not_found", "billing_hard_limit_reached"])
def test_given_every_job_failing_for_a_reason_that_stays_when_reconciled_then_the_job_failed_with_that_reason(
    pipeline: Pipeline, code: str
) -> None:
    job = run(pipeline, {"fault": f"fail_validation:{code}", "count": "always"}, shard_records=10)

    assert (job.state.value, job.attempt) == ("FAILED", 1)
    assert code in job.reason
    assert report(pipeline.objects, job)["state"] == "FAILED"
    journal = pipeline.simulator.control.journal()
    assert journal["tokens_billed"] == {"input": 0, "cached_input": 0, "output": 0, "reasoning": 0}
    assert len(journal["creates"]) == 2


def test_given_validation_that_fails_for_quota_when_it_waits_then_no_attempt_is_used_up(pipeline: Pipeline) -> None:
    before = pipeline.clock.now()

    job = run(pipeline, {"fault": "fail_validation:token_limit_exceeded", "count": 3}, max_attempts=1)

    assert_complete(pipeline, job)
    assert job.attempt == 1
    (entry,) = pipeline.certificate(job).submissions
    assert (entry.generation, len(entry.provider_jobs)) == (4, 4)
    assert {row[0].tries for row in histories(pipeline.objects, job).values()} == {1}
    assert pipeline.clock.now() - before > 60 + 120 + 240


def test_given_the_three_endings_of_the_shipped_scenario_when_run_then_each_record_is_paid_once(
    pipeline: Pipeline,
) -> None:
    pipeline.simulator.control.set_scenario("partial-jobs")
    pipeline.push_spec(spec(shard_records=10))

    job = pipeline.run(films(RECORDS))

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", RECORDS)
    keys = [row["business_key"] for row in results(pipeline.objects, job)]
    assert keys == [key_of(number) for number in range(1, RECORDS + 1)]
    assert tokens_of(pipeline.certificate(job)) == pipeline.simulator.control.journal()["tokens_billed"]


@pytest.mark.parametrize("name", ["bad-answers", "dirty-results", "rough-api", "slow", "identity"])
def test_given_a_shipped_scenario_when_run_then_the_job_ends_and_nothing_unclosed_is_published(
    pipeline: Pipeline, name: str
) -> None:
    pipeline.simulator.control.set_scenario(name)
    pipeline.push_spec(spec(shard_records=80))

    job = pipeline.run(films(200))

    assert job.state.value in ("COMPLETED", "PARTIAL")
    assert job.counts["succeeded"] + job.counts["failed"] + job.counts["in_review"] == 200
    assert (job.state.value == "COMPLETED") == (job.counts["unknown"] == job.counts["in_review"] == 0)
    assert bool(list(pipeline.objects.list("results/"))) == (job.state.value == "COMPLETED")
    assert set(pipeline.simulator.control.journal()["jobs_per_marker"].values()) == {1}
    if job.state.value == "COMPLETED":
        assert pipeline.verify(job).ok


@pytest.mark.parametrize(("attempt", "known"), [(1, False), (2, True)])
def test_given_a_job_that_fails_where_it_is_reconciled_when_reported_then_all_that_was_paid_is_told(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, attempt: int, known: bool
) -> None:
    """The last closure is that of an earlier attempt, if there is one; what went out since is in the report too."""
    scenario(pipeline.simulator.control, records=[{"fault": "error_500", "contains": "Film-003.", "times": 1}])
    pipeline.push_spec(spec())
    reconcile = pipeline.reconcile

    def broken(request: JobInput) -> ReconcileReply:
        if request.attempt == attempt:
            raise Permanent("the bucket is gone", where="here")
        return reconcile(request)

    monkeypatch.setattr(pipeline, "reconcile", broken)
    job = pipeline.run(films(RECORDS))

    told = report(pipeline.objects, job)
    billed = pipeline.simulator.control.journal()["tokens_billed"]
    assert (job.state.value, told["counts"]["submissions"], told["counts"]["provider_jobs"]) == (
        "FAILED", attempt, attempt
    )  # fmt: skip
    assert told["counts"].get("succeeded") == (RECORDS - 1 if known else None)
    assert {kind: told["tokens"].get(kind, 0) for kind in billed} == billed
    assert float(told["money"]["cost_usd"]) > 0
