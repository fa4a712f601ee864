"""Records that one provider does not answer go to the next one of the spec, and have one accepted answer."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.contracts import JobInput
from tallybatch.domain.rows import NOBODY, Job
from tallybatch.domain.spec_file import parse_spec
from tallybatch.steps import explain_record
from tests.support.bedrock import scenario
from tests.support.films import MODELS, films, histories, key_of, lines, report, results, retry_records, spec, tokens_of
from tests.support.interrupted import InterruptedPipeline, Interrupter, Mode
from tests.support.pipeline import TENANT, Pipeline

RECORDS = 12
OPENAI, BEDROCK, GEMINI = (MODELS[name][0] for name in ("openai", "bedrock", "gemini"))
HIT, KEY = "Film-007.", key_of(7)


def chain(*providers: str, **changed: Any) -> str:
    """The first is the spec's own."""
    first, *others = providers
    listed = ", ".join(f"{{provider: {name}, model: '{MODELS[name][0]}'}}" for name in others)
    sections = f"fallback: [{listed}]\n" + changed.pop("sections", "")
    return spec(first, **{"max_attempts": 2, "sections": sections, **changed})


def down(*providers: str, fault: str = "error_500", contains: str = HIT) -> list[dict[str, Any]]:
    return [{"fault": fault, "contains": contains, "times": "always", "provider": name} for name in providers]


def run(pipeline: Pipeline, text: str, hits: list[dict[str, Any]], **faults: Any) -> Job:
    scenario(pipeline.simulator.control, records=hits, **faults)
    pipeline.push_spec(text)
    return pipeline.run(films(RECORDS))


def way(pipeline: Pipeline, job: Job, key: str = KEY) -> list[tuple[str, str]]:
    """Provider and outcome class of each attempt of a record."""
    return [(row.provider, row.outcome.value) for row in histories(pipeline.objects, job)[key]]


def file_of(*decisions: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(decision).encode() + b"\n" for decision in decisions)


def creates(pipeline: Pipeline) -> Counter[str]:
    """Jobs made, by provider."""
    return Counter(entry["provider"] for entry in pipeline.simulator.control.journal()["creates"])


def paid_once(pipeline: Pipeline, *jobs: Job) -> bool:
    """Whether the jobs' certificates have the whole bill of all providers, and no marker was used twice."""
    journal = pipeline.simulator.control.journal()
    certified: Counter[str] = Counter()
    for job in jobs:
        certified.update(tokens_of(pipeline.certificate(job)))
    billed = {kind: certified[kind] for kind in journal["tokens_billed"]} == journal["tokens_billed"]
    return billed and set(journal["jobs_per_marker"].values()) == {1}


def test_given_a_record_that_two_providers_fail_when_tried_at_the_third_then_it_is_accepted_under_that_models_key(
    pipeline: Pipeline,
) -> None:
    text = chain("openai", "gemini", "bedrock")
    job = run(pipeline, text, down("openai", "gemini"))

    assert job.state.value == "COMPLETED"
    tried = ["openai", "openai", "gemini", "gemini"]
    assert way(pipeline, job) == [*((name, "retryable") for name in tried), ("bedrock", "succeeded")]
    assert creates(pipeline) == {"openai": 2, "gemini": 2, "bedrock": 1}
    targets = parse_spec(text.encode()).targets
    rows = {row["business_key"]: row for row in results(pipeline.objects, job)}
    assert len(rows) == RECORDS
    versions = {record.business_key: record.source_version for record in retry_records(pipeline.objects, job, 1)}
    for key, row in rows.items():
        target = targets[2 if key == KEY else 0]
        record_key = target.identity(TENANT).record_key(row["record_id"], versions[key])
        assert (row["provider"], row["model"], row["record_key"]) == (*target.place, record_key)
        answer = pipeline.ledger.records([record_key])[record_key].answer
        assert answer is not None
        assert answer.job_key == job.job_key
    certificate = pipeline.certificate(job)
    assert [entry.model for entry in certificate.submissions] == [OPENAI, OPENAI, GEMINI, GEMINI, BEDROCK]
    assert paid_once(pipeline, job)
    assert pipeline.verify(job).ok


def test_given_a_record_that_has_fallen_back_when_its_job_ends_then_only_the_model_that_answered_holds_its_slot(
    pipeline: Pipeline,
) -> None:
    text = chain("openai", "gemini", "bedrock")
    job = run(pipeline, text, down("openai"))

    (record,) = retry_records(pipeline.objects, job, 3)
    slots = [
        t.identity(TENANT).record_key(record.record_id, record.source_version)
        for t in parse_spec(text.encode()).targets
    ]
    rows = pipeline.ledger.records(slots)
    assert (rows[slots[0]].owner, rows[slots[0]].answer) == (NOBODY, None)
    assert rows[slots[1]].answer is not None
    assert slots[2] not in rows
    assert (record.used.targets, record.used.earlier_tries, record.tries) == (1, 2, 2)


