"""Ghosts: a second provider job for the same work, however it came about. One is kept, the other is cancelled, its paid
answers are used where there is no other, and both bills are booked."""

from __future__ import annotations

from typing import Any

import pytest

from tallybatch.contracts import JobInput, ShardItem
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tallybatch.domain.submitting import CREATE_TIMEOUT_S
from tallybatch.ports import ProviderApi, ProviderJob
from tallybatch.steps import submit_shard
from tallybatch.steps.collect_shard import ghost_prefix
from tests.support.films import attempt_outcomes, histories, report, results, scenario, tokens_of
from tests.support.one_shard import journal, planned, row
from tests.support.pipeline import RULES, Pipeline

RECORDS = 20
SETTLED_S = RULES.create_within_s + CREATE_TIMEOUT_S + RULES.settle_window_s
SLOW = {"validating": 10, "in_progress": 3000, "finalizing": 10, "cancelling": 30}
QUICK = {"validating": 10, "in_progress": 60, "finalizing": 10, "cancelling": 60}


def created(pipeline: Pipeline) -> list[str]:
    """Ids of the provider's jobs in the order of their creation."""
    return [entry["job_id"] for entry in journal(pipeline)["creates"]]


def hidden(pipeline: Pipeline, *rules: dict[str, Any], hidden_s: float = SETTLED_S + 60, **keys: Any) -> None:
    """The first create is not heard, and its job is in no list for longer than anybody looks."""
    first = {"fault": f"invisible_in_list_for_s:{hidden_s}", "durations": SLOW}
    scenario(
        pipeline.simulator.control,
        calls=[{"on": "create", "fault": "lost_reply"}],
        jobs=[first, *rules],
        durations=QUICK,
        **keys,
    )


def finish(pipeline: Pipeline, item: ShardItem) -> Job:
    pipeline.work(JobInput(tenant="acme", job_key=item.job_key, bucket="bucket"))
    return pipeline.job(item.job_key)


def assert_both_bills_are_in_the_certificate(pipeline: Pipeline, job: Job) -> None:
    assert (job.state, job.reason, job.counts["succeeded"]) == (JobState.COMPLETED, "", RECORDS)
    assert len({row["business_key"] for row in results(pipeline.objects, job)}) == len(
        results(pipeline.objects, job)
    )  # fmt: skip
    assert tokens_of(pipeline.certificate(job)) == journal(pipeline)["tokens_billed"]
    assert pipeline.verify(job).ok


def test_given_a_job_hidden_beyond_the_settle_window_when_it_shows_up_then_one_is_kept_and_both_are_booked(
    pipeline: Pipeline,
) -> None:
    hidden(pipeline)
    item = planned(pipeline, RECORDS)

    job = finish(pipeline, item)

    ghost, kept = created(pipeline)
    found = row(pipeline, item)
    assert (found.generation, found.provider_job_id, found.ghosts) == (2, kept, (ghost,))
    assert [entry["job_id"] for entry in journal(pipeline)["cancels"]] == [ghost]
    assert found.anomalies == {"duplicate_submission": 1}
    assert sum(found.duplicate_tokens.values()) > 0
    assert_both_bills_are_in_the_certificate(pipeline, job)
    (entry,) = pipeline.certificate(job).submissions
    assert (set(entry.provider_jobs), entry.duplicate_tokens) == ({kept, ghost}, found.duplicate_tokens)
    assert job.counts["provider_jobs"] == 2
    assert {one.provider_job_id for one in attempt_outcomes(pipeline.objects, job, 1).values()} == {kept}
    (anomaly,) = report(pipeline.objects, job)["anomalies"]
    assert (anomaly["anomaly"], anomaly["count"]) == ("duplicate_submission", 1)
    assert anomaly["meaning"]


def test_given_a_bound_job_that_expires_when_its_ghost_has_more_answers_then_these_are_used_and_not_paid_again(
    pipeline: Pipeline,
) -> None:
    """The ghost is cancelled late enough to have answered records that the bound job had not come to."""
    hidden(pipeline, {"nth": 2, "fault": "expire", "done": 0.1, "durations": {**QUICK, "in_progress": 1200}})
    item = planned(pipeline, RECORDS)

    job = finish(pipeline, item)

    ghost, kept = created(pipeline)[:2]
    answered_by = [
        next(one.provider_job_id for one in history if one.outcome.value == "succeeded")
        for history in histories(pipeline.objects, job).values()
    ]
    assert answered_by.count(kept) == 2
    assert answered_by.count(ghost) >= 5
    from_ghost = [
        one
        for one in attempt_outcomes(pipeline.objects, job, 1).values()
        if one.provider_job_id == ghost and one.output
    ]
    assert {one.notes for one in from_ghost if one.outcome.value == "succeeded"} == {("duplicate_submission",)}
    assert all(one.raw and f"/raw/{ghost_prefix(ghost)}" in one.raw.uri for one in from_ghost if one.raw)
    retried = [entry.records for entry in pipeline.certificate(job).submissions if entry.attempt == 2]
    assert sum(retried) == RECORDS - answered_by.count(kept) - answered_by.count(ghost)
    assert_both_bills_are_in_the_certificate(pipeline, job)


def test_given_a_ghost_that_was_never_seen_when_the_bound_job_is_collected_then_it_is_looked_for_once_more(
    pipeline: Pipeline,
) -> None:
    """No sweep, and nobody resolves after the second create: only the collection looks."""
    hidden(pipeline)
    item = planned(pipeline, RECORDS)

    pipeline.run_shard(item)

    assert row(pipeline, item).ghosts == (created(pipeline)[0],)
    assert pipeline.tasks.count(("CollectShard", "ProviderUnavailable")) >= 1


