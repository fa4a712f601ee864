"""Rules, quotes and fenced JSON on the whole line: what an answer must satisfy before it is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tests.support.films import classes, films, histories, key_of, report, results, scenario, spec, spent
from tests.support.pipeline import Pipeline

RECORDS = 8
QUOTING = """\
name: genre
provider: {provider}
model: {model}
endpoint: {endpoint}
input: {{key: id, fields: [title]}}
prompt: {{user: "{{{{ title }}}}"}}
output:
  schema:
    type: object
    additionalProperties: false
    required: [genre, quote]
    properties: {{genre: {{type: string}}, quote: {{type: string}}}}
retry: {{max_attempts: 3, backoff: 1m}}
quality: {{quotes: [/quote]}}
"""


def with_rules(*rules: str, **changed: Any) -> str:
    return spec(**changed) + "quality:\n  rules:\n" + "".join(f"    - {rule}\n" for rule in rules)


def test_given_a_rule_that_an_answer_breaks_when_reconciled_then_its_text_is_the_reason_and_the_answer_is_not_told(
    pipeline: Pipeline,
) -> None:
    rule = "input.title != 'Film-003.'"
    pipeline.push_spec(with_rules("output.confidence >= 0.0", rule))

    job = pipeline.run(films(RECORDS))

    told = histories(pipeline.objects, job)
    assert [row.outcome.value for row in told[key_of(3)]] == ["unqualified"] * 3
    assert {row.reason for row in told[key_of(3)]} == {f"rule 2 `{rule}` is false"}
    assert all(row.raw is not None for row in told[key_of(3)])
    assert classes(pipeline.objects, job)[key_of(4)] == ["succeeded"]
    assert (job.state.value, job.counts["succeeded"], job.counts["failed"]) == ("COMPLETED", RECORDS - 1, 1)
    assert pipeline.verify(job).ok


def test_given_a_rule_that_cannot_be_evaluated_when_reconciled_then_it_fails_with_the_kind_of_error(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(with_rules("output['year'] > 1900", retry_unqualified="false"))

    job = pipeline.run(films(RECORDS))

    (row,) = histories(pipeline.objects, job)[key_of(1)]
    assert row.outcome.value == "unqualified"
    assert row.reason == "rule 1 `output['year'] > 1900` cannot be evaluated: a field is missing"
    assert (job.state.value, list(pipeline.objects.list("results/"))) == ("FAILED", [])


@pytest.mark.parametrize("provider", ["openai", "bedrock", "gemini"])
def test_given_an_answer_in_a_code_block_when_reconciled_then_it_is_accepted_and_noted(
    simulator: SimulatorServer, provider: str
) -> None:
    pipeline = Pipeline(simulator, provider_name=provider)
    scenario(simulator.control, records=[{"fault": "fenced_json", "contains": "Film-003."}])
    pipeline.push_spec(spec(provider))

    job = pipeline.run(films(100))

    (row,) = histories(pipeline.objects, job)[key_of(3)]
    assert (row.outcome.value, row.notes) == ("succeeded", ("fenced_json",))
    (result,) = [line for line in results(pipeline.objects, job) if line["business_key"] == key_of(3)]
    assert set(result["output"]) == {"genre", "confidence"}
    assert pipeline.verify(job).ok


@pytest.mark.parametrize("provider", ["openai", "bedrock", "gemini"])
def test_given_quotes_when_two_answers_come_back_under_each_others_ids_then_both_are_found_out_and_asked_again(
    simulator: SimulatorServer, provider: str
) -> None:
    """Without quotes nothing tells: both answers are well formed."""
    pipeline = Pipeline(simulator, provider_name=provider)
    model, endpoint = {
        "openai": ("gpt-5-mini-2025-08-07", "/v1/responses"),
        "bedrock": ("amazon.nova-lite-v1:0", "Converse"),
        "gemini": ("gemini-2.5-flash", "generateContent"),
    }[provider]
    swap = {"fault": "swapped_id", "contains": "Film-003.", "times": 1}
    scenario(simulator.control, records=[swap], limits={"min_records": 1})
    pipeline.push_spec(QUOTING.format(provider=provider, model=model, endpoint=endpoint))

    job = pipeline.run(films(100))

    told = histories(pipeline.objects, job)
    swapped = {key for key, rows in told.items() if rows[0].outcome.value == "unqualified"}
    assert key_of(3) in swapped
    assert len(swapped) == 2
    assert {told[key][0].reason for key in swapped} == {"quote /quote does not occur in the input"}
    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", 100)
    for row in results(pipeline.objects, job):
        number = int(row["business_key"][1:])
        assert row["output"]["quote"] == f"Film-{number:03}."


def test_given_stricter_rules_when_answers_are_reused_then_those_that_break_them_are_not_and_nothing_is_paid(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    first = pipeline.run(films(RECORDS))
    paid = spent(pipeline.simulator.control)
    pipeline.push_spec(with_rules("input.title != 'Film-003.'"))

    second = pipeline.run(films(RECORDS), version="v2")

    assert spent(pipeline.simulator.control) == paid
    assert (second.state.value, second.counts["reused"], second.counts["failed"]) == ("COMPLETED", RECORDS - 1, 1)
    (row,) = histories(pipeline.objects, second)[key_of(3)]
    assert (row.outcome.value, row.code) == ("permanent", "not_reusable")
    assert row.reason.startswith(f"the answer of job {first.job_key} cannot be reused: rule 1 ")
    assert "output.schema_version" in row.reason
    assert key_of(3) not in {line["business_key"] for line in results(pipeline.objects, second)}
    assert pipeline.verify(second).ok
    assert len(results(pipeline.objects, first)) == RECORDS


def test_given_a_job_that_failed_by_its_rules_when_dropped_again_with_other_rules_then_it_is_refused_and_told_how(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(with_rules("output.confidence > 2.0", max_attempts=1))
    job = pipeline.run(films(RECORDS))
    assert job.state.value == "FAILED"
    paid = spent(pipeline.simulator.control)
    pipeline.push_spec(with_rules("output.confidence > 0.0", max_attempts=1))

    reply = pipeline.drop(films(RECORDS))

    refusal = report(pipeline.objects, pipeline.job(reply["job_key"]))["refusal"]
    assert refusal["what"] == "the checks of records were changed"
    assert [problem["key"] for problem in refusal["first"]] == ["quality.rules"]
    assert spent(pipeline.simulator.control) == paid
    assert pipeline.job(job.job_key).state.value == "FAILED"
    assert pipeline.run(films(RECORDS), version="v2").state.value == "COMPLETED"