@pytest.mark.parametrize(("fault", "outcome", "tries"), [("bad_json", "unqualified", 2), ("refusal", "refused", 1)])
def test_given_an_answer_that_is_no_use_when_the_tries_are_over_then_another_model_is_asked_and_not_told_of_it(
    pipeline: Pipeline, fault: str, outcome: str, tries: int
) -> None:
    job = run(pipeline, chain("openai", "gemini", retry=", feedback: true"), down("openai", fault=fault))

    assert way(pipeline, job) == [("openai", outcome)] * tries + [("gemini", "succeeded")]
    (record,) = retry_records(pipeline.objects, job, tries + 1)
    assert record.feedback == ""
    assert paid_once(pipeline, job)


@pytest.mark.parametrize("fault", ["error_400", "length"])
def test_given_a_request_that_no_model_would_do_better_with_when_it_fails_then_it_does_not_fall_back(
    pipeline: Pipeline, fault: str
) -> None:
    job = run(pipeline, chain("openai", "gemini"), down("openai", fault=fault))

    assert (job.state.value, job.counts["failed"], job.attempt) == ("COMPLETED", 1, 1)
    assert creates(pipeline) == {"openai": 1}


def test_given_a_record_that_every_target_fails_when_the_last_one_has_then_it_fails_once(pipeline: Pipeline) -> None:
    job = run(pipeline, chain("openai", "gemini"), down("openai", "gemini"))

    assert (job.state.value, job.counts["failed"], job.counts["succeeded"]) == ("COMPLETED", 1, RECORDS - 1)
    assert [name for name, _ in way(pipeline, job)] == ["openai", "openai", "gemini", "gemini"]
    assert pipeline.verify(job).ok
    assert paid_once(pipeline, job)


def test_given_records_at_two_targets_when_they_are_tried_in_one_attempt_then_each_has_its_shard_and_the_sets_close(
    pipeline: Pipeline,
) -> None:
    """One is refused by the model at once; the other has a second try at the first provider. Both are in two shards."""
    hits = [*down("openai", fault="refusal"), {"fault": "error_500", "contains": "Film-002.", "provider": "openai"}]
    hits += [{"fault": "error_500", "contains": "Film-011.", "provider": "openai"}]
    job = run(pipeline, chain("openai", "gemini", shard_records=4), hits)

    assert (job.state.value, job.counts["succeeded"], job.attempt) == ("COMPLETED", RECORDS, 2)
    assert way(pipeline, job) == [("openai", "refused"), ("gemini", "succeeded")]
    assert (
        way(pipeline, job, key_of(2))
        == way(pipeline, job, key_of(11))
        == [("openai", "retryable"), ("openai", "succeeded")]
    )
    second = [entry for entry in pipeline.certificate(job).submissions if entry.attempt == 2]
    assert [(entry.provider, entry.records) for entry in second] == [("openai", 2), ("gemini", 1)]
    assert pipeline.verify(job).ok


# A provider that takes nothing


def test_given_an_account_that_is_refused_when_there_is_a_fallback_then_the_whole_job_goes_there_at_once(
    pipeline: Pipeline,
) -> None:
    calls = [{"on": "create", "fault": "status:401", "provider": "openai", "count": "always"}]
    job = run(pipeline, chain("openai", "gemini"), [], calls=calls)

    assert (job.state.value, job.counts["succeeded"], job.attempt) == ("COMPLETED", RECORDS, 2)
    assert creates(pipeline) == {"gemini": 1}
    assert {row.tries for rows in histories(pipeline.objects, job).values() for row in rows[1:]} == {1}
    assert pipeline.verify(job).ok


def test_given_accounts_that_are_refused_everywhere_when_the_last_one_is_then_the_job_fails_and_says_so(
    pipeline: Pipeline,
) -> None:
    calls = [
        {"on": "create", "fault": "status:401", "provider": name, "count": "always"} for name in ("openai", "gemini")
    ]
    job = run(pipeline, chain("openai", "gemini"), [], calls=calls)

    assert (job.state.value, job.attempt) == ("FAILED", 2)
    assert "refused every shard" in job.reason
    assert creates(pipeline) == Counter()


# Too few records for the target


