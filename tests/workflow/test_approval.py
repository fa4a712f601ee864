"""Approval: a person lets the job go on after its canary, says no, or does not come; whatever dies meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tallybatch.contracts import JobInput
from tallybatch.domain.errors import ApprovalExpired, Conflict
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.steps import cancel_job
from tallybatch.steps.answer_approval import wake
from tests.support.canaries import (
    CANARY,
    RECORDS,
    assert_completed_and_paid_once,
    canary_spec,
    creates,
    document,
    drop_again,
    manual,
    run,
)
from tests.support.films import films, report, scenario
from tests.support.pipeline import Pipeline


def test_given_a_manual_canary_when_a_person_approves_then_the_job_goes_on_and_says_who(pipeline: Pipeline) -> None:
    pipeline.push_spec(manual())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    seen: list[tuple[list[int], str]] = []

    def ada() -> None:
        seen.append((creates(pipeline), pipeline.job(job_key).state.value))
        pipeline.approve(job_key, who="ada", reason="looks right")

    pipeline.people.append(ada)
    pipeline.execute(job_key)

    job = pipeline.job(job_key)
    assert seen == [([CANARY], "RECONCILING")]
    assert_completed_and_paid_once(pipeline, job)
    assert job.approval is not None
    assert (job.approval.decision, job.approval.decided_by) == ("approved", "ada")
    audit = document(pipeline, job, name="approval.json")
    assert (audit["decision"], audit["decided_by"], audit["reason"]) == ("approved", "ada", "looks right")
    assert audit["asked_at"] <= audit["decided_at"] <= job.updated_at
    assert pipeline.keys(job).approval(1) in {sealed.key for sealed in pipeline.certificate(job).objects}
    kinds = pipeline.events.kinds()
    assert kinds == ["JobStarted", "NeedsApproval", "JobCompleted"]
    asked = dict(pipeline.events.published)["NeedsApproval"]
    assert (asked["accepted"], asked["records"], asked["expected"]) == (CANARY, CANARY, RECORDS)
    assert asked["canary"].endswith("/attempts/1/canary.json")
    assert not any("token-" in json.dumps(detail) for _, detail in pipeline.events.published)


def test_given_a_manual_canary_that_fails_its_gate_when_judged_then_nobody_is_asked(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "bad_schema", "times": "always"}])
    job = run(pipeline, manual())

    assert (job.state, creates(pipeline)) == (JobState.FAILED, [CANARY])
    assert "NeedsApproval" not in pipeline.events.kinds()


def test_given_a_person_who_rejects_when_the_job_ends_then_it_is_cancelled_with_the_reason_and_only_the_canary_was_paid(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(manual())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    pipeline.people.append(lambda: pipeline.approve(job_key, approve=False, who="ada", reason="labels too coarse"))
    pipeline.execute(job_key)

    job = pipeline.job(job_key)
    assert job.state is JobState.CANCELLED
    assert "the canary was rejected by ada: labels too coarse" in job.reason
    assert creates(pipeline) == [CANARY]
    assert pipeline.events.kinds()[-1] == "JobCancelled"
    assert report(pipeline.objects, job)["state"] == "CANCELLED"
    with pytest.raises(Conflict, match="rejected already, by ada"):
        pipeline.approve(job_key)


def test_given_nobody_who_answers_when_the_time_is_over_then_the_job_is_expired_and_a_new_drop_asks_again_for_nothing(
    pipeline: Pipeline,
) -> None:
    expired = run(pipeline, manual(", approval_timeout: 2h"))

    assert (expired.state, creates(pipeline)) == (JobState.EXPIRED, [CANARY])
    assert "approval expired" in expired.reason
    assert pipeline.events.kinds()[-1] == "JobExpired"
    assert expired.approval is not None
    assert expired.approval.expires_at - expired.approval.asked_at == 7200
    with pytest.raises(ApprovalExpired, match="too late"):
        pipeline.approve(expired.job_key)

    pipeline.people.append(lambda: pipeline.approve(expired.job_key))
    job = drop_again(pipeline, expired)

    assert_completed_and_paid_once(pipeline, job)
    assert creates(pipeline) == [CANARY, 10, 10, 10, 10, 10]


def test_given_a_deadline_before_the_approvals_when_nobody_answers_then_the_deadline_counts(pipeline: Pipeline) -> None:
    job = run(pipeline, manual(deadline="1h"))

    assert job.state is JobState.EXPIRED
    assert job.approval is not None
    assert job.approval.expires_at == job.deadline_at


def test_given_an_approval_that_is_repeated_when_the_job_runs_then_nothing_more_happens(pipeline: Pipeline) -> None:
    pipeline.push_spec(manual())
    job_key = pipeline.drop(films(RECORDS))["job_key"]

    def twice() -> None:
        pipeline.approve(job_key, who="ada")
        pipeline.approve(job_key, who="bob")

    pipeline.people.append(twice)
    pipeline.execute(job_key)

    job = pipeline.job(job_key)
    assert_completed_and_paid_once(pipeline, job)
    assert document(pipeline, job, name="approval.json")["decided_by"] == "ada"
    pipeline.approve(job_key, who="eve")
    assert pipeline.job(job_key) == job
    assert pipeline.verify(job).ok


def test_given_a_job_without_a_question_when_approved_then_it_says_so(pipeline: Pipeline) -> None:
    job = run(pipeline, canary_spec())

    with pytest.raises(Conflict, match="waits for no approval"):
        pipeline.approve(job.job_key)


def test_given_a_decision_whose_wake_up_was_lost_when_the_wait_is_over_then_the_decision_counts(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command dies after the decision was written and before the execution heard of it."""
    pipeline.push_spec(manual())
    job_key = pipeline.drop(films(RECORDS))["job_key"]

    def dies() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(pipeline.tokens, "wake", _dies)
            with pytest.raises(OSError, match="killed"):
                pipeline.approve(job_key)

    pipeline.people.append(dies)
    pipeline.execute(job_key)

    assert_completed_and_paid_once(pipeline, pipeline.job(job_key))


