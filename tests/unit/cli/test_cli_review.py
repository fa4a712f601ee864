"""`tallybatch review`, `resume`, `acknowledge` and `publish`, on the real steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tallybatch.contracts import FailInput
from tallybatch.domain.rows import Job
from tests.support.films import scenario
from tests.support.operating import SPEC, Operator, films

ASKED = "review: {classes: [refused, conflict]}\n"


def in_review(operator: Operator, *, sample: int = 0) -> Job:
    scenario(
        operator.pipeline.simulator.control,
        records=[
            {"fault": "refusal", "contains": '"Film 2"', "times": "always"},
            {"fault": "refusal", "contains": "Film 2", "times": "always"},
        ],
    )
    operator.pipeline.push_spec(SPEC + ASKED + (f"quality: {{review_sample: {sample}}}\n" if sample else ""))
    return operator.pipeline.run(films(3))


def exported(operator: Operator, job: Job, out: Path) -> list[dict[str, Any]]:
    said = operator.run("review", "export", job.job_key, "--out", out, "--json")
    assert said.code == 0, said.err
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert said.json == {"job_key": job.job_key, "records": len(rows), "out": str(out)}
    return rows


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_queue_is_listed_exported_filled_in_and_handed_in_until_the_job_closes(
    operator: Operator, tmp_path: Path
) -> None:
    job = in_review(operator)
    (listed,) = operator.run("review", "list", "--json").json
    assert (listed["job_key"], listed["state"], listed["in_review"]) == (job.job_key, "PARTIAL", 1)
    shown = operator.run("review", "list", job.job_key[:8])
    assert "film-2" in shown.out and "refused" in shown.out
    assert operator.run("review", "list", job.job_key, "--json").json["by_why"] == {"refused": 1}
    (row,) = exported(operator, job, tmp_path / "queue.jsonl")
    assert (row["business_key"], row["decision"], row["input"]) == ("film-2", None, {"title": "Film 2"})

    filled = write(tmp_path / "filled.jsonl", {**row, "decision": "accept", "output": {"genre": "Drama"}})
    said = operator.run("review", "resolve", job.job_key, filled, "--by", "ada", "--follow", "--json")

    assert (said.code, said.json["state"], said.json["succeeded"], said.json["in_review"]) == (0, "COMPLETED", 3, 0)
    assert operator.run("verify", job.job_key).code == 0
    assert operator.run("review", "list", "--json").json == []
    assert exported(operator, operator.pipeline.job(job.job_key), tmp_path / "empty.jsonl") == []


def test_whoever_comes_second_is_told_by_name_and_with_exit_code_1(operator: Operator, tmp_path: Path) -> None:
    job = in_review(operator)
    first = write(tmp_path / "first.jsonl", {"business_key": "film-2", "decision": "reject", "reason": "no film"})
    assert operator.run("review", "resolve", job.job_key, first, "--by", "ada").code == 0
    second = write(tmp_path / "second.jsonl", {"business_key": "film-2", "decision": "requeue"})
    said = operator.run("review", "resolve", job.job_key, second, "--by", "bob", "--json")
    assert said.code == 5
    assert "what ada decided" in said.json["error"]["why"]
    assert "no review queue yet" in operator.run("review", "export", job.job_key, "--out", tmp_path / "x").err

    operator.pipeline.run_again(job.job_key)
    said = operator.run("review", "resolve", job.job_key, second, "--by", "bob")
    assert said.code == 1
    assert "film-2: decided before, reject by ada at" in said.err
    again = operator.run("review", "resolve", job.job_key, first, "--json")
    assert (again.code, again.json["repeated"], again.json["by"]) == (0, True, "ada")
    assert "handed in before" in again.err


def test_bad_decisions_are_named_by_line_and_exit_code_3(operator: Operator, tmp_path: Path) -> None:
    job = in_review(operator)
    bad = write(
        tmp_path / "bad.jsonl",
        {"business_key": "film-2", "decision": "accept", "output": {"genre": 7}},
        {"business_key": "film-1", "decision": "requeue"},
    )
    said = operator.run("review", "resolve", job.job_key, bad, "--json")
    assert said.code == 3
    assert [problem["line"] for problem in said.json["error"]["problems"]] == [1, 2]
    assert operator.pipeline.job(job.job_key) == job
    assert operator.run("review", "resolve", job.job_key, tmp_path / "absent.jsonl").code == 4


def test_a_sampled_record_is_listed_until_somebody_looked_at_it(operator: Operator, tmp_path: Path) -> None:
    operator.pipeline.push_spec(SPEC + "quality: {review_sample: 1}\n")
    job = operator.pipeline.run(films(3))
    (listed,) = operator.run("review", "list", "--json").json
    assert (listed["state"], listed["in_review"], listed["sampled"]) == ("COMPLETED", 0, 1)
    (row,) = exported(operator, job, tmp_path / "queue.jsonl")
    looked = write(tmp_path / "looked.jsonl", {**row, "decision": "accept"})
    said = operator.run("review", "resolve", job.job_key, looked, "--follow", "--json")
    assert (said.code, said.json["state"]) == (0, "COMPLETED")
    assert operator.run("review", "list", "--json").json == []


def test_a_job_with_unknown_ids_is_acknowledged_and_closes(operator: Operator) -> None:
    scenario(operator.pipeline.simulator.control, records=[{"fault": "unknown_id", "contains": "Film 2"}])
    job = operator.completed(3)
    assert job.state.value == "PARTIAL"
    said = operator.run("acknowledge", job.job_key, "--by", "ada")
    assert said.code == 0
    assert "1 unknown lines are acknowledged by ada. The job goes on." in said.out
    operator.pipeline.run_again(job.job_key)
    assert operator.run("show", job.job_key, "--json").json["state"] == "COMPLETED"


def test_after_an_acknowledgement_whoever_has_records_to_decide_is_sent_to_them(operator: Operator) -> None:
    faults = [
        {"fault": "unknown_id", "contains": "Film 1"},
        {"fault": "refusal", "contains": "Film 2", "times": "always"},
    ]
    scenario(operator.pipeline.simulator.control, records=faults)
    operator.pipeline.push_spec(SPEC + ASKED)
    job = operator.pipeline.run(films(3))
    said = operator.run("acknowledge", job.job_key, "--by", "ada")
    assert f"The job stays PARTIAL: 1 in review. Go on with: tallybatch review list {job.job_key[:12]}" in said.out


def test_a_queue_that_a_failed_run_did_not_write_is_not_taken_for_an_empty_one(
    operator: Operator, tmp_path: Path
) -> None:
    job = in_review(operator)
    operator.pipeline.resume(job.job_key)
    error, attempt = {"Error": "States.Timeout", "Cause": "slow"}, operator.pipeline.job(job.job_key).attempt
    operator.pipeline.fail(
        FailInput(tenant=job.tenant, job_key=job.job_key, bucket="bucket", attempt=attempt, error=error)
    )
    decisions = write(tmp_path / "one.jsonl", {"business_key": "film-2", "decision": "requeue"})
    for command in (
        ("list", job.job_key),
        ("export", job.job_key, "--out", tmp_path / "q"),
        ("resolve", job.job_key, decisions),
    ):
        said = operator.run("review", *command)
        assert (said.code, f"tallybatch resume {job.job_key[:12]}" in said.err.replace("\n", " ")) == (4, True)


def test_a_part_of_a_job_that_its_gates_stop_is_refused(operator: Operator) -> None:
    operator.pipeline.push_spec(SPEC + "quality: {min_acceptance: 1.0}\n")
    scenario(
        operator.pipeline.simulator.control, records=[{"fault": "refusal", "contains": "Film 2", "times": "always"}]
    )
    job = operator.pipeline.run(films(3))
    assert job.state.value == "FAILED"
    said = operator.run("publish", job.job_key, "--partial", "--json")
    assert (said.code, said.json["error"]["type"]) == (3, "Conflict")
    assert "accepted 2 of 3 records" in said.json["error"]["why"]
    assert operator.pipeline.job(job.job_key) == job


def test_a_part_is_published_on_request_fetched_with_a_note_and_proven(operator: Operator, tmp_path: Path) -> None:
    job = in_review(operator)
    assert operator.run("results", job.job_key, "--out", tmp_path).code == 1
    assert operator.run("publish", job.job_key).code == 2
    said = operator.run("publish", job.job_key, "--partial", "--by", "ada", "--follow", "--json")
    assert (said.code, said.json["state"], said.json["succeeded"]) == (1, "PARTIAL", 2)
    fetched = operator.run("results", job.job_key, "--out", tmp_path, "--json")
    assert (fetched.code, fetched.json["records"], fetched.json["partial"]) == (0, 2, True)
    assert "this is a part: 2 of 3 records, as ada asked" in fetched.err
    assert operator.run("verify", job.job_key).code == 0


def test_resume_goes_on_without_a_new_drop(operator: Operator) -> None:
    control = operator.pipeline.simulator.control
    scenario(control, calls=[{"on": "create", "fault": "status:401", "count": 1}])
    job = operator.completed(3)
    assert job.state.value == "FAILED"
    said = operator.run("resume", job.job_key, "--follow", "--json")
    assert (said.code, said.json["state"], said.json["succeeded"]) == (0, "COMPLETED", 3)
    refused = operator.run("resume", job.job_key, "--json")
    assert (refused.code, refused.json["error"]["type"]) == (3, "Conflict")


@pytest.mark.parametrize("command", [("resume",), ("acknowledge",), ("publish", "--partial"), ("review", "list")])
def test_a_job_that_is_not_there_is_not_found(operator: Operator, command: tuple[str, ...]) -> None:
    assert operator.run(*command, "f00", "--json").code == 4
