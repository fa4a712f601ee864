"""Submit at most once: whatever is lost and whoever dies, no work has two paid jobs."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tallybatch.domain.errors import ProviderUnavailable
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.rows import Job, Submission
from tallybatch.domain.submitting import CREATE_TIMEOUT_S
from tests.support.films import classes, films, report, scenario, spec
from tests.support.one_shard import planned, row
from tests.support.pipeline import RULES, Pipeline

RECORDS = 12


def creates(pipeline: Pipeline) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pipeline.simulator.control.journal()["creates"]
    return found


def assert_one_job(pipeline: Pipeline, job: Job) -> None:
    assert (job.state.value, job.reason, job.counts["succeeded"]) == ("COMPLETED", "", RECORDS)
    assert (job.counts["submissions"], job.counts["provider_jobs"], len(creates(pipeline))) == (1, 1, 1)
    assert pipeline.verify(job).ok


def test_given_a_create_that_is_carried_out_after_its_caller_gave_up_when_resolved_then_it_is_found(
    pipeline: Pipeline,
) -> None:
    pipeline.provider = pipeline.openai(create_timeout_s=0.3)
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "delay_s:0.8"}])
    item = planned(pipeline, RECORDS)

    assert pipeline.submit(item).status == "unknown"
    assert creates(pipeline) == []
    assert pipeline.submit(item).status == "unknown"
    real_deadline = time.monotonic() + 10
    while not creates(pipeline) and time.monotonic() < real_deadline:
        time.sleep(0.05)
    pipeline.run_shard(item)

    assert (row(pipeline, item).generation, len(creates(pipeline))) == (1, 1)
    assert row(pipeline, item).counts == {"succeeded": RECORDS}


@pytest.mark.parametrize("fault", ["drop_before", "status:500", "status:503", "status:409"])
def test_given_a_create_that_never_happened_when_the_settle_window_has_passed_then_a_second_generation_is_made(
    pipeline: Pipeline, fault: str
) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": fault}])
    item = planned(pipeline, RECORDS)
    began = pipeline.clock.now()

    pipeline.run_shard(item)

    found = row(pipeline, item)
    assert (found.state, found.generation) == (SubmissionState.RECONCILED, 2)
    assert len(creates(pipeline)) == 1
    assert found.submitted_at - began >= RULES.create_within_s + CREATE_TIMEOUT_S + RULES.settle_window_s
    (proof,) = found.absences
    assert proof.complete
    assert proof.at >= began + RULES.create_within_s + CREATE_TIMEOUT_S + RULES.settle_window_s
    assert proof.pages >= 1


def test_given_a_walk_that_is_cut_short_when_the_window_has_passed_then_absence_is_not_proven(
    pipeline: Pipeline,
) -> None:
    """The list answers with empty pages that promise more: nothing follows from them."""
    scenario(
        pipeline.simulator.control,
        calls=[
            {"on": "create", "fault": "drop_before"},
            {"on": "list", "fault": "empty_page", "count": 60},
        ],
    )
    item = planned(pipeline, RECORDS)
    settled_s = RULES.create_within_s + CREATE_TIMEOUT_S + RULES.settle_window_s
    began = pipeline.clock.now()

    while pipeline.clock.now() < began + settled_s + 120:
        assert pipeline.submit(item).status == "unknown"
        pipeline.wait(30)

    assert creates(pipeline) == []
    assert not any(look.complete for look in row(pipeline, item).evidence)
    pipeline.run_shard(item)
    assert (row(pipeline, item).generation, len(creates(pipeline))) == (2, 1)


@pytest.mark.parametrize("workers", [2, 5])
def test_given_workers_that_submit_one_shard_at_once_when_they_race_then_one_creates(
    pipeline: Pipeline, workers: int
) -> None:
    item = planned(pipeline, RECORDS)
    barrier = threading.Barrier(workers)
    replies: list[str] = []

    def work() -> None:
        barrier.wait()
        replies.append(pipeline.submit(item).status)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert len(replies) == workers
    assert set(replies) <= {"submitted", "unknown"}
    assert len(creates(pipeline)) == 1
    pipeline.run_shard(item)
    assert (len(creates(pipeline)), row(pipeline, item).generation) == (1, 1)
    assert row(pipeline, item).counts == {"succeeded": RECORDS}


def test_given_a_create_refused_for_the_rate_when_it_waits_then_as_long_as_told_and_no_attempt_is_used_up(
    pipeline: Pipeline,
) -> None:
    scenario(
        pipeline.simulator.control, calls=[{"on": "create", "fault": "status:429", "retry_after_s": 77, "count": 2}]
    )
    item = planned(pipeline, RECORDS, max_attempts=1)

    first = pipeline.submit(item)
    too_early = pipeline.submit(item)

    assert (first.status, first.wait_s) == ("quota", 77)
    assert too_early.status == "quota"
    assert pipeline.simulator.control.journal()["calls"]["openai.create"] == 1
    pipeline.run_shard(item)
    assert row(pipeline, item).counts == {"succeeded": RECORDS}
    assert (row(pipeline, item).quota_refusals, len(creates(pipeline))) == (2, 1)


@pytest.mark.parametrize("call", ["upload", "create"])
def test_given_a_key_that_is_refused_when_the_job_runs_then_it_failed_with_that_reason_and_nothing_was_spent(
    pipeline: Pipeline, call: str
) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": call, "fault": "status:401", "count": "always"}])
    pipeline.push_spec(spec(shard_records=6))

    job = pipeline.run(films(RECORDS))

    assert (job.state.value, job.attempt) == ("FAILED", 1)
    assert "401" in job.reason
    assert creates(pipeline) == []
    assert report(pipeline.objects, job)["state"] == "FAILED"
    assert pipeline.events.kinds() == ["JobStarted", "JobFailed"]
    assert not list(pipeline.objects.list("results/"))


def test_given_a_key_that_is_empty_when_the_job_runs_then_it_failed_with_that_reason(pipeline: Pipeline) -> None:
    pipeline.provider = pipeline.openai(key=" ")
    pipeline.push_spec(spec())

    job = pipeline.run(films(RECORDS))

    assert job.state.value == "FAILED"
    assert "key is empty" in job.reason


def test_given_one_shard_that_is_refused_when_the_others_are_not_then_its_records_run_again(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "status:403"}])
    pipeline.push_spec(spec(shard_records=6))

    job = pipeline.run(films(RECORDS))

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", RECORDS)
    assert sorted(classes(pipeline.objects, job).values()) == sorted(
        [["retryable", "succeeded"]] * 6 + [["succeeded"]] * 6
    )


@dataclass
class Slow:
    """A provider whose caller falls asleep between its claim and create: time passes in the ledger's write."""

    pipeline: Pipeline
    seconds: float
    done: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipeline_ledger, name)

    def __post_init__(self) -> None:
        self.pipeline_ledger = self.pipeline.ledger

    def put_submission(self, submission: Submission, *, expected_version: int | None) -> Submission | None:
        stored = self.pipeline_ledger.put_submission(submission, expected_version=expected_version)
        if submission.state is SubmissionState.SUBMITTING and not self.done:
            self.done = True
            self.pipeline.wait(self.seconds)
        return stored