def _dies(_: str) -> bool:
    raise OSError("killed")


def test_given_a_job_that_waits_when_it_is_cancelled_then_it_ends_at_once_at_the_canarys_price(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(manual())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    began = pipeline.clock.now()

    def cancel() -> None:
        assert wake(cancel_job.run(job_key, pipeline.ledger, pipeline.clock), pipeline.tokens)

    pipeline.people.append(cancel)
    pipeline.execute(job_key)

    job = pipeline.job(job_key)
    assert (job.state, creates(pipeline), job.counts["succeeded"]) == (JobState.CANCELLED, [CANARY], CANARY)
    assert pipeline.clock.now() - began < 3600

    again = drop_again_waiting(pipeline, job)
    assert_completed_and_paid_once(pipeline, again)


def drop_again_waiting(pipeline: Pipeline, job: Job) -> Job:
    pipeline.people.append(lambda: pipeline.approve(job.job_key))
    return drop_again(pipeline, job)


@pytest.mark.parametrize("state", ["PlanAttempt", "ReconcileJob", "JudgeCanary", "ApproveCanary"])
def test_given_each_state_of_the_canary_runs_twice_when_the_job_ends_then_nothing_was_done_twice(
    pipeline: Pipeline, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = {"PlanAttempt": "plan", "ReconcileJob": "reconcile", "JudgeCanary": "judge", "ApproveCanary": "ask"}[state]
    once = getattr(pipeline, method)

    def twice(request: Any) -> Any:
        once(request)
        pipeline.wait(7)
        return once(request)

    monkeypatch.setattr(pipeline, method, twice)
    pipeline.push_spec(manual())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    pipeline.people.append(lambda: pipeline.approve(job_key))
    pipeline.execute(job_key)

    assert_completed_and_paid_once(pipeline, pipeline.job(job_key))
    assert creates(pipeline) == [CANARY, 10, 10, 10, 10, 10]


def test_given_an_execution_that_was_stopped_while_it_waited_when_swept_then_the_next_asks_again_and_pays_nothing(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(manual())
    job_key = pipeline.drop(films(RECORDS))["job_key"]

    class Stopped(BaseException):
        pass

    def stop() -> None:
        raise Stopped

    pipeline.people.append(stop)
    with pytest.raises(Stopped):
        pipeline.execute(job_key)
    asked = pipeline.job(job_key).approval
    assert asked is not None
    pipeline.executions.end(pipeline.job(job_key).execution_name)
    pipeline.wait(1000)

    (restarted,) = pipeline.sweep().restarted
    pipeline.people.append(lambda: pipeline.approve(job_key))
    pipeline.work(JobInput.model_validate(pipeline.executions.started[restarted]))

    job = pipeline.job(job_key)
    assert_completed_and_paid_once(pipeline, job)
    assert job.approval is not None
    assert job.approval.expires_at == asked.expires_at
    assert creates(pipeline)[:2] == [CANARY, 10]


def test_given_a_rejected_canary_whose_job_goes_on_when_decided_before_it_asks_again_then_it_is_too_early(
    pipeline: Pipeline,
) -> None:
    """Neither the old answer told once more, nor one that the next question would forget."""
    pipeline.push_spec(manual())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    pipeline.people.append(lambda: pipeline.approve(job_key, approve=False))
    pipeline.execute(job_key)
    pipeline.resume(job_key)

    for approve in (False, True):
        with pytest.raises(Conflict, match="has not been judged yet"):
            pipeline.approve(job_key, approve=approve)

    pipeline.people.append(lambda: pipeline.approve(job_key))
    assert_completed_and_paid_once(pipeline, pipeline.run_again(job_key))
