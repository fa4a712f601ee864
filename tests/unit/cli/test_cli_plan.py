"""`tallybatch plan` and `prices`: from this machine alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.films import films, spec
from tests.support.operating import SPEC, Operator

ROW = """\
prices:
  - {provider: openai, model: gpt-99-2026-11-01, class: batch, as_of: "2026-11-01", source: ours, input: 1, output: 2}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "films.jsonl").write_bytes(films(10))
    (tmp_path / "genre.yaml").write_text(SPEC)
    return tmp_path


def test_given_a_sound_file_when_planned_then_tokens_and_dollars_are_told_and_nobody_is_asked(
    here: Path, operator: Operator
) -> None:
    said = operator.run("plan", here / "films.jsonl", "--spec", here / "genre.yaml", "--json")

    assert said.code == 0
    assert (said.json["refused"], said.json["bad_lines"]["count"]) == ([], 0)
    plan = said.json["plan"]
    assert (plan["records"], plan["shards"], plan["provider_jobs"]) == (10, 1, 1)
    assert 0 < plan["estimated_input_tokens"] < plan["worst_case_input_tokens"]
    assert float(plan["cost_low_usd"]) > 0
    assert plan["cost_high_usd"] is None, "the spec has no cap on answers"
    assert not operator.targets


def test_given_bad_lines_when_planned_then_each_is_named_and_the_exit_code_says_refused(
    here: Path, operator: Operator
) -> None:
    (here / "films.jsonl").write_bytes(films(3) + b"no json\n" + films(1))

    said = operator.run("plan", here / "films.jsonl", "--spec", here / "genre.yaml", "--json")

    assert said.code == 3
    assert said.json["bad_lines"]["count"] == 2
    assert {row["line"] for row in said.json["bad_lines"]["first"]} == {4, 5}
    assert "2 bad lines" in said.json["refused"][0]
    assert said.json["plan"]["records"] == 3, "the second of a doubled key is bad and counts no more than once"
    people = operator.run("plan", here / "films.jsonl", "--spec", here / "genre.yaml")
    assert "3 without the bad lines" in people.out


def test_given_an_empty_file_when_planned_then_that_is_the_only_reason_to_refuse_it(
    here: Path, operator: Operator
) -> None:
    (here / "none.jsonl").write_bytes(b"")
    said = operator.run("plan", str(here / "none.jsonl"), "--spec", str(here / "genre.yaml"), "--json")
    assert (said.code, said.json["refused"]) == (3, ["the file has a bad line: the file holds no record"])


def test_given_no_price_or_too_small_a_limit_when_planned_then_both_are_reasons_to_refuse(
    here: Path, operator: Operator
) -> None:
    text = SPEC.replace("gpt-5-mini-2025-08-07", "gpt-99-2026-11-01") + "limits: {max_cost_usd: 0.00001}\n"
    (here / "genre.yaml").write_text(text)

    said = operator.run("plan", here / "films.jsonl", "--spec", here / "genre.yaml", "--json")
    assert said.code == 3
    assert "no price is known for openai gpt-99-2026-11-01" in said.json["refused"][0]

    (here / "prices.yaml").write_text(ROW)
    said = operator.run(
        "plan", here / "films.jsonl", "--spec", here / "genre.yaml", "--prices", here / "prices.yaml", "--json"
    )
    assert said.code == 3
    assert "limits.max_cost_usd" in said.json["refused"][0]


def test_given_a_model_when_its_prices_are_asked_then_each_class_and_tier_is_told(operator: Operator) -> None:
    said = operator.run("prices", "openai", "gpt-6-luna", "--json")

    rows = [(row["class"], row["above"], row["input"], row["output"]) for row in said.json["prices"]]
    assert rows[:2] == [("batch", 0, "0.05", "0.25"), ("batch", 272_000, "0.1", "0.375")]
    unknown = operator.run("prices", "openai", "gpt-99", "--json")
    assert (unknown.code, unknown.json["error"]["type"]) == (4, "NotFound")
    assert "prices/prices.yaml" in unknown.err


def test_given_a_wrong_file_of_prices_when_asked_then_line_and_key_are_told(here: Path, operator: Operator) -> None:
    (here / "prices.yaml").write_text(ROW.replace("input: 1", "input: x"))

    said = operator.run("prices", "openai", "gpt-6-luna", "--prices", here / "prices.yaml")

    assert said.code == 3
    assert "prices.yaml:2: prices[0].input" in said.err


def test_given_a_provider_that_there_is_not_when_prices_are_asked_then_it_is_a_usage_error(operator: Operator) -> None:
    said = operator.run("prices", "acme", "model")

    assert said.code == 2
    assert "'acme': take one of openai, bedrock, gemini" in " ".join(said.err.replace("│", " ").split())


def test_given_one_long_record_among_short_ones_when_planned_then_the_worst_case_has_the_rates_of_long_requests(
    here: Path, operator: Operator
) -> None:
    (here / "genre.yaml").write_text(spec("gemini", model="gemini-2.5-pro", max_attempts=1))
    long = films(1, first=99).replace(b"Film-099.", b"x y z " * 160_000)

    def high(body: bytes) -> float:
        (here / "films.jsonl").write_bytes(body)
        told = operator.run("plan", here / "films.jsonl", "--spec", here / "genre.yaml", "--json").json["plan"]
        return float(told["cost_high_usd"])

    alone = high(long)
    assert high(films(50)) < alone < high(films(50) + long)
