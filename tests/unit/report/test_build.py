"""The report's arithmetic and words, from real closures."""

from __future__ import annotations

import msgspec
import pytest

from tallybatch.domain.errors import Problem
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.outcomes import ACCEPTED, OutcomeClass
from tallybatch.report.build import FIRST_PROBLEMS, failure_report, final_counts, job_report, refusal_report
from tallybatch.report.meanings import FAILURES
from tests.support import reports


def test_given_a_closed_job_when_counted_then_the_counts_are_those_of_the_final_json() -> None:
    assert final_counts(reports.films()) == {
        "succeeded": 3192,
        "reused": 120,
        "failed": 9,
        "missing": 0,
        "unknown": 0,
        "duplicate": 0,
        "in_review": 0,
        "submissions": 5,
        "provider_jobs": 6,
    }


def test_given_empty_and_refused_shards_when_counted_then_only_those_that_went_to_a_provider_are_submissions() -> None:
    empty = reports.entry(1, 0, {"reused": 800}, provider_jobs=(), state=SubmissionState.EMPTY.value, records=0)
    refused = reports.entry(1, 1, {"permanent": 800}, provider_jobs=(), refusal="model_not_found")
    sent = reports.entry(1, 2, {"succeeded": 800})
    counts = final_counts(reports.closure([empty, refused, sent]))
    assert (counts["submissions"], counts["provider_jobs"]) == (2, 1)


def test_given_a_closed_job_when_reported_then_the_verdict_gives_the_sets_in_words() -> None:
    report = reports.completed()
    assert report["verdict"] == (
        "Closed: 3,192 of 3,201 records have exactly one accepted answer, 120 of them reused; 9 failed and are named."
    )
    assert report["closed"] is True


def test_given_no_failure_and_no_reuse_when_reported_then_the_verdict_does_not_speak_of_them() -> None:
    sets = reports.closure([reports.entry(1, 0, {"succeeded": 7})], expected=7, succeeded=7)
    report = job_report(
        reports.job(), reports.manifest(), sets, state="COMPLETED", results_uri=reports.RESULTS, parts=1
    )
    assert report["verdict"] == "Closed: 7 of 7 records have exactly one accepted answer."
    assert report["failed_by_class"] == []
    assert not any("failed" in step.lower() for step in report["next_steps"])


def test_given_gaps_when_reported_as_partial_then_the_verdict_names_each_and_nothing_counts_as_published() -> None:
    report = reports.partial()
    assert report["verdict"] == "Not closed, so nothing was published: 3 unknown, 1,601 still open."
    assert report["results"] == {"uri": "", "parts": 0, "records": 0}
    assert (report["open"], report["unsettled"], report["closed"]) == (1601, 1601, False)


@pytest.mark.parametrize("gap", ["missing", "unknown", "duplicate", "open"])
def test_given_one_kind_of_gap_when_reported_then_verdict_and_next_steps_speak_of_it(gap: str) -> None:
    sets = reports.closure([reports.entry(1, 0, {"succeeded": 9})], expected=10, succeeded=9, **{gap: 1})
    report = job_report(reports.job(), reports.manifest(), sets, state="PARTIAL", results_uri="", parts=0)
    assert f"1 {'still open' if gap == 'open' else gap}" in report["verdict"]
    assert len(report["next_steps"]) == 2
    assert "publish" in report["next_steps"][-1 if gap in ("unknown", "open") else 0]


def test_given_sums_that_differ_without_a_named_gap_when_reported_then_the_verdict_gives_the_sums() -> None:
    sets = reports.closure([], expected=10, succeeded=7, failed={"permanent": 2})
    report = job_report(reports.job(), reports.manifest(), sets, state="PARTIAL", results_uri="", parts=0)
    assert report["verdict"].endswith("10 expected, 7 accepted, 2 failed.")


def test_given_failures_when_reported_then_classes_come_largest_first_each_with_its_meaning() -> None:
    rows = reports.completed()["failed_by_class"]
    assert [(row["class"], row["records"]) for row in rows] == [
        ("retryable", 3),
        ("permanent", 2),
        ("refused", 2),
        ("truncated", 2),
    ]
    assert all(row["meaning"] for row in rows)


