"""Workers that stop at a chosen call while others go on, and providers that tell one thing and then another."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.contracts import ShardItem
from tallybatch.domain.errors import CreateUnknown, ProviderRefused, ProviderUnavailable, QuotaRefused
from tallybatch.domain.submitting import CREATE_TIMEOUT_S, generation_key
from tallybatch.ports import ProviderState
from tallybatch.steps import cancel_job
from tests.support.films import scenario
from tests.support.hooked import Hooked
from tests.support.memory_objects import MemoryObjects
from tests.support.one_shard import finish, journal, planned, row
from tests.support.pipeline import RULES, Pipeline

RECORDS = 20

QUICK = {"validating": 10, "in_progress": 60, "finalizing": 10, "cancelling": 60}
SETTLED_S = RULES.create_within_s + CREATE_TIMEOUT_S + RULES.settle_window_s
PROVIDERS = ["openai", "bedrock", "gemini"]


def line(simulator: SimulatorServer, provider: str = "openai", **keys: Any) -> Pipeline:
    scenario(simulator.control, **{"durations": QUICK, "limits": {"min_records": 1}, **keys})
    return Pipeline(simulator, provider_name=provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("state", [ProviderState.FINALIZING, ProviderState.UNKNOWN])
def test_given_a_job_that_has_ended_and_then_has_not_when_collected_then_its_results_are_waited_for(
    simulator: SimulatorServer, provider: str, state: ProviderState
) -> None:
    """As from a replica that lags behind: a job without results would have all its records paid for again."""
    pipeline = line(simulator, provider)
    item = planned(pipeline, RECORDS)
    pipeline.submit(item)
    pipeline.wait(100)
    assert pipeline.poll(item).status == "terminal"
    awake = pipeline.provider

    def lagging(inner: Any, job_id: str) -> Any:
        return replace(inner.get(job_id), state=state, raw_state="earlier", channels={}, counts={}, usage=None)

    pipeline.provider = Hooked(awake, get=lagging)
    with pytest.raises(ProviderUnavailable, match="its state is earlier now"):
        pipeline.collect(item)
    pipeline.provider = awake

    job = finish(pipeline, item)

    assert (job.state.value, job.attempt, job.counts["succeeded"]) == ("COMPLETED", 1, RECORDS)
    assert len(journal(pipeline)["creates"]) == 1
    assert row(pipeline, item).counts == {"succeeded": RECORDS}


def test_given_a_job_that_fails_for_lack_of_quota_when_its_deadline_passes_then_the_shard_is_given_up(
    simulator: SimulatorServer,
) -> None:
    """The row has the job that failed, and no other comes: what is out of quota for good must end."""
    pipeline = line(simulator, quota={"enqueued_tokens": {"*": 1}})
    item = planned(pipeline, RECORDS, deadline="1h")

    job = finish(pipeline, item)

    assert (job.state.value, job.counts["failed"]) == ("FAILED", RECORDS)
    found = row(pipeline, item)
    assert (found.state.value, found.refusal_code, found.counts) == ("RECONCILED", "deadline", {"retryable": RECORDS})
    assert "lost" not in {error for _, error in pipeline.tasks}
    assert len(pipeline.tasks) < 100


def test_given_a_look_that_begins_before_the_window_has_settled_when_it_ends_after_it_then_it_proves_nothing(
    simulator: SimulatorServer,
) -> None:
    """A job may come into the list behind the walker's back, on the page that was read first."""
    pipeline = line(simulator, calls=[{"on": "create", "fault": "drop_before"}])
    item = planned(pipeline, RECORDS)
    pipeline.submit(item)
    settled_at = row(pipeline, item).create_by + CREATE_TIMEOUT_S + RULES.settle_window_s
    pipeline.wait(settled_at - pipeline.clock.now() - 50)
    awake = pipeline.provider

    def slow(inner: Any, marker: str, *, since: float) -> Any:
        found = inner.find(marker, since=since)
        pipeline.wait(100)
        return found

    pipeline.provider = Hooked(awake, find=slow)
    assert pipeline.submit(item).status == "unknown"
    assert row(pipeline, item).generation == 1
    pipeline.provider = awake

    assert pipeline.submit(item).status == "submitted"
    assert (row(pipeline, item).generation, len(journal(pipeline)["creates"])) == (2, 1)


