"""`tallybatch cost`: rows, totals, waste, forecast; as a table, JSON and CSV."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest

from infra.local.simulator.client import SimulatorControl
from tests.support.films import scenario
from tests.support.operating import SPEC, Operator, films


@pytest.fixture
def spent(operator: Operator) -> Operator:
    """Two jobs of two tenants, one with an answer that breaks its schema once."""
    control: SimulatorControl = operator.pipeline.simulator.control
    scenario(control, records=[{"fault": "bad_schema", "contains": "Film 3"}])
    spec = SPEC + "generation: {max_output_tokens: 100}\n"
    operator.completed(6, spec=spec)
    operator.pipeline.push_spec(spec, tenant="zeta")
    operator.pipeline.run(films(4), tenant="zeta")
    return operator


def test_given_two_jobs_when_asked_then_rows_and_total_are_the_providers_bill(spent: Operator) -> None:
    said = spent.run("cost", "--json")

    billed = spent.pipeline.simulator.control.journal()["billed_nano_usd"]
    total = said.json["total"]
    assert said.code == 0
    assert [(row["tenant"], row["spec"]) for row in said.json["rows"]] == [("acme", "genre"), ("zeta", "genre")]
    assert Decimal(total["cost_usd"]).scaleb(9) == billed == sum(_nano(row["cost_usd"]) for row in said.json["rows"])
    assert total["waste_usd"] == total["lines"]["quality_failure"] != "0"
    parts = sum(_nano(value) for value in total["lines"].values())
    assert parts == billed
    counts = total["records"]
    assert (counts["accepted"], counts["published"], counts["in_review"]) == (10, 10, 0)
    assert counts["submitted"] == counts["completed"] > 10
    assert counts["schema_valid"] == 10
    assert _nano(total["cost_per_accepted_usd"]) == round(billed / 10)
    forecast = said.json["forecast"]
    assert forecast["jobs"] == 2
    assert _nano(forecast["cost_low_usd"]) <= billed <= _nano(forecast["cost_high_usd"])
    assert _nano(total["aws_cost_usd"]) > 0


def test_given_classes_when_grouped_by_them_then_each_line_has_its_row(spent: Operator) -> None:
    said = spent.run("cost", "--by", "class", "--json")

    rows = {row["class"]: row for row in said.json["rows"]}
    assert {"first_success", "later_success", "quality_failure", "aws", ""} == set(rows)
    assert rows["quality_failure"]["cost_usd"] == rows["quality_failure"]["waste_usd"]
    assert rows["first_success"]["waste_usd"] == "0"
    assert rows[""]["records"]["submitted"] == said.json["total"]["records"]["submitted"]


def test_given_csv_when_asked_then_it_holds_the_same_rows(spent: Operator) -> None:
    rows = list(csv.DictReader(io.StringIO(spent.run("cost", "--csv", "--by", "tenant,day").out)))

    told = spent.run("cost", "--json", "--by", "tenant,day").json["rows"]
    assert [(row["tenant"], row["cost_usd"], row["accepted"]) for row in rows] == [
        (row["tenant"], row["cost_usd"], str(row["records"]["accepted"])) for row in told
    ]


def test_given_a_job_or_a_tenant_when_asked_then_only_that_is_told(spent: Operator) -> None:
    job = next(iter(spent.pipeline.ledger.jobs(tenant="zeta")))

    one = spent.run("cost", "--job", job.job_key[:12], "--json").json
    assert one["jobs"] == 1
    assert one["total"] == spent.run("cost", "--tenant", "zeta", "--json").json["total"]
    people = spent.run("cost").out
    assert "per accepted record" in people
    assert "-" not in {line.strip() for line in people.splitlines()}


def test_given_nothing_to_tell_when_asked_for_csv_then_the_header_is_the_same(spent: Operator) -> None:
    nothing, something = (spent.run("cost", "--csv", "--tenant", name).out.splitlines() for name in ("nobody", "acme"))

    assert nothing == something[:1]


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            ("--csv", "--json"),
            ("--by", "color"),
            ("--by", ""),
            ("--human-usd", "cheap"),
            ("--human-usd", "-1"),
            ("--since", "soon"),
        ),
        *(("--csv", "--json"), ("--job", "abc", "--tenant", "acme"), ("--job", "abc", "--since", "7d")),
    ],
)
def test_given_a_wrong_option_when_asked_then_it_is_a_usage_error(wrong: tuple[str, ...], operator: Operator) -> None:
    assert operator.run("cost", *wrong).code == 2


def _nano(dollars: str) -> int:
    return int(Decimal(dollars).scaleb(9))