def test_given_every_outcome_class_in_which_a_record_can_end_when_looked_up_then_it_has_a_meaning() -> None:
    ends = {outcome.value for outcome in OutcomeClass} - {outcome.value for outcome in ACCEPTED}
    assert set(FAILURES) == ends - {"unsettled", "confirmed"}


def test_given_two_attempts_when_reported_then_each_row_adds_up_its_submissions() -> None:
    first, second = reports.completed()["attempts"]
    assert first["outcomes"] == {
        "missing": 16,
        "permanent": 2,
        "refused": 2,
        "retryable": 48,
        "reused": 120,
        "succeeded": 3011,
        "truncated": 2,
    }
    assert first["records"] == 3201 - 120
    assert first["tokens"] == {"cached_input": 3081 * 40, "input": 3081 * 100, "output": 3081 * 20}
    assert (first["began_at"], first["ended_at"]) == (reports.T0, reports.T0 + 60 + 3600)
    assert (second["attempt"], second["submissions"], second["records"]) == (2, 1, 64)


def test_given_a_refused_shard_when_reported_then_its_records_were_not_sent_and_no_time_is_made_up() -> None:
    (row,) = reports.failed()["attempts"]
    assert (row["submissions"], row["records"], row["began_at"], row["ended_at"]) == (4, 0, 0, 0)


def test_given_anomalies_in_several_submissions_when_reported_then_they_are_added_and_explained() -> None:
    rows = reports.completed()["anomalies"]
    assert [(row["anomaly"], row["count"]) for row in rows] == [("model_drift", 4), ("duplicate_same", 1)]
    assert all(row["meaning"] for row in rows)


def test_given_a_closed_job_when_reported_then_places_name_certificate_and_results() -> None:
    places = reports.completed()["places"]
    root = f"s3://{reports.BUCKET}/jobs/acme/{reports.JOB_KEY}/"
    assert places["results"] == reports.RESULTS
    assert places["certificate"] == root + "certificate.json"
    assert places["report_json"] == root + "report.json"
    assert places["closure"] == root + "attempts/2/closure.json"
    assert "open_records" not in places and "unknown_ids" not in places


def test_given_an_open_job_when_reported_then_places_name_what_is_open_and_no_certificate() -> None:
    places = reports.partial()["places"]
    assert "open_records" not in places, "all of them are in a submission that is still out"
    assert places["unknown_ids"] == f"s3://{reports.BUCKET}/quarantine/acme/{reports.JOB_KEY}/"
    assert "certificate" not in places and "results" not in places


def test_given_failures_worth_another_run_when_closed_then_the_next_step_counts_only_those() -> None:
    (again,) = [step for step in reports.completed()["next_steps"] if "dataset version" in step]
    assert again.startswith("3 of the failed")


def test_given_records_still_at_the_provider_when_reported_then_waiting_comes_before_dropping_again() -> None:
    steps = reports.partial()["next_steps"]
    wait = next(place for place, step in enumerate(steps) if "1,601 records" in step and "paid twice" in step)
    again = next(place for place, step in enumerate(steps) if "Drop the file again" in step)
    assert wait < again
    assert not any("still out" in step for step in reports.completed()["next_steps"] + reports.failed()["next_steps"])


def test_given_a_job_that_failed_while_a_submission_was_out_when_reported_then_the_next_steps_warn_of_it() -> None:
    out = reports.entry(1, 0, {}, records=700, terminal_at=0, state="RUNNING", outcomes="")
    report = failure_report(reports.job(JobState.FAILED), reports.manifest(), reports.closure([out], open=700), [out])
    assert any("700 records" in step for step in report["next_steps"])


def test_given_no_closure_when_a_job_failed_then_the_report_gives_reason_and_expected_count() -> None:
    report = failure_report(reports.job(JobState.FAILED, reason="NotFound: no spec"), None, None, ())
    assert (report["state"], report["verdict"]) == ("FAILED", "NotFound: no spec")
    assert report["counts"] == {"expected": 3201}
    assert report["source"] == {"uri": f"s3://{reports.BUCKET}/{reports.SOURCE}"}
    assert "manifest" not in report["places"]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED])
