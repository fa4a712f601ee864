"""Jobs that were published, and that people then decided about: what readers have, what is proven, what is told."""

from __future__ import annotations

from typing import Any

import pytest

from tallybatch.domain.errors import BadInput
from tests.support.films import films, key_of, lines, report, results, scenario, spec
from tests.support.pipeline import Pipeline
from tests.workflow.test_review import ANSWER, RECORDS, died_before_the_plan, file_of, sampled

EMBEDDINGS = """\
name: genre
provider: openai
model: text-embedding-3-small
endpoint: /v1/embeddings
prompt: {user: '{{ title }}'}
retry: {max_attempts: 1}
review: {classes: [exhausted]}
"""


def test_given_a_published_job_that_people_reopened_when_verified_then_what_readers_have_is_still_proven(
    pipeline: Pipeline,
) -> None:
    job, sample = sampled(pipeline)
    title = sample[0]["input"]["title"]
    scenario(pipeline.simulator.control, records=[{"fault": "refusal", "contains": title, "times": "always"}])
    pipeline.hand_in(job, file_of({"record_id": sample[0]["record_id"], "decision": "requeue"}))
    job = pipeline.run_again(job.job_key)
    assert (job.state.value, len(results(pipeline.objects, job))) == ("PARTIAL", 20)

    told = report(pipeline.objects, job)
    assert told["verdict"] == "Not closed, so nothing new was published: 1 waiting for people."
    assert told["next_steps"][0].startswith("Readers still have what an earlier run of the job published")
    found = pipeline.verify(job)
    assert (found.ok, found.gone_on, found.checked_records) == (True, True, 20)
    for key in (pipeline.keys(job).manifest, pipeline.certificate(job).results[0].key):
        body = pipeline.objects.get(key)
        pipeline.objects.put(key, body[:-1] + b"?")
        assert pipeline.objects.uri(key) in pipeline.verify(job).difference
        pipeline.objects.put(key, body)

    pipeline.hand_in(job, file_of({"record_id": sample[0]["record_id"], "decision": "accept", "output": ANSWER}))
    job = pipeline.run_again(job.job_key)
    found = pipeline.verify(job)
    assert (job.state.value, found.ok, found.gone_on) == ("COMPLETED", True, False)


def test_given_a_withdrawn_answer_when_a_gate_then_stops_the_job_then_the_report_says_what_readers_still_have(
    pipeline: Pipeline,
) -> None:
    quality = "quality: {{review_sample: 3, min_acceptance: {gate}}}\n"
    pipeline.push_spec(spec(sections=quality.format(gate="1.0")))
    job = pipeline.run(films(RECORDS))
    assert job.sampled == 3
    (first, *_) = lines(pipeline.objects.get(pipeline.keys(job).review_sample))
    pipeline.hand_in(job, file_of({"record_id": first["record_id"], "decision": "reject", "reason": "wrong"}))
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.sampled, len(results(pipeline.objects, job))) == ("FAILED", 2, RECORDS)
    told = report(pipeline.objects, job)
    assert told["verdict"].startswith("Stopped by a gate, so nothing new was published: accepted 7 of 8")
    assert "withdrawn since" in told["next_steps"][0]
    assert pipeline.verify(job).ok

    pipeline.push_spec(spec(sections=quality.format(gate="0.5")))
    pipeline.drop(films(RECORDS))
    pipeline.execute(job.job_key)
    job = pipeline.job(job.job_key)
    assert (job.state.value, len(results(pipeline.objects, job))) == ("COMPLETED", RECORDS - 1)
    assert pipeline.verify(job).ok


def test_given_records_that_people_answered_when_a_sample_is_drawn_then_it_is_of_the_others(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "refusal", "contains": "Film-003.", "times": "always"}])
    pipeline.push_spec(spec(sections="quality: {review_sample: 4}\nreview: {classes: [refused]}\n"))
    job = pipeline.run(films(5))
    pipeline.hand_in(job, file_of({"business_key": key_of(3), "decision": "accept", "output": ANSWER}))
    job = pipeline.run_again(job.job_key)

    sample = lines(pipeline.objects.get(pipeline.keys(job).review_sample))
    assert (job.state.value, job.sampled) == ("COMPLETED", 4)
    assert {row["business_key"] for row in sample} == {key_of(number) for number in (1, 2, 4, 5)}


def test_given_a_sampled_record_when_somebody_would_correct_it_then_its_one_answer_stands(pipeline: Pipeline) -> None:
    job, sample = sampled(pipeline)
    with pytest.raises(BadInput, match="1 decisions cannot be taken") as refused:
        pipeline.hand_in(job, file_of({"record_id": sample[0]["record_id"], "decision": "accept", "output": ANSWER}))
    assert "one accepted answer" in refused.value.problems[0].reason
    assert pipeline.job(job.job_key) == job


@pytest.mark.parametrize("output", ["drama", [], ["a"], [[]], {"0": 1}])
def test_given_a_record_to_embed_when_people_accept_what_is_no_vector_then_it_is_refused(
    pipeline: Pipeline, output: Any
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_500", "contains": "Film-003.", "times": "always"}])
    pipeline.push_spec(EMBEDDINGS)
    job = pipeline.run(films(5))
    key = key_of(3)
    with pytest.raises(BadInput) as refused:
        pipeline.hand_in(job, file_of({"business_key": key, "decision": "accept", "output": output}))
    assert refused.value.problems[0].reason == "the spec asks for embeddings, so an output is a list of numbers"
    pipeline.hand_in(job, file_of({"business_key": key, "decision": "accept", "output": [0.0, 0.5]}))
    assert pipeline.run_again(job.job_key).state.value == "COMPLETED"


def test_given_a_published_job_whose_next_run_failed_at_once_when_verified_then_it_is_still_proven(
    pipeline: Pipeline,
) -> None:
    job, sample = sampled(pipeline)
    pipeline.hand_in(job, file_of({"record_id": sample[0]["record_id"], "decision": "requeue"}))
    job = died_before_the_plan(pipeline, job)

    assert "Readers still have" in report(pipeline.objects, job)["next_steps"][0]
    found = pipeline.verify(job)
    assert (found.difference, found.gone_on) == ("", True)

    pipeline.resume(job.job_key)
    job = pipeline.run_again(job.job_key)
    found = pipeline.verify(job)
    assert (job.state.value, found.ok, found.gone_on) == ("COMPLETED", True, False)
