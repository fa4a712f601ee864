"""Canary, approval and waves: what is tried first decides about the rest, and a bad prompt costs the canary alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tallybatch.contracts import JobInput
from tallybatch.domain.errors import ApprovalExpired, Conflict, Permanent
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.steps import cancel_job
from tallybatch.steps.answer_approval import wake
from tests.support.films import classes, films, key_of, report, results, scenario, spec, tokens_of
from tests.support.pipeline import Pipeline

RECORDS, CANARY = 60, 10
EVERY = "Film-"
"""In each record's body."""


def canary_spec(canary: str = f"records: {CANARY}, min_acceptance: 0.8", **changed: Any) -> str:
    values = {"shard_records": 10, **changed}
    return spec(**values) + f"canary: {{{canary}}}\n"


def manual(more: str = "", **changed: Any) -> str:
    return canary_spec(f"records: {CANARY}, min_acceptance: 0.8, approval: manual{more}", **changed)


def creates(pipeline: Pipeline) -> list[int]:
    """Records of each job made at the provider, in order."""
    journal = pipeline.simulator.control.journal()
    batches = journal["batches"]
    return [batches[made["job_id"]]["counts"]["total"] for made in journal["creates"]]


def billed(pipeline: Pipeline) -> dict[str, int]:
    tokens: dict[str, int] = pipeline.simulator.control.journal()["tokens_billed"]
    return tokens


def document(pipeline: Pipeline, job: Job, attempt: int = 1, name: str = "canary.json") -> Any:
    return json.loads(pipeline.objects.get(pipeline.keys(job).attempt(attempt) + name))


def run(pipeline: Pipeline, text: str, count: int = RECORDS) -> Job:
    pipeline.push_spec(text)
    return pipeline.run(films(count))


def drop_again(pipeline: Pipeline, job: Job) -> Job:
    assert pipeline.drop(films(RECORDS)) == {"job_key": job.job_key, "state": "VALIDATED"}
    started = pipeline.executions.started[pipeline.job(job.job_key).execution_name]
    pipeline.work(JobInput.model_validate(started))
    return pipeline.job(job.job_key)


def assert_completed_and_paid_once(pipeline: Pipeline, job: Job, count: int = RECORDS) -> None:
    assert (job.state, job.reason) == (JobState.COMPLETED, "")
    assert {row["business_key"] for row in results(pipeline.objects, job)} == {key_of(n) for n in range(1, count + 1)}
    told = pipeline.certificate(job)
    assert (told.expected, told.succeeded, told.reused) == (count, count, 0)
    assert tokens_of(told) == billed(pipeline)
    assert set(pipeline.simulator.control.journal()["jobs_per_marker"].values()) == {1}
    assert pipeline.verify(job).ok


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
    assert told["forecast"]["cost_usd"] is None


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


def tokens_of_canary(pipeline: Pipeline, job: Job) -> dict[str, int]:
    tokens = document(pipeline, job)["tokens"]
    return {kind: tokens.get(kind, 0) for kind in ("input", "cached_input", "output", "reasoning")}


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


# Approval


def test_given_a_manual_canary_when_a_person_approves_then_the_job_goes_on_and_says_who(pipeline: Pipeline) -> None:
    pipeline.push_spec(manual())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    seen: list[tuple[list[int], str]] = []

    def ada() -> None:
        seen.append((creates(pipeline), pipeline.job(job_key).state.value))
        pipeline.answer(job_key, who="ada", reason="looks right")

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
    pipeline.people.append(lambda: pipeline.answer(job_key, approve=False, who="ada", reason="labels too coarse"))
    pipeline.execute(job_key)

    job = pipeline.job(job_key)
    assert job.state is JobState.CANCELLED
    assert "the canary was rejected by ada: labels too coarse" in job.reason
    assert creates(pipeline) == [CANARY]
    assert pipeline.events.kinds()[-1] == "JobCancelled"
    assert report(pipeline.objects, job)["state"] == "CANCELLED"
    with pytest.raises(Conflict, match="rejected already, by ada"):
        pipeline.answer(job_key)


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
        pipeline.answer(expired.job_key)

    pipeline.people.append(lambda: pipeline.answer(expired.job_key))
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
        pipeline.answer(job_key, who="ada")
        pipeline.answer(job_key, who="bob")

    pipeline.people.append(twice)
    pipeline.execute(job_key)

    job = pipeline.job(job_key)
    assert_completed_and_paid_once(pipeline, job)
    assert document(pipeline, job, name="approval.json")["decided_by"] == "ada"
    pipeline.answer(job_key, who="eve")
    assert pipeline.job(job_key) == job
    assert pipeline.verify(job).ok


def test_given_a_job_without_a_question_when_approved_then_it_says_so(pipeline: Pipeline) -> None:
    job = run(pipeline, canary_spec())

    with pytest.raises(Permanent, match="waits for no approval"):
        pipeline.answer(job.job_key)


def test_given_a_decision_whose_wake_up_was_lost_when_the_wait_is_over_then_the_decision_counts(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command dies after the decision was written and before the execution heard of it."""
    pipeline.push_spec(manual())
    job_key = pipeline.drop(films(RECORDS))["job_key"]

    def dies() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(pipeline.tokens, "wake", lambda token: (_ for _ in ()).throw(OSError("killed")))
            with pytest.raises(OSError, match="killed"):
                pipeline.answer(job_key)

    pipeline.people.append(dies)
    pipeline.execute(job_key)

    assert_completed_and_paid_once(pipeline, pipeline.job(job_key))


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
    pipeline.people.append(lambda: pipeline.answer(job.job_key))
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
    pipeline.people.append(lambda: pipeline.answer(job_key))
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
    pipeline.people.append(lambda: pipeline.answer(job_key))
    pipeline.work(JobInput.model_validate(pipeline.executions.started[restarted]))

    job = pipeline.job(job_key)
    assert_completed_and_paid_once(pipeline, job)
    assert job.approval is not None
    assert job.approval.expires_at == asked.expires_at
    assert creates(pipeline)[:2] == [CANARY, 10]


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