def test_given_a_create_that_is_carried_out_twice_when_resolved_then_the_older_is_bound_and_the_other_cancelled(
    pipeline: Pipeline,
) -> None:
    """As after an SDK, or a proxy, that repeats what it should not: two jobs with one marker."""
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "lost_reply"}], durations=QUICK)
    item = planned(pipeline, RECORDS)
    pipeline.submit(item)
    pipeline.wait(5)
    twin_of(pipeline, item)

    assert pipeline.submit(item).status == "submitted"

    first, second = created(pipeline)
    assert (row(pipeline, item).provider_job_id, row(pipeline, item).ghosts) == (first, (second,))
    assert [entry["job_id"] for entry in journal(pipeline)["cancels"]] == [second]
    job = finish(pipeline, item)
    assert_both_bills_are_in_the_certificate(pipeline, job)
    assert row(pipeline, item).generation == 1


def twin_of(pipeline: Pipeline, item: ShardItem) -> ProviderJob:
    """One more create with the marker and the input file of the row as it is."""
    found = row(pipeline, item)
    return pipeline.provider.create(
        submission_key=found.submission_key, file_id=found.file_id, endpoint="/v1/responses", model="", output_uri=""
    )


class Between:
    """A provider with which something happens after a create was carried out, before its caller hears of it."""

    def __init__(self, inner: ProviderApi, happens: Any) -> None:
        self._inner = inner
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, **asked: Any) -> ProviderJob:
        job = self._inner.create(**asked)
        happens, self._happens = self._happens, lambda: None
        happens()
        return job


def test_given_a_worker_that_wakes_with_its_reply_after_the_next_generation_when_it_binds_then_it_has_a_ghost(
    pipeline: Pipeline,
) -> None:
    scenario(
        pipeline.simulator.control,
        jobs=[{"fault": "invisible_in_list_for_s:10000", "durations": SLOW}],
        durations=QUICK,
    )
    item = planned(pipeline, RECORDS)
    awake = pipeline.provider

    def others_go_on() -> None:
        pipeline.provider = awake
        while row(pipeline, item).generation == 1:
            pipeline.wait(30)
            pipeline.submit(item)

    pipeline.provider = Between(awake, others_go_on)
    reply = pipeline.submit(item)

    ghost, kept = created(pipeline)
    found = row(pipeline, item)
    assert (reply.provider_job_id, found.provider_job_id, found.ghosts, found.generation) == (kept, kept, (ghost,), 2)
    assert [entry["job_id"] for entry in journal(pipeline)["cancels"]] == [ghost]
    assert_both_bills_are_in_the_certificate(pipeline, finish(pipeline, item))


def test_given_a_worker_and_one_who_resolves_when_both_have_the_same_job_then_it_is_no_ghost_of_itself(
    pipeline: Pipeline,
) -> None:
    item = planned(pipeline, RECORDS)
    awake = pipeline.provider

    def another_resolves() -> None:
        pipeline.provider = awake
        assert pipeline.submit(item).status == "submitted"

    pipeline.provider = Between(awake, another_resolves)
    pipeline.submit(item)

    assert (row(pipeline, item).ghosts, journal(pipeline)["cancels"]) == ((), [])
    assert_both_bills_are_in_the_certificate(pipeline, finish(pipeline, item))


def test_given_a_ghost_that_shows_up_while_the_results_are_fetched_when_collected_then_it_is_not_left_out(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, durations=QUICK)
    item = planned(pipeline, RECORDS)
    pipeline.submit(item)
    pipeline.wait(100)
    pipeline.poll(item)
    inner = pipeline.provider

    class Slow(Between):
        def download(self, channel: str) -> Any:
            happens, self._happens = self._happens, lambda: None
            happens()
            return self._inner.download(channel)

    def swept() -> None:
        twin_of(pipeline, item)
        assert pipeline.sweep(cancel=True).orphans

    pipeline.provider = Slow(inner, swept)
    job = finish(pipeline, item)

    assert ("CollectShard", "LedgerBusy") in pipeline.tasks
    assert len(row(pipeline, item).ghosts) == 1
    assert_both_bills_are_in_the_certificate(pipeline, job)


@pytest.mark.parametrize(
    "job_id", ["batch_68a1", "arn:aws:bedrock:us-east-1:123456789012:model-invocation-job/abc", "batches/x-y_z"]
)
def test_given_any_providers_id_when_a_ghosts_channels_are_named_then_they_fit_a_key(job_id: str) -> None:
    prefix = ghost_prefix(job_id)
    assert prefix.startswith("ghost-")
    assert prefix.replace("-", "").isalnum()
    assert prefix != ghost_prefix(job_id + "0")


def test_given_a_marker_when_its_submission_is_looked_up_then_every_generation_leads_there(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "drop_before"}])
    item = planned(pipeline, RECORDS)
    pipeline.submit(item)
    first = row(pipeline, item).submission_key
    pipeline.run_shard(item)
    second = row(pipeline, item).submission_key

    assert first != second
    assert submit_shard.submission_at(first, pipeline.ledger) == row(pipeline, item)
    assert submit_shard.submission_at(second, pipeline.ledger) == row(pipeline, item)
    assert submit_shard.submission_at("0" * 64, pipeline.ledger) is None
