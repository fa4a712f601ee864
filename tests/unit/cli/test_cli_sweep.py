"""`tallybatch sweep`, on the real step."""

from __future__ import annotations

from tests.support.operating import Operator
from tests.support.orphans import create_behind_the_back

MARKER = "ef" * 32


def behind_the_back(operator: Operator) -> str:
    return create_behind_the_back(operator.pipeline.simulator.openai_base_url, MARKER)


def test_a_sweep_finds_what_the_ledger_does_not_know_and_what_it_knows_is_counted(operator: Operator) -> None:
    operator.completed()
    job_id = behind_the_back(operator)
    said = operator.run("sweep", "--json")
    assert said.code == 0
    assert (said.json["checked"], said.json["known"]) == (2, 1)
    assert list(said.json) == [
        *("checked", "known", "orphans", "adopted", "cancelled", "restarted", "stale", "gaps", "released"),
        "deleted_files",
    ]
    (orphan,) = said.json["orphans"]
    assert (orphan["provider"], orphan["provider_job_id"], orphan["marker"]) == ("openai", job_id, MARKER)
    assert orphan["cost_usd"] is None


def test_people_see_why_and_that_it_has_no_price(operator: Operator) -> None:
    job_id = behind_the_back(operator)
    operator.pipeline.wait(60)
    said = operator.run("sweep")
    assert said.code == 0
    (line,) = [line for line in said.out.splitlines() if job_id in line]
    assert "done" in line
    assert "unpriced" in line
    assert "unknown: no submission in the ledger has this marker" in line


def test_cancel_reaches_the_provider_and_only_when_asked_for(operator: Operator) -> None:
    job_id = behind_the_back(operator)
    control = operator.pipeline.simulator.control
    assert operator.run("sweep", "--json").json["cancelled"] == []
    assert control.journal()["cancels"] == []
    assert operator.run("sweep", "--cancel", "--json").json["cancelled"] == [job_id]
    assert [entry["job_id"] for entry in control.journal()["cancels"]] == [job_id]


def test_nothing_to_tell_is_told_too_and_a_lookback_must_be_one(operator: Operator) -> None:
    said = operator.run("sweep", "--lookback-hours", "1")
    assert said.code == 0
    assert "0 with our marker" in said.out
    assert operator.run("sweep", "--lookback-hours", "0").code == 2
