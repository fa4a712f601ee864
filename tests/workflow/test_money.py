"""Money: refused before a cent is spent where nobody knows the price, and booked to the nano-dollar ever after."""

from __future__ import annotations

import pytest

from tallybatch.domain.billing import money
from tests.support.bills import run_day
from tests.support.films import attempt_outcomes, films, report, results, scenario, spec
from tests.support.pipeline import Pipeline

UNKNOWN = "gpt-99-2026-11-01"
OVERRIDE = """\
prices:
  - {{provider: openai, model: {model}, class: batch, as_of: "2026-11-01", source: our contract, input: 1, output: 2}}
"""


def billed(pipeline: Pipeline) -> int:
    nano: int = pipeline.simulator.control.journal()["billed_nano_usd"]
    return nano


@pytest.mark.parametrize("provider", ["openai", "bedrock", "gemini"])
@pytest.mark.parametrize("seed", [30, 34])
def test_given_a_bad_day_when_the_bill_comes_then_the_ledger_has_it_to_the_nano_dollar_however_often_reconciled(
    pipeline: Pipeline, provider: str, seed: int
) -> None:
    bill = run_day(pipeline.simulator, seed, provider)

    assert (bill.difference, bill.unpriced) == (0, 0)
    assert bill.billed > 0


@pytest.mark.parametrize(
    ("provider", "other"),
    [
        ("openai", "{provider: gemini, model: gemini-2.5-flash}"),
        ("bedrock", "{provider: openai, model: gpt-5-mini-2025-08-07}"),
        ("gemini", "{provider: openai, model: gpt-5-mini-2025-08-07}"),
    ],
)
def test_given_a_canary_single_calls_and_a_fallback_on_a_bad_day_when_the_bill_comes_then_each_is_booked_once(
    pipeline: Pipeline, provider: str, other: str
) -> None:
    bill = run_day(
        pipeline.simulator,
        104,
        provider,
        min_records={provider: 10},
        retry=", small_set: on_demand, feedback: true, raise_output_cap: {max: 1600}",
        sections=f"canary: {{records: 12, min_acceptance: 0.05}}\nfallback: [{other}]",
    )

    assert (bill.difference, bill.unpriced) == (0, 0)
    assert pipeline.simulator.control.journal()["tokens_per_lane"]["on_demand"]["output"] > 0


def test_given_a_completed_job_when_its_money_is_read_then_rows_results_and_certificate_say_the_same(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "bad_schema", "contains": "Film-003."}])
    pipeline.push_spec(spec())
    job = pipeline.run(films(10))

    certificate = pipeline.certificate(job)
    first, second = pipeline.ledger.submissions(job.job_key)
    outcomes = attempt_outcomes(pipeline.objects, job, 1)
    assert sum(row.cost_nano_usd or 0 for row in outcomes.values()) == first.cost_nano_usd == sum(first.costs.values())
    assert set(first.costs) == {"succeeded", "unqualified"}
    assert {row.price for row in outcomes.values()} == {first.price} == {"batch@2026-10-14"}
    assert first.cost_nano_usd + second.cost_nano_usd == billed(pipeline)
    assert certificate.cost_usd == f"{billed(pipeline) / 10**9:.9f}".rstrip("0")
    rows = results(pipeline.objects, job)
    accepted = sum(round(float(row["cost_usd"]) * 10**9) for row in rows)
    spent = money((row.attempt, row.costs, row.duplicate_cost_nano_usd, row.unpriced) for row in (first, second))
    assert (spent.cost, spent.waste) == (billed(pipeline), first.costs["unqualified"])
    assert accepted == spent.cost - spent.waste
    assert spent.lines["quality_failure"] == spent.waste
    assert report(pipeline.objects, job)["money"]["cost_usd"] == certificate.cost_usd


def test_given_a_model_without_a_price_when_dropped_then_refused_before_anything_is_spent(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec(model=UNKNOWN))
    job = pipeline.job(pipeline.drop(films(3))["job_key"])

    assert job.state.value == "FAILED"
    assert "no price is known for openai gpt-99-2026-11-01 in class batch" in job.reason
    assert pipeline.simulator.control.journal()["creates"] == []


def test_given_a_limit_in_dollars_for_each_record_when_nobody_knows_the_price_then_refused_for_it_would_not_hold(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec(model=UNKNOWN, limits=", allow_unpriced: true, max_cost_per_record_usd: 0.05"))
    job = pipeline.job(pipeline.drop(films(3))["job_key"])

    assert job.state.value == "FAILED"
    assert "limits.max_cost_per_record_usd could not be kept" in job.reason


