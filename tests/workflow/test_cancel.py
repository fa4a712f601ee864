"""Cancel at any stage: what was answered by then counts, nothing is paid twice, a new drop pays only for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.contracts import JobInput, SealReply, ShardItem, SubmitReply
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.rows import Job
from tallybatch.steps import cancel_job
from tests.support.films import classes, films, key_of, report, results, scenario, spec, tokens_of
from tests.support.pipeline import Pipeline

T = TypeVar("T")
RECORDS = 20
HOUR = {"validating": 10, "in_progress": 3600, "finalizing": 10, "cancelling": 60}


def cancel(pipeline: Pipeline, job_key: str) -> Job:
    return cancel_job.run(job_key, pipeline.ledger, pipeline.clock)


def execute(pipeline: Pipeline, job_key: str) -> SealReply:
    """The execution that the job has now."""
    return pipeline.work(JobInput.model_validate(pipeline.executions.started[pipeline.job(job_key).execution_name]))


def started(pipeline: Pipeline, **changed: Any) -> str:
    pipeline.push_spec(spec(**changed))
    job_key: str = pipeline.drop(films(RECORDS))["job_key"]
    return job_key


def creates(pipeline: Pipeline) -> int:
    return len(pipeline.simulator.control.journal()["creates"])


def billed(pipeline: Pipeline) -> dict[str, int]:
    tokens: dict[str, int] = pipeline.simulator.control.journal()["tokens_billed"]
    return tokens


def accepted(pipeline: Pipeline, job: Job) -> int:
    """Records with an answer in the ledger, counted from the outcomes."""
    return sum(bool({"succeeded", "reused"} & set(row)) for row in classes(pipeline.objects, job).values())


def assert_cancelled(pipeline: Pipeline, job: Job, *, succeeded: int) -> None:
    assert (job.state, job.counts["succeeded"]) == (JobState.CANCELLED, succeeded)
    told = report(pipeline.objects, job)
    assert (told["state"], told["counts"]["succeeded"]) == ("CANCELLED", succeeded)
    assert told["verdict"].startswith("Cancelled, so nothing was published")
    assert any("Drop the file again" in step for step in told["next_steps"])
    assert pipeline.events.kinds()[-1] == "JobCancelled"
    assert not list(pipeline.objects.list("results/"))
    assert pipeline.objects.head(pipeline.keys(job).certificate) is None


def drop_again(pipeline: Pipeline, job_key: str) -> Job:
    assert pipeline.drop(films(RECORDS)) == {"job_key": job_key, "state": "VALIDATED"}
    execute(pipeline, job_key)
    return pipeline.job(job_key)


def assert_completed_and_paid_once(pipeline: Pipeline, job: Job) -> None:
    assert (job.state, job.reason) == (JobState.COMPLETED, "")
    assert {row["business_key"] for row in results(pipeline.objects, job)} == {
        key_of(number) for number in range(1, job.expected + 1)
    }
    answered = Counter(
        key for key, row in classes(pipeline.objects, job).items() for one in row if one == "succeeded"
    )  # fmt: skip
    assert set(answered.values()) == {1}
    assert set(pipeline.simulator.control.journal()["jobs_per_marker"].values()) <= {1}
    assert tokens_of(pipeline.certificate(job)) == billed(pipeline)
    assert pipeline.verify(job).ok


def test_given_a_job_that_has_not_begun_when_cancelled_then_nothing_is_submitted(pipeline: Pipeline) -> None:
    job_key = started(pipeline)
    cancel(pipeline, job_key)

    execute(pipeline, job_key)

    assert_cancelled(pipeline, pipeline.job(job_key), succeeded=0)
    assert creates(pipeline) == 0
    assert "SubmitShard" not in {name for name, _ in pipeline.tasks}
    job = drop_again(pipeline, job_key)
    assert (job.run, job.attempt, job.cancel_requested_at) == (2, 2, 0)
    assert_completed_and_paid_once(pipeline, job)
    assert creates(pipeline) == 1


def test_given_a_planned_job_when_cancelled_before_its_shards_are_submitted_then_none_is(pipeline: Pipeline) -> None:
    job_key = started(pipeline, shard_records=5)
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    items = pipeline.items(pipeline.plan(request))
    pipeline.run_shard(items[0])
    cancel(pipeline, job_key)

    replies = [pipeline.submit(item).status for item in items]
    pipeline.work(request)

    assert replies == ["submitted", "cancelled", "cancelled", "cancelled"]
    assert_cancelled(pipeline, pipeline.job(job_key), succeeded=5)
    paid = billed(pipeline)
    job = drop_again(pipeline, job_key)
    assert_completed_and_paid_once(pipeline, job)
    assert sum(entry.records for entry in pipeline.certificate(job).submissions) == RECORDS
    assert billed(pipeline) != paid


def test_given_a_shard_that_is_two_fifths_done_when_cancelled_then_these_answers_count_and_the_rest_is_paid_later(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, durations=HOUR)
    job_key = started(pipeline)
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    (item,) = pipeline.items(pipeline.plan(request))
    pipeline.submit(item)
    pipeline.wait(10 + 0.42 * 3600)
    asked_at = cancel(pipeline, job_key).cancel_requested_at

    pipeline.work(request)

    job = pipeline.job(job_key)
    row = pipeline.ledger.submission(job_key, 1, item.shard_id)
    assert row is not None
    assert (row.state, row.provider_state, row.counts) == (
        SubmissionState.RECONCILED, "cancelled", {"succeeded": 8, "missing": 12},
    )  # fmt: skip
    assert_cancelled(pipeline, job, succeeded=8)
    assert pipeline.clock.now() - 200 < asked_at == job.cancel_requested_at
    assert len(pipeline.simulator.control.journal()["cancels"]) == 1
    assert {kind: row.tokens.get(kind, 0) for kind in billed(pipeline)} == billed(pipeline)
    half = billed(pipeline)

    job = drop_again(pipeline, job_key)

    assert_completed_and_paid_once(pipeline, job)
    assert sorted(classes(pipeline.objects, job).values()) == [["missing", "succeeded"]] * 12 + [["succeeded"]] * 8
    first, second = pipeline.certificate(job).submissions
    assert (first.records, second.records) == (RECORDS, 12)
    assert {kind: half[kind] + second.tokens.get(kind, 0) for kind in half} == billed(pipeline)


@pytest.mark.parametrize("rows", ["absent", "error_line"])
def test_given_rows_that_the_cancel_left_undone_when_told_or_not_then_they_are_paid_later_all_the_same(
    pipeline: Pipeline, rows: str
) -> None:
    scenario(pipeline.simulator.control, durations=HOUR, cancelled_rows=rows)
    job_key = started(pipeline, max_attempts=1)
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    (item,) = pipeline.items(pipeline.plan(request))
    pipeline.submit(item)
    pipeline.wait(10 + 0.42 * 3600)
    cancel(pipeline, job_key)

    pipeline.work(request)

    assert pipeline.job(job_key).state is JobState.CANCELLED
    job = drop_again(pipeline, job_key)
    assert_completed_and_paid_once(pipeline, job)


def test_given_a_job_between_two_attempts_when_cancelled_then_no_record_is_sent_again(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_500", "contains": "Film-003."}])
    job_key = started(pipeline)
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    reply = pipeline.one_attempt(request)
    assert (reply.verdict, reply.next_attempt) == ("retry", 2)
    cancel(pipeline, job_key)

    pipeline.work(request.model_copy(update={"attempt": reply.next_attempt}))

    assert_cancelled(pipeline, pipeline.job(job_key), succeeded=RECORDS - 1)
    assert creates(pipeline) == 1
    job = drop_again(pipeline, job_key)
    assert_completed_and_paid_once(pipeline, job)
    assert creates(pipeline) == 2


def test_given_a_job_whose_answers_are_all_in_when_cancelled_then_it_completes(pipeline: Pipeline) -> None:
    job_key = started(pipeline)
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    assert pipeline.one_attempt(request).verdict == "closed"
    cancel(pipeline, job_key)

    pipeline.work(request)

    assert_completed_and_paid_once(pipeline, pipeline.job(job_key))


@pytest.mark.parametrize("end", ["COMPLETED", "FAILED"])
def test_given_a_job_that_has_ended_when_cancelled_then_nothing_changes(pipeline: Pipeline, end: str) -> None:
    if end == "FAILED":
        scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "status:401", "count": "always"}])
    pipeline.push_spec(spec())
    job = pipeline.run(films(RECORDS))
    assert job.state.value == end
    assert cancel(pipeline, job.job_key) == job == pipeline.job(job.job_key)


def test_given_a_cancel_that_was_asked_when_asked_again_then_the_first_moment_stays(pipeline: Pipeline) -> None:
    job_key = started(pipeline)
    first = cancel(pipeline, job_key)
    pipeline.wait(60)
    assert cancel(pipeline, job_key) == first
    assert first.cancel_requested_at > 0


def test_given_a_lost_create_when_cancelled_then_its_job_is_found_cancelled_and_harvested(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, durations=HOUR, calls=[{"on": "create", "fault": "lost_reply"}])
    job_key = started(pipeline)
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    (item,) = pipeline.items(pipeline.plan(request))
    assert pipeline.submit(item).status == "unknown"
    pipeline.wait(10 + 0.42 * 3600)
    cancel(pipeline, job_key)

    pipeline.work(request)

    assert_cancelled(pipeline, pipeline.job(job_key), succeeded=8)
    assert_completed_and_paid_once(pipeline, drop_again(pipeline, job_key))
    assert creates(pipeline) == 2


def test_given_a_create_that_never_happened_when_cancelled_then_the_shard_is_given_up_once_that_is_proven(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "drop_before"}])
    job_key = started(pipeline)
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    (item,) = pipeline.items(pipeline.plan(request))
    pipeline.submit(item)
    cancel(pipeline, job_key)

    pipeline.work(request)

    assert (pipeline.job(job_key).state, creates(pipeline)) == (JobState.CANCELLED, 0)
    assert_completed_and_paid_once(pipeline, drop_again(pipeline, job_key))
    assert creates(pipeline) == 1


class Stepping(Pipeline):
    """Asks to cancel right before the task with this number."""

    ask_before = -1
    begun = 0
    asking = ""

    def task(self, name: str, call: Callable[[], T]) -> T:
        if self.begun == self.ask_before:
            cancel(self, self.asking)
        self.begun += 1
        return super().task(name, call)


def stepping(simulator: SimulatorServer, ask_before: int) -> tuple[Stepping, str]:
    """Two shards, one record that needs a second attempt, and a create that is not heard."""
    simulator.control.reset()
    scenario(
        simulator.control,
        durations={**HOUR, "in_progress": 60, "cancelling": 5},
        records=[{"fault": "error_500", "contains": "Film-003."}],
        calls=[{"on": "create", "fault": "lost_reply"}],
    )
    pipeline = Stepping(simulator)
    pipeline.push_spec(spec(shard_records=4))
    pipeline.asking = pipeline.drop(films(8))["job_key"]
    pipeline.ask_before = ask_before
    return pipeline, pipeline.asking


def test_given_a_cancel_before_any_step_when_the_job_ends_then_nothing_is_lost_and_nothing_paid_twice(
    simulator: SimulatorServer,
) -> None:
    whole, job_key = stepping(simulator, -1)
    execute(whole, job_key)
    assert whole.job(job_key).state is JobState.COMPLETED
    assert whole.begun > 20

    ends: Counter[str] = Counter()
    for number in range(whole.begun):
        pipeline, job_key = stepping(simulator, number)
        execute(pipeline, job_key)
        job = pipeline.job(job_key)
        ends[job.state.value] += 1
        paid = billed(pipeline)
        if job.state is JobState.CANCELLED:
            assert job.counts["succeeded"] == accepted(pipeline, job), number
            booked: Counter[str] = Counter()
            for row in pipeline.ledger.submissions(job_key):
                assert row.state is SubmissionState.RECONCILED or not row.provider_job_id, number
                booked.update(row.tokens)
            assert {kind: booked[kind] for kind in paid} == paid, number
            assert pipeline.drop(films(8))["state"] == "VALIDATED"
            execute(pipeline, job_key)
            job = pipeline.job(job_key)
        assert_completed_and_paid_once(pipeline, job)
    assert ends["CANCELLED"] > 10
    assert ends["COMPLETED"] >= 3
    assert sum(ends.values()) == whole.begun


def test_given_a_job_that_was_cancelled_before_each_submission_when_dropped_again_then_no_try_was_used_up(
    pipeline: Pipeline,
) -> None:
    """Three times, as often as records may be tried."""
    pipeline.push_spec(spec(max_attempts=3))
    submit = pipeline.submit
    job_key = ""

    def cancelled(item: ShardItem) -> SubmitReply:
        cancel_job.run(job_key, pipeline.ledger, pipeline.clock)
        return submit(item)

    for _ in range(3):
        job_key = pipeline.drop(films(4))["job_key"]
        pipeline.submit = cancelled  # type: ignore[method-assign]
        assert pipeline.run_again(job_key).state.value == "CANCELLED"
        pipeline.wait(1)
    pipeline.submit = submit  # type: ignore[method-assign]
    pipeline.drop(films(4))

    assert pipeline.run_again(job_key).state.value == "COMPLETED"


def test_given_a_job_of_which_no_shard_can_be_handed_over_when_reconciled_then_it_stops_and_can_go_on(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec(max_attempts=2))
    submit = pipeline.submit

    def broken(item: ShardItem) -> SubmitReply:
        raise RuntimeError("no right to write")

    pipeline.submit = broken  # type: ignore[method-assign]
    job = pipeline.run(films(4))
    assert (job.state.value, job.attempt) == ("FAILED", 2)
    assert "no shard could be handed over" in job.reason

    pipeline.submit = submit  # type: ignore[method-assign]
    pipeline.wait(1)
    pipeline.drop(films(4))
    assert pipeline.run_again(job.job_key).state.value == "COMPLETED"
