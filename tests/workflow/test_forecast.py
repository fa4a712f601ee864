"""The plan beside the truth: tokens, dollars, and a job that may cost too much, which never begins."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tallybatch.steps.dropped_file import DRY_RUN
from tests.support.films import DATA, films, scenario, spec, spent
from tests.support.pipeline import Pipeline

FILMS = 400


def forecast(line: Pipeline, body: bytes, name: str) -> dict[str, Any]:
    job_key = line.build(line.upload(body, spec=name, intent=DRY_RUN))["job_key"]
    told: dict[str, Any] = json.loads(line.objects.get(line.keys(line.job(job_key)).plan))
    return told


@pytest.mark.parametrize(
    ("provider", "name", "source"),
    [
        ("openai", "film-genre", "movies"),
        ("bedrock", "film-genre-bedrock", "movies"),
        ("gemini", "film-genre-gemini", "movies"),
        ("openai", "earthquakes-embedding", "earthquakes"),
        ("bedrock", "earthquakes-embedding-bedrock", "earthquakes"),
        ("gemini", "earthquakes-embedding-gemini", "earthquakes"),
    ],
)
def test_given_real_records_when_planned_then_tokens_are_within_three_percent_and_the_bill_within_low_and_high(
    pipeline: Pipeline, provider: str, name: str, source: str, record_property: Callable[[str, object], None]
) -> None:
    line = Pipeline(pipeline.simulator, provider_name=provider)
    text = (DATA / "specs" / f"{name}.yaml").read_text()
    body = b"".join((DATA / f"{source}.jsonl").read_bytes().splitlines(keepends=True)[:FILMS])
    label = text.partition("name: ")[2].split("\n")[0].strip()
    line.push_spec(text, name=label)

    told = forecast(line, body, label)
    job = line.run(body, spec=label)

    journal = line.simulator.control.journal()
    assert job.state.value == "COMPLETED"
    error = told["estimated_input_tokens"] / journal["tokens_billed"]["input"] - 1
    record_property("error_percent", f"{100 * error:+.2f}")
    assert abs(error) < 0.03
    nano = journal["billed_nano_usd"]
    assert Decimal(told["cost_low_usd"]) * 10**9 * Decimal("0.95") <= nano <= Decimal(told["cost_high_usd"]) * 10**9
    assert told["worst_case_input_tokens"] >= journal["tokens_billed"]["input"]


def test_given_a_job_that_may_cost_more_than_its_limit_when_dropped_then_it_stops_before_its_first_create(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec().replace("limits: {", "limits: {max_cost_usd: 0.001, "))
    job = pipeline.job(pipeline.drop(films(20))["job_key"])

    assert job.state.value == "FAILED"
    assert "limits.max_cost_usd: the job may cost 0.02" in job.reason
    assert "its limit is 0.001" in job.reason
    assert spent(pipeline.simulator.control) == (0, 0)


def test_given_a_limit_that_the_worst_case_stays_within_when_run_then_the_job_completes_within_it(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec().replace("limits: {", "limits: {max_cost_usd: 1, "))
    job = pipeline.run(films(20))

    assert job.state.value == "COMPLETED"
    assert Decimal(pipeline.certificate(job).cost_usd or "9") <= 1


def test_given_a_limit_and_no_cap_on_answers_when_dropped_then_refused_because_nobody_can_tell(
    pipeline: Pipeline,
) -> None:
    text = (
        spec().replace("limits: {", "limits: {max_cost_usd: 1, ").replace("generation: {max_output_tokens: 400}\n", "")
    )
    pipeline.push_spec(text)
    job = pipeline.job(pipeline.drop(films(20))["job_key"])

    assert job.state.value == "FAILED"
    assert "nobody can tell what the job may cost" in job.reason


def test_given_a_record_that_costs_too_much_when_tried_again_then_it_goes_to_people(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "bad_json", "contains": "Film-003.", "times": "always"}])
    text = spec().replace("limits: {", "limits: {max_cost_per_record_usd: 0.00005, ")
    pipeline.push_spec(text + "review: {classes: [over_cap]}\n")
    job = pipeline.run(films(20))

    assert job.state.value == "PARTIAL"
    assert job.counts["in_review"] == 1
    assert job.attempt < 3
