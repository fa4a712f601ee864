"""The same file refused again, for another reason than before: what was mended elsewhere is not in its key."""

from __future__ import annotations

from tallybatch.domain.lifecycle import JobState
from tests.support.films import films, lines, report, spec
from tests.support.pipeline import Pipeline

RECORDS = 4
GOLDEN = "quality: {golden: {file: g.jsonl, field: genre, label: genre, min_accuracy: 0.0}}"


def test_given_a_golden_file_that_is_missing_and_then_foreign_when_dropped_again_then_the_last_reason_is_told(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec(sections=GOLDEN))
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    assert "there is no golden/acme/g.jsonl" in pipeline.job(job_key).reason
    pipeline.objects.put("golden/acme/g.jsonl", b'{"id": "nobody", "genre": "Drama"}\n')
    event = pipeline.upload(films(RECORDS))

    assert pipeline.build(event) == pipeline.build(event) == {"job_key": job_key, "state": "FAILED"}

    job = pipeline.job(job_key)
    (line,) = lines(pipeline.objects.get(pipeline.keys(job).bad_lines()))
    assert (job.drop, line["code"]) == (event.detail.object.version_id, "golden_foreign")
    told = report(pipeline.objects, job)["refusal"]["first"][0]["reason"]
    assert told == line["reason"] == "none of its 1 labelled keys is in the file"
    assert told in job.reason

    pipeline.objects.put("golden/acme/g.jsonl", b'{"id": "f001", "genre": "Drama"}\n')
    assert pipeline.run(films(RECORDS)).state is JobState.COMPLETED


def test_given_a_bad_line_that_was_changed_after_a_dry_run_when_dropped_in_earnest_then_it_is_the_one_left_behind(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec(on_bad_line="quarantine"))
    job_key = pipeline.drop(films(RECORDS) + b"nonsense\n", intent="dry-run")["job_key"]

    job = pipeline.run(films(RECORDS) + b'{"id": "f005"}\n')

    assert (job.job_key, job.state) == (job_key, JobState.COMPLETED)
    (line,) = lines(pipeline.objects.get(pipeline.keys(job).bad_lines()))
    assert line["code"] == "missing_field"