@pytest.mark.parametrize("ended", ["cancelled", "too late"])
def test_given_a_create_that_was_never_sent_when_the_job_has_ended_then_its_token_makes_no_job_any_more(
    simulator: SimulatorServer, ended: str
) -> None:
    pipeline = line(simulator, "bedrock", calls=[{"on": "create", "fault": "drop_before"}])
    item = planned(pipeline, RECORDS, deadline="1h")
    pipeline.submit(item)
    if ended == "cancelled":
        cancel_job.run(item.job_key, pipeline.ledger, pipeline.clock)
    else:
        pipeline.wait(3600)

    job = finish(pipeline, item)

    assert (journal(pipeline)["creates"], job.counts["succeeded"]) == ([], 0)
    assert job.state.value == ("CANCELLED" if ended == "cancelled" else "FAILED")


@pytest.mark.parametrize("ended", ["cancelled", "too late"])
def test_given_a_create_whose_reply_was_lost_when_the_job_has_ended_then_its_job_is_found_all_the_same(
    simulator: SimulatorServer, ended: str
) -> None:
    pipeline = line(simulator, "bedrock", calls=[{"on": "create", "fault": "lost_reply"}])
    item = planned(pipeline, RECORDS, deadline="1h")
    pipeline.submit(item)
    if ended == "cancelled":
        cancel_job.run(item.job_key, pipeline.ledger, pipeline.clock)
    pipeline.wait(3600)

    job = finish(pipeline, item)

    (create,) = journal(pipeline)["creates"]
    assert (row(pipeline, item).provider_job_id, job.counts["succeeded"]) == (create["job_id"], RECORDS)


@pytest.mark.parametrize("refusal", [ProviderRefused("no access", account=True), QuotaRefused("too many")])
def test_given_a_refusal_that_comes_after_another_worker_has_sent_the_token_when_written_then_that_ones_job_is_bound(
    simulator: SimulatorServer, refusal: Exception
) -> None:
    """Each call with one token has an answer of its own: a refused one says nothing of the other's."""
    pipeline = line(simulator, "bedrock")
    item = planned(pipeline, RECORDS)
    awake = pipeline.provider

    def refused(inner: Any, **asked: Any) -> Any:
        pipeline.provider = Hooked(awake, create=created_and_slow)
        replies.append(pipeline.submit(item).status)
        raise refusal

    def created_and_slow(inner: Any, **asked: Any) -> Any:
        """The other worker: its job is there, and it is not bound before the refusal was written."""
        job = inner.create(**asked)
        raise CreateUnknown("the reply is late", where=job.id)

    replies: list[str] = []
    pipeline.provider = Hooked(awake, create=refused)
    replies.append(pipeline.submit(item).status)
    pipeline.provider = awake

    assert replies == ["unknown", "unknown"]
    job = finish(pipeline, item)
    assert (job.state.value, job.attempt, job.counts["succeeded"]) == ("COMPLETED", 1, RECORDS)
    (create,) = journal(pipeline)["creates"]
    assert (row(pipeline, item).provider_job_id, row(pipeline, item).ghosts) == (create["job_id"], ())


def assert_all_is_booked(pipeline: Pipeline, item: ShardItem) -> None:
    found = row(pipeline, item)
    both = Counter(found.tokens) + Counter(found.duplicate_tokens)
    assert both == +Counter(journal(pipeline)["tokens_billed"])
    assert found.anomalies["duplicate_submission"] == len(found.ghosts) == 1
    assert found.duplicate_cost_nano_usd > 0


def test_given_a_duplicate_that_a_late_worker_notes_after_the_reconciliation_when_it_has_ended_then_a_sweep_books_it(
    simulator: SimulatorServer,
) -> None:
    """An execution that was started twice: one collects long after the other has sealed the job."""
    late = {"fault": "invisible_in_list_for_s:9000", "durations": {**QUICK, "in_progress": 20_000}}
    pipeline = line(simulator, calls=[{"on": "create", "fault": "lost_reply"}], jobs=[late])
    item = planned(pipeline, RECORDS)
    assert finish(pipeline, item).state.value == "COMPLETED"
    pipeline.wait(9000)

    with pytest.raises(ProviderUnavailable, match="has not ended yet"):
        pipeline.collect(item)
    assert len(row(pipeline, item).ghosts) == 1
    assert [orphan.state for orphan in pipeline.sweep().orphans] == ["cancelling"]
    assert row(pipeline, item).duplicate_tokens == {}
    pipeline.wait(60)
    pipeline.sweep()

    assert_all_is_booked(pipeline, item)
    assert (pipeline.sweep().known, pipeline.sweep().orphans) == (2, [])
    assert_all_is_booked(pipeline, item)


