"""The whole line on real films, on a usual day: every record comes back once, paid for once, with proof."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.domain.rows import Job
from tests.support.films import DATA, lines, report, results, tokens_of
from tests.support.pipeline import Pipeline

FILMS = 3_201


@pytest.fixture(scope="module")
def day(simulator_of_the_worker: SimulatorServer) -> Iterator[tuple[Pipeline, Job]]:
    """All films through the demo's scenario: 2 % errors, 1 % missing, and a first create whose reply is lost."""
    control = simulator_of_the_worker.control
    control.set_scenario("demo")
    control.reset()
    pipeline = Pipeline(simulator_of_the_worker)
    pipeline.push_spec((DATA / "specs" / "film-genre.yaml").read_text(), name="film-genre")
    yield pipeline, pipeline.run((DATA / "movies.jsonl").read_bytes(), spec="film-genre")


def test_given_all_films_on_a_usual_day_when_the_job_ends_then_its_sets_close(day: tuple[Pipeline, Job]) -> None:
    pipeline, job = day

    assert (job.state.value, job.reason) == ("COMPLETED", "")
    certificate = pipeline.certificate(job)
    failed = sum(certificate.failed.values())
    assert certificate.expected == FILMS == certificate.succeeded + failed
    assert (certificate.missing, certificate.unknown, certificate.duplicate) == (0, 0, 0)
    assert job.counts["provider_jobs"] == job.counts["submissions"] > 4
    assert pipeline.events.kinds() == ["JobStarted", "JobCompleted"]


def test_given_a_lost_create_when_the_bill_comes_then_it_is_the_one_certified(
    day: tuple[Pipeline, Job],
) -> None:
    pipeline, job = day

    journal = pipeline.simulator.control.journal()
    assert journal["faults"] == {"openai.create.lost_reply": 1}
    assert set(journal["jobs_per_marker"].values()) == {1}
    assert len(journal["jobs_per_marker"]) == job.counts["submissions"]
    assert tokens_of(pipeline.certificate(job)) == journal["tokens_billed"]


def test_given_faults_of_records_when_they_are_tried_again_then_only_they_are(day: tuple[Pipeline, Job]) -> None:
    pipeline, job = day

    struck = sum(pipeline.simulator.control.journal()["record_faults"].values())
    sent = [entry.records for entry in pipeline.certificate(job).submissions if entry.attempt > 1]
    assert struck > 60
    assert sum(sent) == struck


def test_given_a_closed_job_when_results_are_read_then_each_film_is_there_once_with_its_own_answer(
    day: tuple[Pipeline, Job],
) -> None:
    pipeline, job = day

    rows = results(pipeline.objects, job)
    there = [row["business_key"] for row in rows]
    assert len(set(there)) == len(there) == pipeline.certificate(job).succeeded
    assert set(there) <= {line["id"] for line in lines((DATA / "movies.jsonl").read_bytes())}
    assert all(set(row["output"]) == {"genre", "confidence"} for row in rows)
    assert {row["provider_job_id"] for row in rows} == set(pipeline.simulator.control.journal()["batches"])
    raw = next(row["raw"] for row in rows if row["attempt"] == 2)
    line = pipeline.objects.get_range(raw["uri"].removeprefix(pipeline.objects.uri("")), raw["offset"], raw["length"])
    assert json.loads(line)["custom_id"] in {row["record_id"] for row in rows}


def test_given_a_closed_job_when_its_report_is_read_then_it_tells_what_the_certificate_tells(
    day: tuple[Pipeline, Job],
) -> None:
    pipeline, job = day

    told = report(pipeline.objects, job)
    certificate = pipeline.certificate(job)
    assert told["state"] == "COMPLETED"
    assert told["counts"]["expected"] == certificate.expected
    assert told["counts"]["succeeded"] == certificate.succeeded
    assert told["attempts"][0]["records"] == FILMS
    assert told["tokens"] == certificate.tokens


def test_given_an_untouched_job_when_it_is_verified_then_all_of_it_is_checked(day: tuple[Pipeline, Job]) -> None:
    pipeline, job = day

    verdict = pipeline.verify(job)
    certificate = pipeline.certificate(job)
    assert (verdict.ok, verdict.difference) == (True, "")
    assert verdict.checked_records == FILMS
    assert verdict.checked_objects == 1 + len(certificate.objects) + len(certificate.results)
