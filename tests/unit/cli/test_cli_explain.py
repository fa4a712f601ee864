"""`tallybatch explain`: one record's story, on the real steps."""

from __future__ import annotations

import json

import pytest

from tallybatch.domain.identity import sha256_hex
from tests.support.films import scenario
from tests.support.operating import SPEC, Operator, films


def test_a_record_that_failed_and_then_succeeded_is_told_attempt_by_attempt(operator: Operator) -> None:
    scenario(operator.pipeline.simulator.control, records=[{"fault": "error_500", "contains": "Film 2"}])
    job = operator.completed(3, spec=SPEC + "shards: {max_records: 2}\n")
    story = operator.run("explain", job.job_key, "film-2", "--json").json

    assert (story["business_key"], story["stands"], story["state"]) == ("film-2", "accepted", "COMPLETED")
    assert story["input_sha256"] == sha256_hex(b'{"title":"Film 2"}')
    first, second = story["attempts"]
    assert (first["outcome"], first["follows"], first["tries"], first["code"]) == (
        "retryable", "retry", 1, "server_error",
    )  # fmt: skip
    assert (second["outcome"], second["follows"], second["tries"]) == ("succeeded", "accepted", 2)
    assert second["tokens"]["input"] > 0
    assert (first["cost_usd"], second["price"].split("@")[0]) == ("0", "batch")
    jobs = {entry["job_id"] for entry in operator.pipeline.simulator.control.journal()["creates"]}
    assert {first["provider_job_id"], second["provider_job_id"]} <= jobs
    for told in (first, second):
        raw = told["raw"]
        key = raw["uri"].removeprefix(operator.pipeline.objects.uri(""))
        line = operator.pipeline.objects.get_range(key, raw["offset"], raw["length"])
        assert sha256_hex(line) == raw["sha256"]
        assert story["record_id"].encode() in line
    assert second["provider_request_id"] in line.decode()
    part = story["published"]["part"].removeprefix(operator.pipeline.objects.uri(""))
    (published,) = [
        row
        for row in map(json.loads, operator.pipeline.objects.get(part).splitlines())
        if row["business_key"] == "film-2"
    ]
    assert second["cost_usd"] == published["cost_usd"] != "0"
    assert published["output"] == second["output"]
    assert story["ledger"]["owner"] == job.job_key
    assert story["ledger"]["accepted_in"].endswith(second["outcomes"])


def test_a_record_is_found_by_either_name_and_shown_to_people(operator: Operator) -> None:
    job = operator.completed(3)
    story = operator.run("explain", job.job_key, "film-3", "--json").json
    assert operator.run("explain", job.job_key[:9], story["record_id"], "--json").json == story
    said = operator.run("explain", job.job_key, "film-3")
    assert said.code == 0
    for text in ("attempt 1", "succeeded", story["attempts"][0]["provider_job_id"], story["published"]["part"]):
        assert text in said.out


def test_an_answer_that_stays_cut_at_the_highest_cap_has_failed(operator: Operator) -> None:
    cut = {"fault": "length", "contains": "Film 2", "times": "always"}
    scenario(operator.pipeline.simulator.control, records=[cut])
    spec = SPEC.replace("backoff: 1m", "backoff: 1m, raise_output_cap: {max: 800}")
    job = operator.completed(3, spec=spec + "generation: {max_output_tokens: 400}\n")

    story = operator.run("explain", job.job_key, "film-2", "--json").json

    assert [(told["outcome"], told["follows"]) for told in story["attempts"]] == [
        ("truncated", "retry"), ("truncated", "failed"),
    ]  # fmt: skip
    assert story["stands"] == "failed"


def test_what_people_decided_is_told_with_who_and_when(operator: Operator) -> None:
    scenario(operator.pipeline.simulator.control, records=[{"fault": "refusal", "contains": "Film 2"}])
    operator.pipeline.push_spec(SPEC + "review: {classes: [refused]}\n")
    job = operator.pipeline.run(films(3))
    assert operator.run("explain", job.job_key, "film-2", "--json").json["stands"] == "review"
    decision = {"business_key": "film-2", "decision": "reject", "reason": "no film at all"}
    operator.pipeline.hand_in(job, json.dumps(decision).encode(), by="ada")
    operator.pipeline.run_again(job.job_key)

    story = operator.run("explain", job.job_key, "film-2", "--json").json
    assert (story["stands"], story["published"]) == ("failed", None)
    told = story["attempts"][-1]
    assert (told["outcome"], told["provider"]) == ("rejected", "review")
    assert (told["decision"]["decision"], told["decision"]["by"], told["decision"]["reason"]) == (
        "reject", "ada", "no film at all",
    )  # fmt: skip
    assert "reject by ada at 20" in operator.run("explain", job.job_key, "film-2").out


def test_a_record_that_is_out_is_told_as_far_as_it_came(operator: Operator) -> None:
    from tallybatch.contracts import JobInput

    pipeline = operator.pipeline
    pipeline.push_spec(SPEC)
    job_key = pipeline.drop(films(3))["job_key"]
    assert operator.run("explain", job_key, "film-1", "--json").json["stands"] == "not begun"
    (item,) = pipeline.items(pipeline.plan(JobInput(tenant="acme", job_key=job_key, bucket="bucket")))
    pipeline.submit(item)
    story = operator.run("explain", job_key, "film-1", "--json").json
    (told,) = story["attempts"]
    assert (told["outcome"], told["submission"]["state"], story["stands"]) == (None, "SUBMITTED", "resume")
    assert operator.run("explain", job_key, "film-1").code == 0


@pytest.mark.parametrize("ref", ["film-9", "film", "0" * 32])
def test_a_record_that_is_not_in_the_job_is_not_found(operator: Operator, ref: str) -> None:
    job = operator.completed(3)
    said = operator.run("explain", job.job_key, ref, "--json")
    assert said.code == 4
    assert "3 records" in said.json["error"]["why"]


def test_given_a_file_that_was_refused_when_a_record_is_asked_for_then_the_report_is_named(operator: Operator) -> None:
    operator.pipeline.push_spec(SPEC)
    job_key = operator.pipeline.drop(b'{"id": "film-1"}\n')["job_key"]
    said = operator.run("explain", job_key, "film-1")
    assert (said.code, "the job's input was refused" in said.err, "tallybatch report" in said.err) == (4, True, True)