def test_given_an_ending_without_a_reason_when_reported_then_state_and_reuse_are_said(state: JobState) -> None:
    report = failure_report(reports.job(state), None, None, ())
    assert report["verdict"].startswith("The job")
    assert "reused" in report["next_steps"][-1]
    assert any("Mend the cause" in step for step in report["next_steps"]) is (state is JobState.FAILED)


def test_given_a_closure_when_a_job_failed_then_what_was_paid_for_is_in_the_report() -> None:
    report = failure_report(
        reports.job(JobState.CANCELLED), reports.manifest(), reports.films(), reports.films().submissions
    )
    assert report["counts"]["succeeded"] == 3192
    assert report["tokens"]["input"] == (3081 + 64) * 100
    assert len(report["submissions"]) == 5
    assert report["failed_by_class"][0]["class"] == "retryable"


def test_given_refused_input_when_reported_then_bad_lines_are_counted_and_the_first_are_named() -> None:
    report = reports.refused(problems=150)
    refusal = report["refusal"]
    assert report["verdict"] == "Refused: 1,284 lines cannot become records. Nothing was spent."
    assert list(refusal["by_code"].items()) == [("bad_json", 1000), ("missing_field", 284)]
    assert len(refusal["first"]) == FIRST_PROBLEMS
    assert refusal["first"][0] == {"line": 1, "key": "film-1", "code": "bad_json", "reason": "not JSON <b>1</b>"}
    assert report["places"]["bad_lines"] == refusal["bad_lines"]
    assert report["next_steps"] == ["mend the lines and drop the file again"]


def test_given_a_refusal_without_advice_when_reported_then_there_is_a_next_step_all_the_same() -> None:
    report = refusal_report(
        reports.job(JobState.FAILED),
        what="the file is empty.",
        where="x",
        do="",
        bad_count=1,
        by_code={"empty": 1},
        problems=[Problem("no line", code="empty")],
        bad_lines_uri="s3://b/bad_lines.jsonl",
    )
    assert report["verdict"] == "Refused: the file is empty. Nothing was spent."
    assert len(report["next_steps"]) == 1


@pytest.mark.parametrize("make", [reports.completed, reports.partial, reports.failed, reports.refused])
def test_given_any_report_when_written_as_json_then_it_reads_back_the_same(make: reports.Maker) -> None:
    report = make()
    body = msgspec.json.encode(report)
    assert msgspec.json.encode(msgspec.json.decode(body)) == body
    assert report["report_version"] == 1 and report["job_key"] == reports.JOB_KEY


def test_given_one_record_for_people_when_reported_then_the_sentence_is_of_one_and_each_command_is_whole() -> None:
    sets = reports.closure([reports.entry(1, 0, {"permanent": 1})], in_review={"permanent": 1}, open=2, unsettled=1)
    report = job_report(reports.job(), reports.manifest(), sets, state="PARTIAL", results_uri="", parts=0)
    (step,) = [step for step in report["next_steps"] if "people" in step]
    assert step.startswith("1 record waits for people")
    commands = [piece for number, piece in enumerate(step.split("`")) if number % 2 and " " in piece]
    assert [command.split()[0] for command in commands] == ["tallybatch", "tallybatch"]
    assert report["places"]["open_records"].endswith(".jsonl.zst")


def test_given_a_job_overdue_before_its_deadline_when_reported_then_nobody_says_that_it_has_passed() -> None:
    """The next attempt could only have begun after it."""
    assert not any("passed" in step for step in reports.partial()["next_steps"])


def test_given_a_failure_before_any_reconciliation_when_reported_then_what_went_out_is_told() -> None:
    sent = reports.entry(1, 0, {"succeeded": 800})
    report = failure_report(reports.job(JobState.FAILED), reports.manifest(), None, [sent])
    assert report["counts"] == {"expected": 3201, "submissions": 1, "provider_jobs": 1}
    assert report["submissions"][0]["provider_jobs"] == sent.provider_jobs
    assert report["tokens"] == sent.tokens