@pytest.mark.parametrize(
    ("small_set", "state", "last"),
    [
        ("on_demand", "COMPLETED", ("bedrock", "succeeded")),
        ("wait", "COMPLETED", ("gemini", "succeeded")),
        ("review", "PARTIAL", ("bedrock", "too_few")),
    ],
)
def test_given_a_target_that_takes_no_small_jobs_when_one_record_falls_back_then_the_small_set_rule_says_what_follows(
    simulator: SimulatorServer, small_set: str, state: str, last: tuple[str, str]
) -> None:
    """To wait is of no use when nothing else is on its way: then the target after it has its turn."""
    pipeline = Pipeline(simulator, min_records={"bedrock": 100})
    text = chain("openai", "bedrock", "gemini", retry=f", small_set: {small_set}")
    job = run(pipeline, text, down("openai"))

    assert (job.state.value, way(pipeline, job)[-1]) == (state, last)
    assert creates(pipeline)["bedrock"] == 0
    if state == "COMPLETED":
        assert pipeline.verify(job).ok
        assert paid_once(pipeline, job)


# Other jobs


def test_given_an_answer_of_the_fallback_when_a_later_job_has_the_record_then_it_is_reused_and_nothing_is_paid(
    pipeline: Pipeline,
) -> None:
    run(pipeline, chain("openai", "gemini"), down("openai"))
    before = creates(pipeline)

    again = pipeline.run(films(RECORDS), version="v2")

    assert (again.state.value, again.counts["reused"], again.attempt) == ("COMPLETED", RECORDS, 1)
    assert creates(pipeline) == before
    rows = {row["business_key"]: row for row in results(pipeline.objects, again)}
    assert (rows[KEY]["provider"], rows[KEY]["model_version"]) == ("gemini", GEMINI)
    assert pipeline.verify(again).ok


def test_given_a_record_that_another_job_has_at_its_fallback_when_claimed_then_the_job_waits_for_that_answer(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=down("openai"))
    pipeline.push_spec(chain("openai", "gemini", max_attempts=1))
    first = pipeline.drop(films(RECORDS))["job_key"]
    request = JobInput(tenant=TENANT, job_key=first, bucket=pipeline.objects.bucket)
    pipeline.wait(pipeline.one_attempt(request).wait_s)
    second_attempt = request.model_copy(update={"attempt": 2})
    (item,) = pipeline.items(pipeline.plan(second_attempt))
    pipeline.submit(item)

    other = JobInput(
        tenant=TENANT, job_key=pipeline.drop(films(RECORDS), version="v2")["job_key"], bucket=request.bucket
    )
    reply = pipeline.one_attempt(other)
    assert reply.verdict == "retry"
    pipeline.work(second_attempt)
    pipeline.work(other.model_copy(update={"attempt": 2}))

    job = pipeline.job(other.job_key)
    assert way(pipeline, job) == [("openai", "waiting"), ("gemini", "reused")]
    assert (job.state.value, creates(pipeline)) == ("COMPLETED", {"openai": 1, "gemini": 1})


# What people and programs see


def test_given_answers_of_two_models_when_reported_then_the_report_says_which_model_answered_how_many(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, chain("openai", "gemini"), down("openai"))

    answered = report(pipeline.objects, job)["answered_by"]
    assert [(row["provider"], row["model"], row["records"], row["accepted"]) for row in answered] == [
        ("openai", OPENAI, RECORDS + 1, RECORDS - 1),
        ("gemini", GEMINI, 1, 1),
    ]
    page = pipeline.objects.get(pipeline.keys(job).report_html).decode()
    assert "Which model answered" in page
    assert [target["model_resolved"] for target in manifest(pipeline, job)["fallback"]] == [GEMINI]


def manifest(pipeline: Pipeline, job: Job) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(pipeline.objects.get(pipeline.keys(job).manifest))
    return document


def test_given_a_model_that_answers_as_another_when_it_is_the_fallback_then_drift_is_measured_by_its_own_version(
    pipeline: Pipeline,
) -> None:
    hits = [*down("openai"), {"fault": "wrong_model", "contains": HIT, "times": "always", "provider": "gemini"}]
    job = run(pipeline, chain("openai", "gemini"), hits)

    assert histories(pipeline.objects, job)[KEY][-1].notes == ("model_drift",)
    assert [entry.anomalies.get("model_drift", 0) for entry in pipeline.certificate(job).submissions] == [0, 0, 1]


def test_given_a_job_with_a_fallback_when_its_files_are_swept_then_those_of_both_providers_are_deleted(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, chain("openai", "gemini"), down("openai"))
    pipeline.wait(25 * 3600)

    assert pipeline.sweep().gaps == []
    assert {entry["provider"] for entry in pipeline.simulator.control.journal()["deletes"]} == {"openai", "gemini"}
    assert pipeline.job(job.job_key).provider_files_deleted_at