def test_given_a_duplicate_of_a_submission_that_ends_without_a_job_when_swept_then_its_bill_is_booked_once(
    simulator: SimulatorServer,
) -> None:
    hidden = {"fault": f"invisible_in_list_for_s:{SETTLED_S + 60}"}
    busy = {"on": "create", "nth": 2, "count": "always", "fault": "status:429"}
    pipeline = line(simulator, calls=[{"on": "create", "fault": "lost_reply"}, busy], jobs=[hidden])
    item = planned(pipeline, RECORDS, deadline="1h")
    pipeline.submit(item)
    while row(pipeline, item).generation == 1:
        pipeline.wait(30)
        pipeline.submit(item)
    pipeline.wait(200)
    pipeline.sweep()
    assert (row(pipeline, item).state.value, len(row(pipeline, item).ghosts)) == ("QUOTA_REFUSED", 1)

    job = finish(pipeline, item)
    pipeline.sweep()
    pipeline.sweep()

    assert (job.state.value, row(pipeline, item).refusal_code) == ("FAILED", "deadline")
    assert_all_is_booked(pipeline, item)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_given_two_stacks_of_one_account_with_the_same_file_when_both_work_then_neither_takes_the_others_job(
    simulator: SimulatorServer, provider: str
) -> None:
    first = line(simulator, provider)
    item = planned(first, RECORDS)
    first.submit(item)
    second = Pipeline(simulator, provider_name=provider, objects=MemoryObjects("another"))
    same = planned(second, RECORDS)
    assert same.job_key == item.job_key

    second.submit(same)

    assert row(first, item).provider_job_id != row(second, same).provider_job_id
    assert [orphan.why.partition(":")[0] for orphan in second.sweep().orphans] == ["unknown"]
    assert row(second, same).ghosts == ()


def test_given_two_stacks_with_the_same_file_when_one_create_is_not_heard_then_the_others_job_is_not_adopted(
    simulator: SimulatorServer,
) -> None:
    first = line(simulator, calls=[{"on": "create", "nth": 2, "fault": "drop_before"}])
    first.submit(planned(first, RECORDS))
    second = Pipeline(simulator, objects=MemoryObjects("another"))
    same = planned(second, RECORDS)

    assert [second.submit(same).status, second.submit(same).status] == ["unknown", "unknown"]
    assert row(second, same).submission_key == generation_key(row(second, same), 1)


def test_given_a_job_that_shows_up_while_the_next_generation_is_prepared_when_a_sweep_binds_it_then_none_is_created(
    simulator: SimulatorServer,
) -> None:
    """Absence was proven, and was wrong: the claim of the next generation meets the row as the sweep left it."""
    hidden = {"fault": f"invisible_in_list_for_s:{SETTLED_S + 60}"}
    pipeline = line(simulator, calls=[{"on": "create", "fault": "lost_reply"}], jobs=[hidden])
    item = planned(pipeline, RECORDS)
    pipeline.submit(item)
    awake = pipeline.provider

    def uploaded(inner: Any, *passed: Any, **named: Any) -> Any:
        pipeline.provider = awake
        pipeline.wait(SETTLED_S)
        assert len(pipeline.sweep().adopted) == 1
        return inner.upload(*passed, **named)

    pipeline.provider = Hooked(awake, upload=uploaded)
    for _ in range(int(SETTLED_S / 30) + 2):
        pipeline.wait(30)
        reply = pipeline.submit(item)
        if reply.status == "submitted":
            break

    (create,) = journal(pipeline)["creates"]
    found = row(pipeline, item)
    assert (reply.provider_job_id, found.provider_job_id, found.generation) == (create["job_id"], create["job_id"], 1)
    assert finish(pipeline, item).counts["succeeded"] == RECORDS


@pytest.mark.parametrize("provider", PROVIDERS)
def test_given_a_job_that_has_ended_when_a_cancel_comes_at_once_then_all_its_answers_count(
    simulator: SimulatorServer, provider: str
) -> None:
    pipeline = line(simulator, provider)
    item = planned(pipeline, RECORDS)
    pipeline.submit(item)
    awake = pipeline.provider

    def running_still(inner: Any, job_id: str) -> Any:
        """Told as it was before it ended."""
        job = inner.get(job_id)
        pipeline.wait(200)
        return job

    cancel_job.run(item.job_key, pipeline.ledger, pipeline.clock)
    pipeline.provider = Hooked(awake, get=running_still)
    assert pipeline.poll(item).status == "running"
    pipeline.provider = awake

    job = finish(pipeline, item)

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", RECORDS)
    assert len(journal(pipeline)["creates"]) == 1
