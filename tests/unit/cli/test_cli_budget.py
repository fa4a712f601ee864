"""`tallybatch budget`: set and show what a tenant may spend in a month."""

from __future__ import annotations

import pytest

from tests.support.operating import SPEC, Operator


def test_given_a_limit_when_a_job_has_run_then_the_month_tells_what_is_left(operator: Operator) -> None:
    assert operator.run("budget", "set", "--tenant", "acme", "--usd", "2.5", "--json").json == {
        "tenant": "acme",
        "period": "each",
        "limit_usd": "2.5",
        "was_usd": None,
    }
    job = operator.completed(5, spec=SPEC + "generation: {max_output_tokens: 100}\n")

    told = operator.run("budget", "show", "--tenant", "acme", "--json").json
    assert (told["limit_usd"], told["reserved_usd"]) == ("2.5", "0")
    assert 0 < float(told["spent_usd"]) < 0.01
    assert float(told["left_usd"]) == pytest.approx(2.5 - float(told["spent_usd"]))
    (part,) = told["jobs"]
    assert (part["job_key"], part["ended"], part["spent_usd"]) == (job.job_key, True, told["spent_usd"])
    assert job.job_key[:12] in operator.run("budget", "show", "--tenant", "acme").out


def test_given_a_month_of_its_own_when_set_then_it_holds_in_that_month_only(operator: Operator) -> None:
    operator.run("budget", "set", "--tenant", "acme", "--usd", "2")
    operator.run("budget", "set", "--tenant", "acme", "--usd", "3", "--month", "2031-01")

    assert operator.run("budget", "show", "--tenant", "acme", "--month", "2031-01", "--json").json["limit_usd"] == "3"
    assert operator.run("budget", "show", "--tenant", "acme", "--month", "2031-02", "--json").json["limit_usd"] == "2"
    operator.run("budget", "set", "--tenant", "acme", "--usd", "none")
    assert operator.run("budget", "show", "--tenant", "acme", "--month", "2031-02", "--json").json["left_usd"] is None


@pytest.mark.parametrize("wrong", [("--usd", "much"), ("--usd", "-1"), ("--usd", "1", "--month", "2026-13")])
def test_given_a_wrong_option_when_set_then_it_is_a_usage_error(wrong: tuple[str, ...], operator: Operator) -> None:
    assert operator.run("budget", "set", *wrong).code == 2
