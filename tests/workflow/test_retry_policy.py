"""What a spec says of records without an accepted answer: who is tried again, how, how often, and who goes to people.

Each test runs the real steps against the simulator; what must not happen is a try, or a bill, too many.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tallybatch.contracts import ShardItem
from tallybatch.steps.rendering import FEEDBACK
from tests.support.films import classes, histories, key_of, report
from tests.support.pipeline import Pipeline
from tests.support.retrying import (
    HIT,
    RECORDS,
    closure,
    creates,
    for_people,
    history,
    hit,
    requests,
    retry_lines,
    run,
    told,
)

# Who goes to people


def test_given_two_answers_when_people_are_to_decide_then_the_job_waits_for_them_and_publishes_nothing(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, {}, hit("duplicate_different"))

    assert (job.state.value, job.attempt, creates(pipeline)) == ("PARTIAL", 1, 1)
    assert (job.counts["succeeded"], job.counts["in_review"], job.counts["failed"]) == (RECORDS - 1, 1, 0)
    assert (job.counts["missing"], job.counts["unknown"], job.counts["duplicate"]) == (0, 0, 0)
    assert list(pipeline.objects.list("results/")) == []
    (waiting,) = for_people(pipeline, job)
    assert (waiting.why, waiting.outcome.value, waiting.tries) == ("conflict", "conflict", 1)
    assert pipeline.objects.head(waiting.outcomes) is not None
    told_of = report(pipeline.objects, job)
    assert [(row["class"], row["records"]) for row in told_of["in_review_by_class"]] == [("conflict", 1)]
    assert "1 waiting for people" in told_of["verdict"]


@pytest.mark.parametrize(
    ("fault", "word", "tries"),
    [
        ("error_400", "permanent", 1),
        ("refusal", "refused", 1),
        ("length", "truncated", 1),
        ("bad_json", "unqualified", 2),
        ("error_500", "exhausted", 2),
    ],
)
def test_given_an_end_that_the_spec_lists_when_reached_then_the_record_goes_to_people_else_it_fails(
    pipeline: Pipeline, fault: str, word: str, tries: int
) -> None:
    faults = hit(fault, times="always")
    job = run(pipeline, {"max_attempts": 2, "sections": f"review: {{classes: [{word}]}}"}, faults)

    assert (job.state.value, job.counts["in_review"]) == ("PARTIAL", 1)
    assert [(record.why, record.tries) for record in for_people(pipeline, job)] == [(word, tries)]
    others = run(pipeline, {"max_attempts": 2, "prompt_version": "v2", "system": "Label films."}, faults)
    assert (others.state.value, others.counts["failed"], others.counts["in_review"]) == ("COMPLETED", 1, 0)
    assert closure(pipeline, others).review_key == ""


# Caps of one record


@pytest.mark.parametrize(
    ("limit", "ends", "attempts"),
    [
        (", max_tokens_per_record: 1", ("PARTIAL", 1, 0), 1),
        (", max_tokens_per_record: 1000000", ("COMPLETED", 0, 1), 3),
        ("", ("COMPLETED", 0, 1), 3),
    ],
)
def test_given_a_cap_of_tokens_when_another_try_would_go_beyond_then_people_decide(
    pipeline: Pipeline, limit: str, ends: tuple[str, int, int], attempts: int
) -> None:
    job = run(pipeline, {"limits": limit}, hit("bad_schema", times="always"))

    assert (job.state.value, job.counts["in_review"], job.counts["failed"]) == ends
    assert job.attempt == attempts
    rows = history(pipeline, job)
    assert len(rows) == attempts
    used = [row.used.tokens for row in rows]
    assert used == [sum(row.usage.input + row.usage.output for row in rows[: n + 1]) for n in range(attempts)]
    assert used[0] > 0
    if ends[1]:
        assert [record.why for record in for_people(pipeline, job)] == ["over_cap"]


def test_given_a_cap_that_two_tries_fit_when_a_third_would_not_then_there_are_two(pipeline: Pipeline) -> None:
    faults = hit("bad_schema", times="always")
    first = run(pipeline, {"max_attempts": 1}, faults)
    (row,) = history(pipeline, first)
    cap = row.used.tokens * 5 // 2

    job = run(
        pipeline,
        {
            "limits": f", max_tokens_per_record: {cap}",
            "prompt_version": "v2",
            "system": "You label films!",
            "max_attempts": 9,
        },
        faults,
    )

    assert told(pipeline, job) == ["unqualified"] * 2
    assert [record.why for record in for_people(pipeline, job)] == ["over_cap"]
    assert history(pipeline, job)[-1].used.tokens <= cap


def test_given_a_cap_of_dollars_when_another_try_would_go_beyond_then_people_decide(pipeline: Pipeline) -> None:
    faults = hit("bad_schema", times="always")
    first = run(pipeline, {"max_attempts": 1}, faults)
    (row,) = history(pipeline, first)
    assert row.used.nano_usd == row.cost_nano_usd != 0
    cap = row.used.nano_usd * 5 // 2
    changed = {"prompt_version": "v2", "system": "You label films!", "max_attempts": 9}

    job = run(pipeline, {"limits": f", max_cost_per_record_usd: '{cap / 1e9:.9f}'", **changed}, faults)

    assert told(pipeline, job) == ["unqualified"] * 2
    assert [record.why for record in for_people(pipeline, job)] == ["over_cap"]
    assert 0 < history(pipeline, job)[-1].used.nano_usd <= cap


# What a retry changes of a request


def test_given_cut_answers_when_the_cap_may_rise_then_each_retry_may_say_more_and_the_record_stays_the_same(
    pipeline: Pipeline,
) -> None:
    """The first answers are cut at 400 tokens; the second too, at 800; the third may have 1000."""
    raised = {"retry": ", raise_output_cap: {factor: 2, max: 1000}"}
    job = run(
        pipeline,
        raised,
        [
            {"fault": "length", "contains": '"max_output_tokens":400'},
            {"fault": "length", "contains": '"max_output_tokens":800'},
        ],
    )

    assert (job.state.value, job.counts["succeeded"], job.attempt) == ("COMPLETED", RECORDS, 3)
    assert told(pipeline, job) == ["truncated", "truncated", "succeeded"]
    for attempt, cap in ((1, 400), (2, 800), (3, 1000)):
        bodies = requests(pipeline, job, attempt)
        assert {body["max_output_tokens"] for body in bodies.values()} == {cap}
        assert set(bodies) == set(requests(pipeline, job, 1))
    rows = history(pipeline, job)
    assert len({(row.record_id, row.record_key) for row in rows}) == 1
    assert [row.output_cap for row in rows] == [0, 800, 1000]
    assert pipeline.verify(job).ok


def test_given_answers_that_stay_cut_when_the_cap_is_as_high_as_it_may_be_then_they_are_final(
    pipeline: Pipeline,
) -> None:
    raised = {"retry": ", raise_output_cap: {max: 800}", "max_attempts": 9}
    job = run(pipeline, raised, hit("length", times="always"))

    assert (job.state.value, job.attempt, job.counts["failed"]) == ("COMPLETED", 2, 1)
    assert told(pipeline, job) == ["truncated", "truncated"]
    assert creates(pipeline) == 2


def test_given_feedback_when_an_answer_failed_its_checks_then_the_model_is_told_why_and_nothing_of_the_answer(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, {"retry": ", feedback: true"}, hit("bad_schema"))

    rows = history(pipeline, job)
    assert (job.state.value, rows[-1].outcome.value) == ("COMPLETED", "succeeded")
    unqualified = next(row for row in rows if row.outcome.value == "unqualified")
    (line,) = retry_lines(pipeline, job, unqualified.attempt + 1)
    assert line.feedback == unqualified.reason != ""
    (body,) = requests(pipeline, job, unqualified.attempt + 1).values()
    asked = json.dumps(body)
    assert json.dumps(FEEDBACK.format(reason=line.feedback))[1:-1] in asked
    assert f"Title: {HIT}" in asked
    first = requests(pipeline, job, 1)[line.record_id]
    assert "not accepted" not in json.dumps(first)
    assert len({row.record_id for row in rows}) == len({row.record_key for row in rows}) == 1


def test_given_a_retry_when_its_request_is_made_again_then_it_is_the_same_byte_for_byte(pipeline: Pipeline) -> None:
    job = run(pipeline, {"retry": ", feedback: true"}, hit("bad_schema"))
    keys = [info.key for info in pipeline.objects.list("jobs/") if info.key.endswith("request.jsonl")]
    before = {key: pipeline.objects.get(key) for key in keys}
    assert len(before) == job.attempt > 1
    for row in pipeline.ledger.submissions(job.job_key):
        item = ShardItem(
            tenant=row.tenant, job_key=row.job_key, attempt=row.attempt, shard_id=row.shard_id,
            shard_sha256=row.shard_sha256, record_count=row.input_records,
        )  # fmt: skip
        pipeline.submit(item)
    assert {key: pipeline.objects.get(key) for key in keys} == before
    assert creates(pipeline) == job.attempt


# Where the reason stays


def test_given_a_record_that_is_tried_again_when_looked_up_then_line_and_ledger_say_when_and_why(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, {"shard_records": 4}, hit("error_429"))

    (line,) = retry_lines(pipeline, job, 2)
    rows = history(pipeline, job)
    assert (line.attempt, line.tries, line.parent_job_key) == (2, 1, job.job_key)
    assert line.parent_shard_id == rows[0].shard_id
    assert line.retry_reason == rows[0].code != ""
    stored = pipeline.ledger.records([row[-1].record_key for row in histories(pipeline.objects, job).values()])
    assert (stored[rows[0].record_key].attempt, stored[rows[0].record_key].reason) == (2, rows[0].code)
    others = [row for key, row in stored.items() if key != rows[0].record_key]
    assert {(row.attempt, row.reason) for row in others} == {(1, "")}


# Codes


def test_given_a_code_that_the_spec_calls_retryable_when_it_comes_then_it_is_tried_again(pipeline: Pipeline) -> None:
    job = run(
        pipeline,
        {"retry": ", codes: {context_length_exceeded: retryable, max_output_tokens: permanent}"},
        [*hit("error_400"), {"fault": "length", "contains": "Film-003."}],
    )

    assert told(pipeline, job)[0] == "retryable"
    assert told(pipeline, job)[-1] == "succeeded"
    assert classes(pipeline.objects, job)[key_of(3)] == ["permanent"]


def test_given_a_code_that_the_spec_calls_unqualified_when_tried_again_then_the_model_is_not_told_its_own_words(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, {"retry": ", feedback: true, codes: {refusal: unqualified}"}, hit("refusal"))

    assert told(pipeline, job) == ["unqualified", "succeeded"]
    assert history(pipeline, job)[0].reason
    (line,) = retry_lines(pipeline, job, 2)
    assert (line.feedback, line.retry_reason) == ("", "refusal")
    assert [row.schema_valid for row in pipeline.ledger.submissions(job.job_key)] == [0, 0]


def unheard_of(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's word for a row that it did not get to is a new one."""
    whole = pipeline.provider.download

    def download(channel: str) -> Any:
        yield b"".join(whole(channel)).replace(b'"batch_expired"', b'"quantum_flux"')

    monkeypatch.setattr(pipeline.provider, "download", download)


