"""The on-demand lane in the whole line: models without batches, too few records, a near deadline; and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.domain.rows import Job
from tallybatch.steps import cancel_job
from tests.support.films import classes, films, histories, key_of, report, results, scenario, spec, tokens_of
from tests.support.pipeline import Pipeline

PROVIDERS = ("openai", "bedrock", "gemini")
COUNT = 120
FAILING = (7, 60, 111)
"""Films whose first answer is an error, fewer than Bedrock takes in a job."""


def made(simulator: SimulatorServer, provider: str = "bedrock", *, least: int = 100, **keys: Any) -> Pipeline:
    pipeline = Pipeline(simulator, provider_name=provider, min_records={"bedrock": least})
    scenario(simulator.control, **keys)
    return pipeline


def text(provider: str = "bedrock", *, lane: str = "batch", retry: str = "", **changed: Any) -> str:
    return spec(provider, **changed).replace("backoff: 1m", f"backoff: 1m{retry}") + f"lane: {lane}\n"


def run(pipeline: Pipeline, spec_text: str, count: int = COUNT) -> Job:
    pipeline.push_spec(spec_text)
    return pipeline.run(films(count))


def failing(*numbers: int, fault: str = "error_500") -> list[dict[str, Any]]:
    return [{"fault": fault, "contains": f"Film-{number:03}."} for number in numbers]


def booked(pipeline: Pipeline, job: Job) -> dict[str, int]:
    """Tokens in the ledger, those of duplicates and of lost calls included."""
    total = {"input": 0, "cached_input": 0, "output": 0, "reasoning": 0}
    for row in pipeline.ledger.submissions(job.job_key):
        for tokens in (row.tokens, row.duplicate_tokens):
            for kind, count in tokens.items():
                total[kind] += count
    return total


def assert_honest(pipeline: Pipeline, job: Job) -> dict[str, Any]:
    """The ledger, the certificate and the bill say the same; returns the journal."""
    journal = pipeline.simulator.control.journal()
    billed = journal["tokens_billed"]
    assert booked(pipeline, job) == billed
    if job.state.value == "COMPLETED":
        assert tokens_of(pipeline.certificate(job)) == billed
        assert pipeline.verify(job).difference == ""
    return journal


@pytest.mark.parametrize("provider", PROVIDERS)
def test_given_a_model_without_batches_when_run_then_each_record_is_asked_once_and_published(
    simulator: SimulatorServer, provider: str
) -> None:
    pipeline = made(simulator, provider)

    job = run(pipeline, text(provider, lane="on_demand"), count=60)

    assert (job.state.value, job.counts["succeeded"], job.attempt) == ("COMPLETED", 60, 1)
    assert (job.counts["provider_jobs"], job.counts["submissions"]) == (0, 3)
    journal = assert_honest(pipeline, job)
    assert journal["calls"] == {f"{provider}.sync": 60}
    assert not any(journal["tokens_per_lane"]["batch"].values())
    rows = results(pipeline.objects, job)
    assert {row["provider_job_id"] for row in rows} == {"on-demand"}
    assert sorted(row["business_key"] for row in rows) == [key_of(number) for number in range(1, 61)]
    assert report(pipeline.objects, job)["counts"]["provider_jobs"] == 0
    found = pipeline.sweep()
    assert (found.orphans, found.stale, found.gaps) == ([], [], [])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_given_a_rate_limit_and_failures_when_run_on_demand_then_it_waits_and_pays_once(
    simulator: SimulatorServer, provider: str
) -> None:
    faults = [*failing(3, fault="error_429"), *failing(5, 6, fault="error_500"), *failing(9, fault="error_400")]
    pipeline = made(
        simulator, provider, records=faults, calls=[{"on": "sync", "fault": "status:429", "retry_after_s": 120}]
    )
    began = pipeline.clock.now()

    job = run(pipeline, text(provider, lane="on_demand"), count=12)

    assert (job.state.value, job.counts["succeeded"], job.counts["failed"]) == ("COMPLETED", 11, 1)
    assert pipeline.clock.now() - began >= 120
    journal = pipeline.simulator.control.journal()
    assert journal["calls"] == {f"{provider}.sync": 12 + 1 + 1 + 2}
    (row,) = pipeline.ledger.submissions(job.job_key)
    assert row.anomalies == {"reply_lost": 2}, "a 500 may have been carried out"
    told = histories(pipeline.objects, job)
    twice = sum(told[key_of(number)][0].usage.input for number in (5, 6))
    assert booked(pipeline, job)["input"] == journal["tokens_billed"]["input"] + twice


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("fault", ["lost_reply", "reply_500_after", "cut_body"])
def test_given_an_answer_that_never_came_when_asked_again_then_both_calls_are_booked(
    simulator: SimulatorServer, provider: str, fault: str
) -> None:
    pipeline = made(simulator, provider, calls=[{"on": "sync", "fault": fault, "nth": 4}])

    job = run(pipeline, text(provider, lane="on_demand"), count=12)

    assert (job.state.value, job.counts["succeeded"], job.attempt) == ("COMPLETED", 12, 1)
    journal = assert_honest(pipeline, job)
    assert journal["calls"] == {f"{provider}.sync": 13}
    (row,) = pipeline.ledger.submissions(job.job_key)
    assert row.anomalies == {"reply_lost": 1}
    assert [rows[0].notes for rows in histories(pipeline.objects, job).values() if rows[0].notes] == [("reply_lost",)]


def test_given_calls_that_never_answer_when_retried_then_the_record_says_so_and_its_tries_are_bounded(
    simulator: SimulatorServer,
) -> None:
    pipeline = made(simulator, "openai", calls=[{"on": "sync", "fault": "lost_reply", "count": "always"}])

    job = run(pipeline, text("openai", lane="on_demand", max_attempts=2), count=3)

    assert job.state.value == "FAILED", "a job without one accepted answer publishes nothing"
    told = histories(pipeline.objects, job)
    assert {tuple((row.outcome.value, row.code) for row in rows) for rows in told.values()} == {
        (("missing", "reply_lost"), ("missing", "reply_lost"))
    }
    assert pipeline.simulator.control.journal()["calls"] == {"openai.sync": 3 * 2 * 2}
    assert report(pipeline.objects, job)["anomalies"][0]["anomaly"] == "reply_lost"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_given_a_model_that_does_not_exist_when_asked_then_one_call_is_enough_to_know(
    simulator: SimulatorServer, provider: str
) -> None:
    pipeline = made(simulator, provider, models={"refuse": ["*"]})

    job = run(pipeline, text(provider, lane="on_demand"), count=12)

    assert job.state.value == "FAILED"
    assert "refused every shard" in job.reason
    assert pipeline.simulator.control.journal()["calls"] == {f"{provider}.sync": 1}


# Too few for a provider job


def test_given_three_retryable_records_on_bedrock_when_small_set_is_on_demand_then_they_are_asked_one_by_one(
    simulator: SimulatorServer,
) -> None:
    pipeline = made(simulator, records=failing(*FAILING))

    job = run(pipeline, text(retry=", small_set: on_demand"))

    assert (job.state.value, job.counts["succeeded"], job.attempt) == ("COMPLETED", COUNT, 2)
    journal = assert_honest(pipeline, job)
    assert (len(journal["creates"]), journal["calls"]["bedrock.sync"]) == (1, 3)
    batch, single = pipeline.ledger.submissions(job.job_key)
    assert (batch.lane, single.lane) == ("batch", "on_demand")
    by_batch = batch.cost_nano_usd / (batch.tokens["input"] + 4 * batch.tokens["output"])
    by_call = single.cost_nano_usd / (single.tokens["input"] + 4 * single.tokens["output"])
    assert by_call == pytest.approx(2 * by_batch), "Nova's output costs four times its input; a batch costs half"
    told = classes(pipeline.objects, job)
    assert {key: history for key, history in told.items() if len(history) > 1} == {
        key_of(number): ["retryable", "succeeded"] for number in FAILING
    }


def test_given_three_retryable_records_on_bedrock_when_small_set_is_wait_then_they_wait_as_long_as_others_can_join(
    simulator: SimulatorServer,
) -> None:
    pipeline = made(simulator, records=failing(*FAILING))

    job = run(pipeline, text())

    assert (job.state.value, job.counts["succeeded"], job.counts["failed"]) == ("COMPLETED", COUNT - 3, 3)
    told = histories(pipeline.objects, job)
    assert {tuple((row.outcome.value, row.code, row.tries) for row in told[key_of(n)][1:]) for n in FAILING} == {
        (("waiting", "too_few", 1), ("too_few", "too_few", 1))
    }
    journal = assert_honest(pipeline, job)
    assert (len(journal["creates"]), journal["calls"].get("bedrock.sync", 0)) == (1, 0)
    (failed,) = report(pipeline.objects, job)["failed_by_class"]
    assert failed["class"] == "too_few"
    assert "small_set" in failed["meaning"]


def test_given_three_retryable_records_on_bedrock_when_small_set_is_review_then_people_get_them(
    simulator: SimulatorServer,
) -> None:
    pipeline = made(simulator, records=failing(*FAILING))

    job = run(pipeline, text(retry=", small_set: review"))

    assert (job.state.value, job.counts["succeeded"], job.counts["in_review"]) == ("PARTIAL", COUNT - 3, 3)
    told = histories(pipeline.objects, job)
    assert {tuple((row.outcome.value, row.code, row.tries) for row in told[key_of(n)][1:]) for n in FAILING} == {
        (("too_few", "too_few", 1),)
    }
    journal = assert_honest(pipeline, job)
    assert (len(journal["creates"]), journal["calls"].get("bedrock.sync", 0)) == (1, 0)


def test_given_records_that_wait_when_enough_others_fail_too_then_they_go_out_together(
    simulator: SimulatorServer,
) -> None:
    pipeline = made(simulator, least=5, limits={"min_records": 5}, records=failing(*range(1, 9)))

    job = run(pipeline, text(shard_records=10), count=12)

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", 12)
    told = classes(pipeline.objects, job)
    assert told[key_of(11)] == told[key_of(12)] == ["waiting", "succeeded"]
    sent = [row.input_records for row in pipeline.ledger.submissions(job.job_key)]
    assert sent == [10, 0, 10]
    assert_honest(pipeline, job)


def test_given_a_tail_below_the_minimum_when_the_file_is_cut_then_the_last_two_shards_share_their_records(
    simulator: SimulatorServer,
) -> None:
    pipeline = made(simulator, limits={"min_records": 100})

    job = run(pipeline, text(shard_records=200), count=203)

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", 203)
    assert [row.input_records for row in pipeline.ledger.submissions(job.job_key)] == [102, 101]


def test_given_a_tail_that_cannot_be_helped_when_small_set_is_on_demand_then_it_is_asked_one_by_one(
    simulator: SimulatorServer,
) -> None:
    pipeline = made(simulator, limits={"min_records": 100})

    job = run(pipeline, text(shard_records=100, retry=", small_set: on_demand"), count=130)

    assert (job.state.value, job.counts["succeeded"], job.attempt) == ("COMPLETED", 130, 1)
    rows = pipeline.ledger.submissions(job.job_key)
    assert [(row.lane, row.input_records) for row in rows] == [("batch", 100), ("on_demand", 25), ("on_demand", 5)]
    assert_honest(pipeline, job)


def test_given_most_records_answered_before_when_the_rest_is_too_few_then_the_shard_changes_its_lane(
    simulator: SimulatorServer,
) -> None:
    pipeline = made(simulator, limits={"min_records": 100})
    run(pipeline, text(retry=", small_set: on_demand"), count=110)
    pipeline.simulator.control.reset()

    job = pipeline.run(films(120), name="more.jsonl", version="v2")

    assert (job.state.value, job.counts["succeeded"], job.counts["reused"]) == ("COMPLETED", 120, 110)
    journal = pipeline.simulator.control.journal()
    assert (journal["creates"], journal["calls"]) == ([], {"bedrock.sync": 10})
    assert pipeline.verify(job).ok


@pytest.mark.parametrize(
    ("small_set", "lane", "state"),
    [("wait", "batch", "FAILED"), ("on_demand", "batch", "COMPLETED"), ("wait", "on_demand", "COMPLETED")],
)
def test_given_a_whole_file_below_the_minimum_when_dropped_then_only_single_calls_can_take_it(
    simulator: SimulatorServer, small_set: str, lane: str, state: str
) -> None:
    pipeline = made(simulator)

    job = run(pipeline, text(lane=lane, retry=f", small_set: {small_set}"), count=3)

    assert job.state.value == state
    assert not pipeline.simulator.control.journal()["creates"]


# Before the deadline


@pytest.mark.parametrize("provider", PROVIDERS)
def test_given_a_job_that_hangs_when_the_deadline_is_near_then_it_is_cancelled_and_the_rest_is_asked(
    simulator: SimulatorServer, provider: str
) -> None:
    pipeline = made(simulator, provider, least=1, limits={"min_records": 1}, jobs=[{"fault": "stuck", "done": 0.5}])
    began = pipeline.clock.now()

    job = run(pipeline, text(provider, retry=", deadline_rescue: 30m", deadline="3h"), count=12)

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", 12)
    assert 2.4 * 3600 < pipeline.clock.now() - began < 3 * 3600
    journal = pipeline.simulator.control.journal()
    assert len(journal["creates"]) == len(journal["cancels"]) == 1
    assert journal["calls"][f"{provider}.sync"] in (6, 12), "what the job had done is kept"
    assert_honest(pipeline, job)


def test_given_no_quota_when_the_deadline_is_near_then_the_records_are_asked_one_by_one(
    simulator: SimulatorServer,
) -> None:
    pipeline = made(simulator, "openai", quota={"creates_per_hour": 0})

    job = run(pipeline, text("openai", retry=", deadline_rescue: 30m", deadline="3h"), count=12)

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", 12)
    assert {row.tries for rows in histories(pipeline.objects, job).values() for row in rows[:-1]} == {0}
    journal = assert_honest(pipeline, job)
    assert (journal["creates"], journal["calls"]["openai.sync"]) == ([], 12)


def test_given_a_cancelled_job_when_its_records_are_half_asked_then_no_further_call_is_made(
    simulator: SimulatorServer,
) -> None:
    pipeline = made(simulator, "openai")
    asked: list[bytes] = []
    lane = pipeline.on_demand

    class Cancelling:
        name = "openai"

        def answer(self, line: bytes, *, endpoint: str, model: str) -> bytes:
            asked.append(line)
            if len(asked) == 5:
                (job,) = pipeline.ledger.jobs()
                cancel_job.run(job.job_key, pipeline.ledger, pipeline.clock)
            return lane.answer(line, endpoint=endpoint, model=model)

    pipeline.on_demand = Cancelling()

    job = run(pipeline, text("openai", lane="on_demand"), count=12)

    assert (job.state.value, len(asked)) == ("CANCELLED", 5)
    told = histories(pipeline.objects, job)
    assert sum(rows[0].outcome.value == "succeeded" for rows in told.values()) == 5
    assert {rows[0].tries for rows in told.values() if rows[0].outcome.value == "missing"} == {0}
    pipeline.on_demand = lane
    again = pipeline.run(films(12), name="again.jsonl")
    assert (again.state.value, again.counts["succeeded"]) == ("COMPLETED", 12)
    assert pipeline.simulator.control.journal()["calls"] == {"openai.sync": 12}
