"""What can come back for one record, or not: the right outcome, nothing lost, and only what needs it is tried again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.films import (
    classes,
    film,
    films,
    histories,
    key_of,
    lines,
    results,
    retry_records,
    scenario,
    spec,
    tokens_of,
)
from tests.support.pipeline import Pipeline

RECORDS = 20
HIT = 7
RETRIED = ["retryable", "succeeded"]
DONE = ["succeeded"]


@dataclass(frozen=True)
class Case:
    """One record is hit by `fault` in its first `times` requests. `told` are its outcomes, attempt by attempt."""

    fault: str
    told: list[str]
    times: Any = 1
    anomalies: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unseen_input_tokens: int = 0
    """Billed for a line of which only a half came: its usage is in the other half."""


CASES = [
    Case("error_500", RETRIED),
    Case("error_503", RETRIED),
    Case("error_429", RETRIED),
    Case("error_in_body", RETRIED),
    Case("error_400", ["permanent"], times="always"),
    Case("error_500", ["retryable"] * 3, times="always"),
    Case("status_zero", RETRIED),
    Case("null_response", RETRIED),
    Case("missing", ["missing", "succeeded"]),
    Case("missing", ["missing"] * 3, times="always"),
    Case("refusal", ["refused"], times="always"),
    Case("content_filter", ["refused"], times="always"),
    Case("length", ["truncated"]),
    Case("bad_json", ["unqualified", "succeeded"]),
    Case("bad_schema", ["unqualified", "succeeded"]),
    Case("bad_schema", ["unqualified"] * 3, times="always"),
    Case("wrong_model", DONE, anomalies={"model_drift": 1}, notes=("model_drift",)),
    Case("u2028", DONE),
    Case("body_as_string", DONE),
    Case("no_error_key", DONE),
    Case("duplicate_same", DONE, anomalies={"duplicate_same": 1}, notes=("duplicate_same",)),
    Case("duplicate_different", ["conflict", "succeeded"], anomalies={"conflict": 1}),
    Case("duplicate_different", ["conflict"] * 3, times="always", anomalies={"conflict": 3}),
    Case("success_and_error", DONE, anomalies={"success_and_error": 1}, notes=("success_and_error",)),
    Case("garbage_line", DONE, anomalies={"unparsable": 1}),
    Case(
        "truncated_last_line",
        ["missing", "succeeded"],
        anomalies={"unparsable": 1, "counts_disagree": 1},
        unseen_input_tokens=8,
    ),
    Case("crlf", DONE),
    Case("blank_lines", DONE),
    Case("bom", DONE),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.fault}-{case.times}")
def test_given_a_fault_of_one_record_when_the_job_ends_then_it_alone_has_that_outcome(
    pipeline: Pipeline, case: Case
) -> None:
    rule = {"fault": case.fault, "contains": f"Film-{HIT:03}.", "times": case.times}
    scenario(pipeline.simulator.control, records=[rule])
    pipeline.push_spec(spec(max_attempts=3))

    job = pipeline.run(films(RECORDS))

    assert (job.state.value, job.reason) == ("COMPLETED", "")
    told = classes(pipeline.objects, job)
    assert told.pop(key_of(HIT)) == case.told
    assert told == {key_of(number): DONE for number in range(1, RECORDS + 1) if number != HIT}
    certificate = pipeline.certificate(job)
    accepted = case.told[-1] == "succeeded"
    assert certificate.succeeded == RECORDS - (not accepted)
    assert certificate.failed == ({} if accepted else {case.told[-1]: 1})
    anomalies: dict[str, int] = {}
    for entry in certificate.submissions:
        for name, count in entry.anomalies.items():
            anomalies[name] = anomalies.get(name, 0) + count
    assert anomalies == case.anomalies
    assert set(case.notes) <= set(histories(pipeline.objects, job)[key_of(HIT)][0].notes)
    assert sorted(row["business_key"] for row in results(pipeline.objects, job)) == sorted(
        key_of(number) for number in range(1, RECORDS + 1) if accepted or number != HIT
    )
    billed = pipeline.simulator.control.journal()["tokens_billed"]
    assert tokens_of(certificate)["input"] == billed["input"] - case.unseen_input_tokens
    assert pipeline.verify(job).ok


def test_given_records_that_need_it_when_tried_again_then_the_shard_holds_them_alone_and_tells_where_they_come_from(
    pipeline: Pipeline,
) -> None:
    hits = {3: ("error_500", "server_error"), 8: ("missing", "missing"), 14: ("bad_schema", "unqualified")}
    rules = [{"fault": fault, "contains": f"Film-{number:03}."} for number, (fault, _) in hits.items()]
    scenario(pipeline.simulator.control, records=rules)
    pipeline.push_spec(spec(shard_records=5))

    job = pipeline.run(films(RECORDS))

    first_shards = {row[0].business_key: row[0].shard_id for row in histories(pipeline.objects, job).values()}
    again = retry_records(pipeline.objects, job, 2)
    assert [record.business_key for record in again] == [key_of(number) for number in hits]
    assert [record.retry_reason for record in again] == [reason for _, reason in hits.values()]
    for record in again:
        assert (record.tries, record.attempt, record.parent_job_key) == (1, 2, job.job_key)
        assert record.parent_shard_id == first_shards[record.business_key]
    assert len({record.parent_shard_id for record in again}) == 3
    assert job.attempt == 2
    submissions = [(entry.attempt, entry.records) for entry in pipeline.certificate(job).submissions]
    assert submissions == [(1, 5), (1, 5), (1, 5), (1, 5), (2, 3)]


def test_given_a_record_that_keeps_failing_when_retried_then_its_tries_are_counted_and_bounded(
    pipeline: Pipeline,
) -> None:
    scenario(
        pipeline.simulator.control,
        records=[
            {"fault": "error_500", "contains": "Film-002.", "times": "always"},
            {"fault": "error_500", "contains": "Film-004.", "times": 2},
        ],
    )
    pipeline.push_spec(spec(max_attempts=4))

    job = pipeline.run(films(5))

    told = histories(pipeline.objects, job)
    assert [row.tries for row in told[key_of(2)]] == [1, 2, 3, 4]
    assert [row.tries for row in told[key_of(4)]] == [1, 2, 3]
    assert (job.state.value, job.attempt, job.counts["failed"]) == ("COMPLETED", 4, 1)
    assert [record.tries for record in retry_records(pipeline.objects, job, 4)] == [3]


def test_given_unqualified_answers_that_are_not_retried_when_reconciled_then_they_fail_at_once(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "bad_json", "contains": "Film-002."}])
    pipeline.push_spec(spec(retry_unqualified="false"))

    job = pipeline.run(films(5))

    assert classes(pipeline.objects, job)[key_of(2)] == ["unqualified"]
    assert (job.state.value, job.attempt, job.counts["failed"]) == ("COMPLETED", 1, 1)


def test_given_an_id_that_nobody_asked_for_when_the_job_ends_then_it_is_partial_and_nothing_is_published(
    pipeline: Pipeline,
) -> None:
    scenario(
        pipeline.simulator.control,
        records=[
            {"fault": "unknown_id", "contains": "Film-003."},
            {"fault": "error_500", "contains": "Film-009."},
        ],
    )
    pipeline.push_spec(spec())

    job = pipeline.run(films(10))

    assert (job.state.value, job.counts["unknown"], job.counts["succeeded"]) == ("PARTIAL", 1, 10)
    assert pipeline.events.kinds() == ["JobStarted", "JobPartial"]
    assert not list(pipeline.objects.list("results/"))
    assert pipeline.objects.head(pipeline.keys(job).certificate) is None
    (kept,) = [info.key for info in pipeline.objects.list(f"quarantine/{job.tenant}/{job.job_key}/")]
    (stranger,) = lines(pipeline.objects.get(kept))
    assert stranger["custom_id"].startswith("unknown-")
    raw = next(info.key for info in pipeline.objects.list("jobs/") if "/1/" in info.key and "raw/output" in info.key)
    assert pipeline.objects.get(kept) in pipeline.objects.get(raw)


def test_given_two_ids_that_were_swapped_when_reconciled_then_no_record_is_lost_or_counted_twice(
    pipeline: Pipeline,
) -> None:
    """Nothing in the two lines tells that they are swapped: both answers are well formed."""
    scenario(pipeline.simulator.control, records=[{"fault": "swapped_id", "contains": "Film-003."}])
    pipeline.push_spec(spec())

    job = pipeline.run(films(10))

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", 10)
    assert set(classes(pipeline.objects, job)) == {key_of(number) for number in range(1, 11)}


def test_given_separators_inside_strings_when_published_then_they_are_still_there(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "u2028"}])
    pipeline.push_spec(spec())
    body = film(1).replace(b"Film-001.", "Film\u2028-\u0085001".encode()) + b"\n"

    job = pipeline.run(body)

    (row,) = results(pipeline.objects, job)
    assert "\u2028" in row["output"]["genre"]
    assert "\u0085" in row["output"]["genre"]