def test_given_a_code_that_nobody_knows_when_it_comes_twice_then_it_was_tried_once_more_and_is_reported(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    unheard_of(pipeline, monkeypatch)
    job = run(pipeline, {"max_attempts": 9}, jobs=[{"fault": "expire", "done": 0.5, "count": "always"}])

    failed = [row for row in classes(pipeline.objects, job).values() if row[-1] != "succeeded"]
    assert failed
    assert {tuple(row) for row in failed} == {("retryable", "retryable")}
    assert (job.state.value, job.attempt) == ("COMPLETED", 2)
    submissions = report(pipeline.objects, job)["submissions"]
    seen = [entry["unknown_codes"] for entry in submissions]
    assert [list(codes) for codes in seen] == [["quantum_flux"]] * 2
    assert seen[1] == {"quantum_flux": len(failed)}
    assert submissions[1]["anomalies"]["unknown_code"] == len(failed)
    assert pipeline.verify(job).ok


def test_given_a_code_that_only_the_spec_knows_when_it_comes_then_it_is_what_the_spec_says(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    unheard_of(pipeline, monkeypatch)
    job = run(
        pipeline,
        {"retry": ", codes: {quantum_flux: expired}"},
        jobs=[{"fault": "expire", "done": 0.5, "count": 2}],
    )

    assert (job.state.value, job.counts["succeeded"], job.attempt) == ("COMPLETED", RECORDS, 3)
    assert all("unknown_code" not in entry.anomalies for entry in closure(pipeline, job).submissions)