@pytest.mark.parametrize(("asleep_s", "made"), [(RULES.create_within_s - 1, 1), (RULES.create_within_s + 1, 0)])
def test_given_a_worker_that_claims_and_falls_asleep_when_it_wakes_too_late_then_it_does_not_create(
    pipeline: Pipeline, asleep_s: float, made: int
) -> None:
    item = planned(pipeline, RECORDS)
    pipeline.ledger = Slow(pipeline, asleep_s)  # type: ignore[assignment]

    reply = pipeline.submit(item)

    assert (reply.status, len(creates(pipeline))) == (("submitted", 1) if made else ("unknown", 0))
    pipeline.run_shard(item)
    assert len(creates(pipeline)) == 1
    assert row(pipeline, item).generation == (1 if made else 2)


def test_given_a_provider_that_cannot_be_reached_when_submitted_then_nothing_is_claimed(pipeline: Pipeline) -> None:
    item = planned(pipeline, RECORDS)
    working = pipeline.provider
    pipeline.provider = pipeline.openai()
    pipeline.provider._base_url = "http://127.0.0.1:9/v1"

    with pytest.raises(ProviderUnavailable):
        pipeline.submit(item)

    assert pipeline.ledger.submission(item.job_key, 1, item.shard_id) is None
    pipeline.provider = working
    pipeline.run_shard(item)
    assert row(pipeline, item).counts == {"succeeded": RECORDS}


def test_given_faults_of_every_other_call_when_repeated_then_one_job_is_made(pipeline: Pipeline) -> None:
    """Not one of them may lead to a second create."""
    calls = [
        {"on": call, "fault": fault, "nth": nth}
        for call in ("upload", "get", "content", "file_get")
        for nth, fault in ((1, "lost_reply"), (2, "status:500"), (3, "drop_before"), (4, "cut_body"))
    ]
    scenario(pipeline.simulator.control, calls=calls)
    pipeline.push_spec(spec())

    job = pipeline.run(films(RECORDS))

    assert_one_job(pipeline, job)
