"""What `cost` counts beside what the job, its report and its certificate say: over parts, people and later runs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tallybatch.domain.cost_report import facts_of, grouped
from tallybatch.domain.rows import Job
from tests.support.films import films, lines, report, results, scenario, spec
from tests.support.pipeline import Pipeline
from tests.workflow.test_resumed_jobs import RECORDS as MANY
from tests.workflow.test_resumed_jobs import cancelled_at_two_fifths, newest
from tests.workflow.test_review import RECORDS, accept, file_of, in_review, reject, review_spec

A_LOOK = 10**9
"""What it costs that a person looks at a record, in nano-dollars."""


def told(pipeline: Pipeline, job: Job, *by: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    facts = facts_of(job, pipeline.ledger.submissions(job.job_key), human_nano_usd=A_LOOK)
    return grouped(facts, by or ("tenant",))


def counts(pipeline: Pipeline, job: Job) -> dict[str, int]:
    counted: dict[str, int] = told(pipeline, job)[1]["records"]
    return counted


def agrees(pipeline: Pipeline, job: Job) -> bool:
    """`cost` says the same as report and certificate, but for what people cost."""
    total = told(pipeline, job)[1]
    spent = Decimal(total["cost_usd"]) - Decimal(total["lines"]["human_handling"])
    said = report(pipeline.objects, job)["money"]
    accepted = total["records"]["accepted"]
    each = f"{round(spent.scaleb(9) / accepted) / 10**9:.9f}".rstrip("0")
    proven = newest(pipeline, job).cost_usd if job.certificate else said["cost_usd"]
    return spent == Decimal(said["cost_usd"]) == Decimal(proven or "") and each == said["cost_per_accepted_usd"]


def test_given_a_part_that_was_published_when_counted_then_it_is_published_and_what_came_later_only_with_the_whole(
    pipeline: Pipeline,
) -> None:
    job = cancelled_at_two_fifths(pipeline)
    assert counts(pipeline, job)["published"] == 0
    pipeline.resume(job.job_key, "publish_partial")
    job = pipeline.run_again(job.job_key)
    assert counts(pipeline, job)["published"] == len(results(pipeline.objects, job)) == 8
    pipeline.resume(job.job_key)
    assert counts(pipeline, pipeline.job(job.job_key))["published"] == 8, "it still is while the rest is asked"
    job = pipeline.run_again(job.job_key)
    assert counts(pipeline, job)["published"] == len(results(pipeline.objects, job)) == MANY
    assert agrees(pipeline, job)


def test_given_decisions_of_people_when_counted_then_their_work_is_told_and_no_provider_was_asked_for_it(
    pipeline: Pipeline,
) -> None:
    job = in_review(pipeline)
    before = told(pipeline, job)[1]
    assert before["lines"]["human_handling"] == "3"
    pipeline.hand_in(job, file_of(accept(2), reject(4)))
    job = pipeline.run_again(job.job_key)
    total = told(pipeline, job)[1]
    assert total["lines"]["human_handling"] == "3", "two decided, one waits"
    assert (total["records"]["decided"], total["records"]["in_review"]) == (2, 1)
    pipeline.hand_in(job, file_of(accept(6)))
    job = pipeline.run_again(job.job_key)

    rows, total = told(pipeline, job, "model")
    assert [row["model"] for row in rows] == ["openai gpt-5-mini-2025-08-07"]
    assert total["lines"]["human_handling"] == "3"
    for name in ("submitted", "completed"):
        assert total["records"][name] == before["records"][name]
    assert total["records"]["published"] == total["records"]["accepted"] == job.counts["succeeded"] == RECORDS - 1
    assert total["aws_cost_usd"] >= before["aws_cost_usd"]
    assert agrees(pipeline, job)


def test_given_answers_that_people_took_back_when_counted_then_they_are_accepted_and_published_no_more(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control)
    pipeline.push_spec(review_spec(review_sample=3))
    job = pipeline.run(films(RECORDS))
    first, second, third = lines(pipeline.objects.get(pipeline.keys(job).review_sample))
    decisions = [
        {"business_key": first["business_key"], "decision": "reject", "reason": "wrong"},
        {"business_key": second["business_key"], "decision": "requeue"},
        {"business_key": third["business_key"], "decision": "accept"},
    ]
    pipeline.hand_in(job, file_of(*decisions))
    job = pipeline.run_again(job.job_key)

    counted = counts(pipeline, job)
    assert counted["accepted"] == counted["published"] == len(results(pipeline.objects, job)) == RECORDS - 1
    assert (counted["submitted"], counted["decided"]) == (RECORDS + 1, 3)
    assert agrees(pipeline, job)


def test_given_the_same_file_again_when_counted_then_reused_answers_are_published_and_not_accepted_twice(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    pipeline.run(films(4))
    job = pipeline.run(films(6), version="v2")
    counted = counts(pipeline, job)
    assert (counted["submitted"], counted["accepted"], counted["published"]) == (2, 2, 6)
    assert agrees(pipeline, job)
