"""`tallybatch jobs`, `show`, `follow`, `report`."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tallybatch.domain.errors import LedgerBusy
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.rows import Job, Submission
from tests.support import rows
from tests.support.memory_ledger import MemoryLedger
from tests.support.operating import SPEC, Operator

FINAL_KEYS = [
    *("job_key", "state", "tenant", "spec", "dataset_version", "attempts", "expected", "succeeded", "reused", "failed"),
    *("missing", "unknown", "duplicate", "in_review", "submissions", "provider_jobs", "cost_usd", "waste_usd"),
    *("certificate", "results_uri", "report"),
]


def _put(operator: Operator, *jobs: Job) -> None:
    for job in jobs:
        assert operator.pipeline.ledger.put_job(job, expected_version=None)


def _keyed(key: str, **fields: Any) -> Job:
    return rows.job(job_key=key.ljust(64, "0"), **fields)


def test_a_unique_prefix_names_a_job(operator: Operator) -> None:
    _put(operator, _keyed("abc1"), _keyed("abd2"))
    said = operator.run("show", "abc", "--json")
    assert (said.code, said.json["job_key"]) == (0, "abc1".ljust(64, "0"))


def test_an_ambiguous_prefix_names_the_candidates(operator: Operator) -> None:
    _put(operator, _keyed("abc1"), _keyed("abd2"))
    said = operator.run("show", "ab", "--json")
    assert said.code == 2
    assert set(said.json["error"]["candidates"]) == {"abc1".ljust(64, "0"), "abd2".ljust(64, "0")}
    assert "abd2" in said.err


@pytest.mark.parametrize("ref", ["zz", ""])
@pytest.mark.parametrize("command", ["show", "follow", "report", "verify"])
def test_an_unknown_job_is_not_found(command: str, ref: str, operator: Operator) -> None:
    _put(operator, _keyed("abc1"))
    assert operator.run(command, ref).code == 4


def test_the_final_json_has_exactly_its_keys(operator: Operator) -> None:
    job = operator.completed()
    said = operator.run("show", job.job_key, "--json")
    assert list(said.json) == FINAL_KEYS
    assert said.json["state"] == "COMPLETED"
    assert said.json["expected"] == said.json["succeeded"] + said.json["failed"] == 5
    assert said.json["missing"] == said.json["unknown"] == said.json["duplicate"] == 0
    assert said.json["submissions"] == said.json["provider_jobs"] == 1
    assert float(said.json["cost_usd"]) > 0
    assert said.json["waste_usd"] == "0"
    assert said.json["certificate"].endswith("/certificate.json")


def test_given_a_job_under_way_when_shown_then_what_is_not_known_yet_is_null(operator: Operator) -> None:
    _put(operator, rows.job(state=JobState.RUNNING, expected=10, shard_count=2))
    done = {"succeeded": 3, "reused": 1, "missing": 1}
    for row in (
        rows.submission(shard="a", state=SubmissionState.RECONCILED, counts=done, provider_job_id="b1", ghosts=("b0",)),
        rows.submission(shard="b", state=SubmissionState.RUNNING, provider_job_id="b2"),
    ):
        operator.pipeline.ledger.put_submission(row, expected_version=None)
    shown = operator.run("show", rows.hexdigest("job"), "--json").json
    assert (shown["succeeded"], shown["reused"], shown["submissions"], shown["provider_jobs"]) == (4, 1, 2, 3)
    assert [shown[name] for name in ("failed", "missing", "unknown", "duplicate", "certificate", "report")] == [
        None
    ] * 6


def test_names_are_shown_as_they_are_and_never_as_markup(operator: Operator) -> None:
    _put(operator, _keyed("abc1", dataset_version="[red]v1[/red]"))
    assert "[red]v1[/red]" in operator.run("show", "abc1").out
    assert "[red]v1[/red]" in operator.run("jobs").out


def test_jobs_are_listed_newest_first_and_filtered(operator: Operator) -> None:
    now = 1_800_000_000.0
    _put(
        operator,
        _keyed("a1", created_at=now - 90_000, state=JobState.COMPLETED),
        _keyed("b2", created_at=now, state=JobState.FAILED, tenant="other"),
        _keyed("c3", created_at=now + 5, state=JobState.RUNNING),
    )

    def listed(*options: str) -> list[str]:
        said = operator.run("jobs", "--json", *options)
        assert said.code == 0
        return [job["job_key"][:2] for job in said.json]

    assert listed() == ["c3", "b2", "a1"]
    assert listed("--tenant", "other") == ["b2"]
    assert listed("--state", "completed", "--state", "FAILED") == ["b2", "a1"]
    assert listed("--since", "2027-01-15T08:00:00+00:00") == ["c3", "b2"]
    assert listed("--limit", "1") == ["c3"]
    assert operator.run("jobs", "--since", "soon").code == 2
    assert operator.run("jobs", "--state", "DONE").code == 2


def _moves(operator: Operator, *states: JobState, **last: Any) -> str:
    """A job that takes one more state each time somebody sleeps."""
    ledger = operator.pipeline.ledger
    job = rows.job(expected=4, shard_count=1)
    _put(operator, job)

    def move(state: JobState, changes: dict[str, Any]) -> None:
        now = ledger.job(job.job_key)
        assert now is not None
        ledger.put_job(replace(now, state=state, **changes), expected_version=now.version)

    for number, state in enumerate(states, start=1):
        changes = last if number == len(states) else {}
        operator.world.append(partial(move, state, changes))
    return job.job_key


def test_follow_logs_a_line_per_change_and_ends_with_the_job(operator: Operator) -> None:
    key = _moves(
        operator, JobState.VALIDATED, JobState.RUNNING, JobState.RUNNING, JobState.COMPLETED, counts={"succeeded": 4}
    )
    said = operator.run("follow", key, "--json")
    assert (said.code, said.json["state"], said.json["succeeded"]) == (0, "COMPLETED", 4)
    told = [line.split()[2] for line in said.err.splitlines()]
    assert told == ["CREATED", "VALIDATED", "RUNNING", "COMPLETED"]


@pytest.mark.parametrize("state", [JobState.PARTIAL, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED])
def test_follow_ends_with_1_for_a_job_that_did_not_complete(state: JobState, operator: Operator) -> None:
    said = operator.run("follow", _moves(operator, JobState.RUNNING, state, reason="because"), "--json")
    assert (said.code, said.json["state"]) == (1, state.value)


def test_follow_shows_shards_and_outcomes_by_attempt(operator: Operator) -> None:
    key = _moves(operator, JobState.RUNNING, JobState.COMPLETED)
    counts = {"succeeded": 3, "missing": 1}
    row: Submission = rows.submission(state=SubmissionState.RECONCILED, counts=counts, input_records=4)
    operator.pipeline.ledger.put_submission(row, expected_version=None)
    said = operator.run("follow", key, "--json")
    assert "shards 1/1 (1 RECONCILED); records 3/4 accepted (attempt 1: 3 succeeded, 1 missing)" in said.err


class SometimesBusy(MemoryLedger):
    failures = 3

    def job(self, job_key: str) -> Job | None:
        if self.failures:
            self.failures -= 1
            raise LedgerBusy("the table is busy")
        return super().job(job_key)


def test_follow_survives_a_ledger_that_is_busy_for_a_while(operator: Operator) -> None:
    ledger = SometimesBusy()
    ledger.put_job(rows.job(state=JobState.COMPLETED), expected_version=None)
    operator.ledger = ledger
    said = operator.run("follow", rows.hexdigest("job")[:12], "--json")
    assert said.code == 0
    assert said.err.count("looking again") == 3


def test_follow_gives_up_when_the_ledger_stays_away(operator: Operator) -> None:
    ledger = SometimesBusy()
    ledger.put_job(rows.job(), expected_version=None)
    ledger.failures = 1000
    operator.ledger = ledger
    assert operator.run("follow", rows.hexdigest("job")[:12]).code == 5


def test_report_of_a_completed_job(operator: Operator) -> None:
    job = operator.completed()
    said = operator.run("report", job.job_key[:10], "--json")
    assert said.json["verdict"].startswith("Closed: 5 of 5")
    people = operator.run("report", job.job_key[:10]).out
    assert "Closed: 5 of 5" in people
    assert f"{said.json['money']['cost_usd']} US dollars" in people


def test_report_of_a_refused_file_names_its_bad_lines(operator: Operator) -> None:
    operator.pipeline.push_spec(SPEC)
    job = operator.pipeline.run(b'{"id": "1", "title": "x"}\nnonsense\n')
    assert "line 2: " in operator.run("report", job.job_key).out


def test_a_job_that_runs_has_no_report_yet(operator: Operator) -> None:
    _put(operator, _keyed("abc1", state=JobState.RUNNING))
    said = operator.run("report", "abc1")
    assert said.code == 4
    assert "it is RUNNING" in said.err


def test_given_a_terminal_when_followed_then_bars_are_drawn_on_stderr_only(operator: Operator) -> None:
    key = _moves(operator, JobState.RUNNING, JobState.COMPLETED)
    counts = {"succeeded": 3, "missing": 1}
    row = rows.submission(state=SubmissionState.RECONCILED, counts=counts, input_records=4)
    operator.pipeline.ledger.put_submission(row, expected_version=None)
    said = operator.run("follow", key, "--json", env={"FORCE_COLOR": "1"})
    assert said.json["state"] == "COMPLETED"
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.err)
    assert "3/4 accepted" in " ".join(drawn.split())
    assert "3 succeeded, 1 missing" in drawn
