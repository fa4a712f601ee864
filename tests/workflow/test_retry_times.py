"""When a record is tried again, and what uses up no try: windows, deadlines, refused accounts, late results."""

from __future__ import annotations

from typing import Any

import pytest

from tallybatch.contracts import ShardItem
from tests.support.films import classes, histories, key_of
from tests.support.pipeline import Pipeline
from tests.support.retrying import KEY, RECORDS, creates, history, hit, run

# Time


def test_given_a_window_when_records_are_tried_again_then_the_attempt_begins_within_it(pipeline: Pipeline) -> None:
    began = pipeline.clock.now()
    opens = int(began + 5 * 3600) % 86_400 // 3600
    job = run(pipeline, {"retry": f", window: '{opens:02}:00-{(opens + 1) % 24:02}:00'"}, hit("error_429"))

    assert (job.state.value, job.attempt) == ("COMPLETED", 2)
    second = next(row for row in pipeline.ledger.submissions(job.job_key) if row.attempt == 2)
    assert int(second.first_claimed_at % 86_400) // 3600 == opens
    assert second.first_claimed_at - began < 86_400


def test_given_a_window_that_opens_after_the_deadline_when_records_are_left_then_the_job_ends_at_once(
    pipeline: Pipeline,
) -> None:
    began = pipeline.clock.now()
    opens = int(began + 8 * 3600) % 86_400 // 3600
    window = f", window: '{opens:02}:00-{(opens + 1) % 24:02}:00'"
    job = run(pipeline, {"retry": window, "deadline": "4h"}, hit("error_429", times="always"))

    assert (job.state.value, job.attempt, job.counts["failed"]) == ("COMPLETED", 1, 1)
    assert pipeline.clock.now() - began < 4 * 3600
    assert creates(pipeline) == 1


def test_given_no_quota_until_the_deadline_when_the_job_ends_then_nothing_was_created_and_no_try_used_up(
    pipeline: Pipeline,
) -> None:
    began = pipeline.clock.now()
    rule = {"on": "create", "fault": "status:429", "retry_after_s": 90_000, "count": "always"}
    job = run(pipeline, {"deadline": "3h"}, calls=[rule])

    assert (job.state.value, job.counts["failed"], creates(pipeline)) == ("FAILED", RECORDS, 0)
    assert 3 * 3600 <= pipeline.clock.now() - began < 3 * 3600 + 600
    assert {(row.code, row.tries) for (row,) in histories(pipeline.objects, job).values()} == {("deadline", 0)}
    assert list(pipeline.objects.list("results/")) == []


# Refused creates


@pytest.mark.parametrize("status", [401, 403])
def test_given_an_account_that_is_refused_when_it_is_mended_then_no_record_has_used_up_a_try(
    pipeline: Pipeline, status: int
) -> None:
    rule = {"on": "create", "fault": f"status:{status}", "nth": 2}
    job = run(pipeline, {"max_attempts": 1, "shard_records": 6}, calls=[rule])

    assert (job.state.value, job.attempt, job.counts["succeeded"]) == ("COMPLETED", 2, RECORDS)
    rows = histories(pipeline.objects, job).values()
    assert {tuple((row.outcome.value, row.tries) for row in one) for one in rows} == {
        (("succeeded", 1),),
        (("retryable", 0), ("succeeded", 1)),
    }
    assert creates(pipeline) == 2


def test_given_a_job_that_fails_for_the_accounts_bill_when_it_is_mended_then_no_record_has_used_up_a_try(
    pipeline: Pipeline,
) -> None:
    """Told after create, as the job's end: nothing ran, and nothing was charged."""
    fault = {"fault": "fail_validation:billing_hard_limit_reached", "nth": 2}
    job = run(pipeline, {"max_attempts": 1, "shard_records": 6}, jobs=[fault])

    assert (job.state.value, job.attempt, job.counts["succeeded"]) == ("COMPLETED", 2, RECORDS)
    assert sorted({row[0].tries for row in histories(pipeline.objects, job).values()}) == [0, 1]
    assert set(pipeline.simulator.control.journal()["jobs_per_marker"].values()) == {1}


def test_given_a_request_that_is_refused_when_it_stays_so_then_its_records_use_up_their_tries(
    pipeline: Pipeline,
) -> None:
    rule = {"on": "create", "fault": "status:400", "nth": 2, "count": "always"}
    job = run(pipeline, {"max_attempts": 2, "shard_records": 6}, calls=[rule])

    assert (job.state.value, job.attempt, job.counts["failed"]) == ("COMPLETED", 2, 6)
    assert creates(pipeline) == 1


# Late results


def test_given_a_shard_that_was_lost_while_it_was_out_when_others_go_on_then_its_late_results_count(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempt 2 has a record of the other shard; the first attempt's results come during it and are paid for once."""
    poll = pipeline.poll
    lost: list[ShardItem] = []

    def dies(item: ShardItem, waited_s: float = 0) -> Any:
        if item.shard_id.startswith("00001") and item.attempt == 1 and len(lost) < 4:
            lost.append(item)
            raise RuntimeError("the child execution died")
        return poll(item, waited_s)

    monkeypatch.setattr(pipeline, "poll", dies)
    job = run(pipeline, {"shard_records": 6}, [{"fault": "error_500", "contains": "Film-002."}])

    assert lost
    assert (job.state.value, job.attempt, job.counts["succeeded"]) == ("COMPLETED", 2, RECORDS)
    assert classes(pipeline.objects, job)[KEY] == ["succeeded"]
    assert classes(pipeline.objects, job)[key_of(2)] == ["retryable", "succeeded"]
    assert history(pipeline, job)[0].attempt == 1
    assert creates(pipeline) == 3
    assert pipeline.verify(job).ok