def test_given_a_price_file_that_is_mended_halfway_when_dropped_again_then_the_job_tells_what_is_wrong_now(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    reasons = []
    for body in (b"prices: 5\n", b"prices: [a]\n", b"prices: [a]\n"):
        pipeline.objects.put("prices/tenants/acme.yaml", body)
        pipeline.wait(60)
        job = pipeline.job(pipeline.drop(films(3))["job_key"])
        reasons.append(job.reason)
        assert report(pipeline.objects, job)["refusal"]["first"][0]["reason"] in job.reason
        bad_lines = pipeline.objects.get(pipeline.keys(job).bad_lines())
        assert report(pipeline.objects, job)["refusal"]["first"][0]["reason"].encode() in bad_lines
    assert reasons[0].startswith("the prices are refused in prices/tenants/acme.yaml: line 1: prices: 5")
    assert reasons[0] != reasons[1] == reasons[2]

    pipeline.objects.put("prices/tenants/acme.yaml", b"prices: []\n")
    assert pipeline.run(films(3)).state.value == "COMPLETED"


def test_given_that_the_spec_allows_it_when_run_without_a_price_then_cost_is_unknown_and_counted_never_zero(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec(model=UNKNOWN).replace("limits: {", "limits: {allow_unpriced: true, "))
    job = pipeline.run(films(3))

    assert job.state.value == "COMPLETED"
    (row,) = pipeline.ledger.submissions(job.job_key)
    assert (row.unpriced, row.cost_nano_usd, row.price) == (3, 0, "")
    assert pipeline.certificate(job).cost_usd is None
    assert {row["cost_usd"] for row in results(pipeline.objects, job)} == {None}
    assert {row.cost_nano_usd for row in attempt_outcomes(pipeline.objects, job, 1).values()} == {None}


@pytest.mark.parametrize("key", ["prices/prices.yaml", "prices/tenants/acme.yaml"])
def test_given_a_price_of_the_users_when_run_then_the_job_is_booked_at_it(pipeline: Pipeline, key: str) -> None:
    pipeline.objects.put(key, OVERRIDE.format(model=UNKNOWN).encode())
    pipeline.push_spec(spec(model=UNKNOWN))
    job = pipeline.run(films(3))

    (row,) = pipeline.ledger.submissions(job.job_key)
    assert row.cost_nano_usd == row.tokens["input"] * 1000 + row.tokens["output"] * 2000
    assert row.price == "batch@2026-11-01"


def test_given_a_damaged_file_of_prices_when_a_file_is_dropped_then_refused_with_line_and_key(
    pipeline: Pipeline,
) -> None:
    pipeline.objects.put("prices/prices.yaml", OVERRIDE.format(model=UNKNOWN).replace("input: 1", "input: x").encode())
    pipeline.push_spec(spec())
    job = pipeline.job(pipeline.drop(films(3))["job_key"])

    assert job.state.value == "FAILED"
    assert "line 2: prices[0].input" in job.reason


def test_given_prices_that_changed_when_the_job_goes_on_then_it_is_booked_at_those_it_began_with(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_500", "contains": "Film-003."}])
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(5))["job_key"]
    pipeline.objects.put("prices/prices.yaml", OVERRIDE.format(model="gpt-5-mini-2025-08-07").encode())
    pipeline.execute(job_key)

    rows = pipeline.ledger.submissions(job_key)
    assert {row.price for row in rows} == {"batch@2026-10-14"}
    assert sum(row.cost_nano_usd for row in rows) == billed(pipeline)


@pytest.mark.parametrize("provider", ["openai", "bedrock", "gemini"])
def test_given_records_asked_one_by_one_when_booked_then_at_the_prices_of_single_calls(
    pipeline: Pipeline, provider: str
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "cached_prompt", "rate": 0.5}])
    line = Pipeline(pipeline.simulator, provider_name=provider)
    line.push_spec(spec(provider) + "lane: on_demand\n")
    job = line.run(films(12))

    assert job.state.value == "COMPLETED"
    rows = line.ledger.submissions(job.job_key)
    assert {row.price.partition("@")[0] for row in rows} == {"on_demand"}
    assert sum(row.cost_nano_usd for row in rows) == billed(line) > 0
