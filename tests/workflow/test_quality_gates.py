"""Gates: a closed job whose answers are not good enough publishes nothing, and costs nothing again when it may."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.contracts import JobInput
from tallybatch.domain.errors import NotClosed
from tallybatch.domain.rows import Job
from tests.support.films import DATA, films, lines, report, results, scenario, spec, spent
from tests.support.pipeline import TENANT, Pipeline

GOLDEN = "film-genre.jsonl"
RECORDS = 12


def with_quality(quality: str, **changed: Any) -> str:
    return spec(**changed) + f"quality: {quality}\n"


def movies(count: int) -> list[dict[str, Any]]:
    with (DATA / "movies.jsonl").open("rb") as file:
        return [json.loads(next(file)) for _ in range(count)]


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def label(pipeline: Pipeline, body: bytes, *, tenant: str = TENANT) -> None:
    pipeline.objects.put(f"golden/{tenant}/{GOLDEN}", body)


def golden(min_accuracy: float, **more: Any) -> str:
    return json.dumps({"golden": {"file": GOLDEN, "field": "genre", "min_accuracy": min_accuracy, **more}})


def in_results(pipeline: Pipeline) -> list[str]:
    return [info.key for info in pipeline.objects.list("results/")]


def test_given_films_with_golden_labels_when_published_then_the_report_has_their_accuracy_and_confusion_matrix(
    pipeline: Pipeline,
) -> None:
    rows = movies(300)
    pipeline.push_spec(with_quality(golden(0.0, label="major_genre"), shard_records=100))
    label(pipeline, as_lines(rows))

    job = pipeline.run(as_lines(rows))

    assert job.state.value == "COMPLETED", job.reason
    labels = {row["id"]: row["major_genre"] for row in rows if row["major_genre"] is not None}
    answers = {row["business_key"]: row["output"]["genre"] for row in results(pipeline.objects, job)}
    right = sum(answers[key] == genre for key, genre in labels.items())
    found = report(pipeline.objects, job)["quality"]["golden"]
    assert 0 < right < len(labels)
    assert (found["labelled"], found["answered"], found["right"]) == (len(labels), len(labels), right)
    assert found["accuracy"] == round(right / len(labels), 6)
    matrix = {
        (genre, answer): count
        for genre, counts in zip(found["labels"], found["matrix"], strict=True)
        for answer, count in zip(found["answers"], counts, strict=True)
        if count
    }
    assert matrix == Counter((genre, answers[key]) for key, genre in labels.items())
    page = pipeline.objects.get(pipeline.keys(job).report_html).decode()
    assert "Confusion matrix" in page
    assert f"{right} of {len(labels)} right" in page
    assert pipeline.verify(job).ok


@pytest.mark.parametrize("provider", ["openai", "bedrock", "gemini"])
def test_given_answers_below_the_accuracy_gate_when_judged_then_nothing_is_published_until_the_gate_is_lowered(
    simulator: SimulatorServer, provider: str
) -> None:
    pipeline = Pipeline(simulator, provider_name=provider)
    count = 100
    rows = movies(count)
    pipeline.push_spec(with_quality(golden(0.9, label="major_genre"), provider=provider))
    label(pipeline, as_lines(rows))

    job = pipeline.run(as_lines(rows))

    assert job.state.value == "FAILED"
    assert "labelled records" in job.reason
    assert "min_accuracy asks for 90 %" in job.reason
    assert (job.counts["succeeded"], job.results_uri, job.certificate) == (count, "", "")
    assert in_results(pipeline) == []
    told = report(pipeline.objects, job)
    assert (told["state"], told["verdict"]) == ("FAILED", job.reason)
    gates = {gate["name"]: gate["passed"] for gate in told["quality"]["gates"]}
    assert gates == {"any_accepted": True, "min_accuracy": False}
    assert sum(map(sum, told["quality"]["golden"]["matrix"])) == told["quality"]["golden"]["labelled"]
    assert "JobFailed" in pipeline.events.kinds()
    paid = spent(simulator.control)

    assert pipeline.run(as_lines(rows)).state.value == "FAILED"
    assert in_results(pipeline) == []
    pipeline.push_spec(with_quality(golden(0.0, label="major_genre"), provider=provider))
    job = pipeline.run(as_lines(rows))

    assert (job.state.value, job.reason, job.run) == ("COMPLETED", "", 3)
    assert len(results(pipeline.objects, job)) == count
    assert spent(simulator.control) == paid
    assert pipeline.verify(job).ok


def test_given_too_few_accepted_records_when_judged_then_the_gate_names_its_figures_and_one_more_is_enough(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_400", "contains": "Film-003."}])
    pipeline.push_spec(with_quality("{min_acceptance: 0.917}"))

    job = pipeline.run(films(RECORDS))

    assert (job.state.value, in_results(pipeline)) == ("FAILED", [])
    assert "accepted 11 of 12 records (91.66 %), and min_acceptance asks for 91.7 %" in job.reason
    paid = spent(pipeline.simulator.control)

    pipeline.push_spec(with_quality("{min_acceptance: 0.916}"))
    job = pipeline.run(films(RECORDS))

    assert (job.state.value, job.counts["succeeded"], job.counts["failed"]) == ("COMPLETED", 11, 1)
    assert spent(pipeline.simulator.control) == paid
    assert pipeline.verify(job).ok


def test_given_a_completed_provider_job_in_which_every_row_failed_when_judged_then_nothing_is_published(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_400"}])
    pipeline.push_spec(spec())

    job = pipeline.run(films(RECORDS))

    assert (job.state.value, job.counts["failed"], in_results(pipeline)) == ("FAILED", RECORDS, [])
    assert "none of 12 records was accepted" in job.reason
    told = report(pipeline.objects, job)
    assert told["verdict"] == job.reason
    assert told["failed_by_class"][0]["records"] == RECORDS
    assert "nothing was published" in pipeline.objects.get(pipeline.keys(job).report_html).decode()


def test_given_a_job_that_a_gate_stops_when_someone_publishes_a_shard_all_the_same_then_it_is_refused(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_400", "contains": "Film-003."}])
    pipeline.push_spec(with_quality("{min_acceptance: 1}"))
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    request = JobInput(tenant=TENANT, job_key=job_key, bucket=pipeline.objects.bucket)

    reply = pipeline.one_attempt(request)
    assert reply.verdict == "gate"
    (item,) = pipeline.publish_items(reply)
    with pytest.raises(NotClosed, match="does not pass its gates"):
        pipeline.publish(item)
    assert pipeline.reconcile(request) == reply
    assert [pipeline.seal(request).state for _ in range(2)] == ["FAILED", "FAILED"]
    assert in_results(pipeline) == []


def golden_case(body: bytes | None, code: str) -> Any:
    return pytest.param(body, code, id=code)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        golden_case(None, "golden_missing"),
        golden_case(b'{"id": "f001", "genre": "Drama"}\nnot json\n', "invalid_json"),
        golden_case(b'{"id": "f001"}\n', "missing_field"),
        golden_case(b'{"id": "f001", "genre": ["Drama"]}\n', "golden_label"),
        golden_case(b'{"id": "f001", "genre": "Drama"}\n{"id": "f001", "genre": "War"}\n', "golden_twice"),
        golden_case(b'{"id": "f001", "genre": null}\n', "golden_empty"),
        golden_case(b"\n", "golden_empty"),
        golden_case(b'{"id": "other", "genre": "Drama"}\n', "golden_foreign"),
    ],
)
def test_given_a_golden_file_that_cannot_be_used_when_a_file_is_dropped_then_it_is_refused_before_anything_is_spent(
    pipeline: Pipeline, body: bytes | None, code: str
) -> None:
    pipeline.push_spec(with_quality(golden(0.5)))
    if body is not None:
        label(pipeline, body)

    reply = pipeline.drop(films(RECORDS))

    refused = report(pipeline.objects, pipeline.job(reply["job_key"]))
    assert reply["state"] == "FAILED"
    assert list(refused["refusal"]["by_code"]) == [code]
    assert (pipeline.executions.started, spent(pipeline.simulator.control)) == ({}, (0, 0))

    label(pipeline, as_lines([{"id": "f001", "genre": "Drama"}]))
    assert pipeline.drop(films(RECORDS))["state"] == "VALIDATED"


def one_label_wrong(pipeline: Pipeline, job: Job) -> bytes:
    answers = {row["business_key"]: row["output"]["genre"] for row in results(pipeline.objects, job)}
    return as_lines([{"id": key, "genre": "x" if key == "f002" else genre} for key, genre in answers.items()])


def test_given_a_golden_file_that_changes_while_a_job_runs_when_judged_then_the_one_at_its_start_counts(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    first = pipeline.run(films(RECORDS))
    body = one_label_wrong(pipeline, first)
    pipeline.push_spec(with_quality(golden(0.9)))
    label(pipeline, body)
    job_key = pipeline.drop(films(RECORDS), version="v2")["job_key"]
    label(pipeline, as_lines([{"id": "f001", "genre": "no such genre"}]))

    pipeline.execute(job_key)

    job = pipeline.job(job_key)
    assert (job.state.value, job.counts["reused"]) == ("COMPLETED", RECORDS)
    found = report(pipeline.objects, job)["quality"]["golden"]
    assert (found["right"], found["labelled"]) == (RECORDS - 1, RECORDS)
    kept = pipeline.objects.get(pipeline.keys(job).golden(found["sha256"]))
    assert {row["key"]: row["label"] for row in lines(kept)} == {row["id"]: row["genre"] for row in lines(body)}
    manifest = json.loads(pipeline.objects.get(pipeline.keys(job).manifest))
    assert manifest["golden_sha256"] == found["sha256"] == hashlib.sha256(kept).hexdigest()
    assert pipeline.verify(job).ok


def test_given_labelled_records_without_an_accepted_answer_when_judged_then_they_are_not_right(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    answers = results(pipeline.objects, pipeline.run(films(RECORDS)))
    label(pipeline, as_lines([{"id": row["business_key"], "genre": row["output"]["genre"]} for row in answers]))
    scenario(pipeline.simulator.control, records=[{"fault": "error_400", "contains": "Film-003."}])
    pipeline.push_spec(with_quality(golden(1), system="You name genres.", prompt_version="genre-v2"))

    job = pipeline.run(films(RECORDS), version="v2")

    found = report(pipeline.objects, job)["quality"]["golden"]
    assert (job.state.value, found["right"], found["answered"], found["labelled"]) == ("FAILED", 11, 11, 12)
    assert found["answers"][-1] == "(no answer)"
    assert sum(row[-1] for row in found["matrix"]) == 1


def test_given_an_earlier_version_when_the_next_is_published_then_the_report_compares_them(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    first = pipeline.run(films(RECORDS))
    assert "previous" not in report(pipeline.objects, first)["quality"]
    scenario(pipeline.simulator.control, records=[{"fault": "error_400", "contains": "Film-003."}])
    pipeline.push_spec(spec(prompt_version="genre-v2", system="You name genres."))

    second = pipeline.run(films(RECORDS), version="v2")

    told = report(pipeline.objects, second)["quality"]["previous"]
    assert (told["job_key"], told["dataset_version"]) == (first.job_key, "v1")
    assert told["figures"]["acceptance"] == {"before": 1.0, "now": round(11 / 12, 6)}
    assert told["figures"]["tokens_per_accepted"]["before"] > 0
    assert told["labels"] == report(pipeline.objects, first)["quality"]["labels"]
    assert "Compared with the version before" in pipeline.objects.get(pipeline.keys(second).report_html).decode()
    pipeline.wait(60)
    third = pipeline.run(films(RECORDS), version="v1")
    assert third.job_key not in (first.job_key, second.job_key)
    assert report(pipeline.objects, third)["quality"]["previous"]["job_key"] == first.job_key
