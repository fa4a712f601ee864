"""Gemini from a dropped file to a certificate that verifies: on a bad day, for native files, and for embeddings."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.domain.lifecycle import JobState
from tests.support.films import DATA, classes, histories, results, scenario, tokens_of
from tests.support.gemini import line, request
from tests.support.pipeline import Pipeline

GENRES = "film-genre-gemini"
VECTORS = "earthquakes-embedding-gemini"
NATIVE = "native-gemini"


@pytest.fixture
def gemini(simulator: SimulatorServer) -> Pipeline:
    pipeline = Pipeline(simulator, provider_name="gemini")
    for name in (GENRES, VECTORS, NATIVE):
        pipeline.push_spec((DATA / "specs" / f"{name}.yaml").read_text(), name=name)
    return pipeline


def movies(count: int) -> bytes:
    with (DATA / "movies.jsonl").open("rb") as films:
        return b"".join(islice(films, count))


def test_given_a_lost_create_and_rows_that_fail_when_films_run_then_one_job_each_and_every_film_has_its_genre(
    gemini: Pipeline,
) -> None:
    scenario(
        gemini.simulator.control,
        calls=[{"on": "create", "fault": "lost_reply"}],
        records=[{"fault": "error_500", "rate": 0.01}, {"fault": "error_429", "rate": 0.01}],
    )
    job = gemini.run(movies(600), spec=GENRES)
    assert (job.state, job.counts["succeeded"]) == (JobState.COMPLETED, 600)
    journal = gemini.simulator.control.journal()
    submissions = gemini.ledger.submissions(job.job_key)
    assert journal["jobs_per_marker"] == {row.submission_key: 1 for row in submissions}
    assert {row.provider for row in submissions} == {"gemini"}
    assert len(submissions) >= 2
    tried_again = sum(len(told) > 1 for told in classes(gemini.objects, job).values())
    assert sum(journal["record_faults"].values()) == tried_again > 0
    assert tokens_of(gemini.certificate(job)) == journal["tokens_billed"]
    assert gemini.verify(job).ok
    row = results(gemini.objects, job)[0]
    assert (row["provider"], row["model_version"], row["finish_reason"]) == ("gemini", "gemini-2.5-flash", "STOP")
    assert row["provider_request_id"]


def test_given_earthquakes_when_embedded_then_each_has_a_vector_of_the_asked_length(gemini: Pipeline) -> None:
    job = gemini.run((DATA / "earthquakes.jsonl").read_bytes(), spec=VECTORS, name="earthquakes.jsonl")
    assert job.state is JobState.COMPLETED
    rows = results(gemini.objects, job)
    assert len(rows) == job.expected == 1500
    assert {len(row["output"]) for row in rows} == {256}
    assert tokens_of(gemini.certificate(job)) == gemini.simulator.control.journal()["tokens_billed"]
    assert gemini.verify(job).ok


def test_given_a_native_file_when_run_then_its_own_keys_are_the_business_keys(gemini: Pipeline) -> None:
    body = b"".join(line(f"Film {n}/ä", request(f"Title: Film {n}")) + b"\n" for n in range(20))
    job = gemini.run(body, spec=NATIVE, name="batch.jsonl")
    assert job.state is JobState.COMPLETED
    assert {row["business_key"] for row in results(gemini.objects, job)} == {f"Film {n}/ä" for n in range(20)}
    assert gemini.verify(job).ok


def test_given_a_native_line_with_flat_settings_when_dropped_then_it_is_refused_before_anything_is_spent(
    gemini: Pipeline,
) -> None:
    flat = {**request("Title: x"), "thinking_config": {"thinking_budget": 0}}
    job = gemini.run(line("a", flat) + b"\n", spec=NATIVE, name="batch.jsonl")
    assert job.state is JobState.FAILED
    assert gemini.simulator.control.journal()["creates"] == []


def test_given_each_fault_of_a_row_when_run_then_its_disposition_follows(gemini: Pipeline) -> None:
    fate = {
        "error_400": ["permanent"],
        "error_503": ["retryable", "succeeded"],
        "refusal": ["refused"],
        "content_filter": ["refused"],
        "missing": ["missing", "succeeded"],
        "status_zero": ["retryable", "succeeded"],
        "null_response": ["retryable", "succeeded"],
        "error_in_body": ["retryable", "succeeded"],
        "body_as_string": ["succeeded"],
        "bad_json": ["unqualified", "succeeded"],
        "duplicate_same": ["succeeded"],
        "success_and_error": ["succeeded"],
        "u2028": ["unqualified", "succeeded"],
        "crlf": ["succeeded"],
    }
    scenario(gemini.simulator.control, records=[{"fault": fault, "contains": f"Title: {fault}\\n"} for fault in fate])
    films = [{"id": fault, "title": fault, "director": "", "release_date": "", "distributor": ""} for fault in fate]
    job = gemini.run(b"".join(json.dumps(film).encode() + b"\n" for film in films), spec=GENRES)
    assert classes(gemini.objects, job) == fate
    told = histories(gemini.objects, job)
    assert [told[key][0].code for key in ("error_400", "error_503", "refusal")] == [
        "INVALID_ARGUMENT",
        "UNAVAILABLE",
        "SAFETY",
    ]


@pytest.mark.parametrize("fault", ["expire", "cancel", "vanish", "fail_validation:RESOURCE_EXHAUSTED"])
def test_given_a_job_that_ends_early_when_run_then_only_what_is_missing_is_asked_for_again(
    gemini: Pipeline, fault: str
) -> None:
    scenario(gemini.simulator.control, jobs=[{"fault": fault, "done": 0.5}])
    job = gemini.run(movies(40), spec=GENRES)
    assert (job.state, job.counts["succeeded"]) == (JobState.COMPLETED, 40)
    journal = gemini.simulator.control.journal()
    assert len(journal["creates"]) == 2
    assert max(journal["jobs_per_marker"].values()) == 1
    assert tokens_of(gemini.certificate(job)) == journal["tokens_billed"]
    assert gemini.verify(job).ok