# Crashes


def crashed(simulator: SimulatorServer, point: tuple[int, Mode]) -> tuple[InterruptedPipeline, Interrupter, Job]:
    simulator.control.set_scenario("calm")
    simulator.control.reset()
    pipeline, interrupter = InterruptedPipeline(simulator), Interrupter(point)
    pipeline.interrupt(interrupter)
    return pipeline, interrupter, run(pipeline, chain("openai", "gemini", max_attempts=1), down("openai"))


def test_given_a_crash_at_any_call_of_a_fallback_submission_when_gone_on_then_nothing_is_paid_twice(
    simulator: SimulatorServer,
) -> None:
    _, whole, _ = crashed(simulator, (-1, "before"))
    create = whole.calls.index("GeminiApi.create")
    points = [point for point in whole.points() if create - 9 <= point[0] <= create + 2]
    assert any(whole.calls[number] == "MemoryLedger.take_over_records" for number, _ in points)

    for point in points:
        pipeline, interrupter, job = crashed(simulator, point)
        told = f"{interrupter.struck} {point}"
        assert interrupter.struck, told
        assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", RECORDS), told
        assert way(pipeline, job)[-1] == ("gemini", "succeeded"), told
        assert creates(pipeline) == {"openai": 1, "gemini": 1}, told
        assert paid_once(pipeline, job), told
        assert pipeline.verify(job).ok, told


# People


def test_given_a_record_that_no_target_answered_when_it_goes_to_people_then_they_see_what_each_model_said(
    pipeline: Pipeline,
) -> None:
    text = chain("openai", "gemini", max_attempts=1, sections="review: {classes: [unqualified]}")
    job = run(pipeline, text, down("openai", "gemini", fault="bad_schema"))
    (item,) = lines(pipeline.objects.get(pipeline.keys(job).review_queue(job.attempt)))

    assert [(one["provider"], bool(one["answer"])) for one in item["candidates"]] == [
        ("openai", True),
        ("gemini", True),
    ]
    output = {"genre": "Drama", "confidence": 0.5}
    pipeline.hand_in(job, file_of({"business_key": KEY, "decision": "accept", "output": output}))
    job = pipeline.run_again(job.job_key)

    row = next(row for row in results(pipeline.objects, job) if row["business_key"] == KEY)
    assert (job.state.value, row["provider"], row["model"], row["output"]) == ("COMPLETED", "review", "", output)
    assert pipeline.verify(job).ok


def test_given_an_answer_of_the_fallback_in_the_sample_when_people_ask_again_then_that_answer_is_withdrawn(
    pipeline: Pipeline,
) -> None:
    text = chain("openai", "gemini", max_attempts=1, sections=f"quality: {{review_sample: {RECORDS}}}")
    hits = [{"fault": "error_500", "contains": HIT, "provider": "openai"}]
    job = run(pipeline, text, hits)
    sampled = {row["business_key"]: row for row in lines(pipeline.objects.get(pipeline.keys(job).review_sample))}
    slot = sampled[KEY]["record_key"]
    before = pipeline.ledger.records([slot])[slot]
    assert before.answer is not None

    pipeline.hand_in(job, file_of({"business_key": KEY, "decision": "requeue"}))
    job = pipeline.run_again(job.job_key)

    after = pipeline.ledger.records([slot]).get(slot)
    assert after is None or after.answer is None
    told = [("openai", "retryable"), ("gemini", "succeeded"), ("review", "requeued"), ("openai", "succeeded")]
    assert way(pipeline, job) == told
    row = next(row for row in results(pipeline.objects, job) if row["business_key"] == KEY)
    assert (job.state.value, row["model"]) == ("COMPLETED", OPENAI)
    assert pipeline.verify(job).ok


def test_given_a_record_that_fell_back_when_explained_then_each_attempt_names_its_model_and_what_followed(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, chain("openai", "gemini", max_attempts=1), down("openai"))

    story = explain_record.run(job, KEY, explain_record.Ports(pipeline.objects, pipeline.ledger))

    told = [(one["submission"]["model"], one["outcome"], one["follows"]) for one in story["attempts"]]
    assert told == [(OPENAI, "retryable", "retry"), (GEMINI, "succeeded", "accepted")]
    (row,) = (row for row in results(pipeline.objects, job) if row["business_key"] == KEY)
    assert (story["stands"], story["record_key"]) == ("accepted", row["record_key"])
    assert story["ledger"]["accepted_in"]
