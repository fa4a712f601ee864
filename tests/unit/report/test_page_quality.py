"""The quality section: gates, confusion matrix, labels and the version before, as data and as a page."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.quality_gates import Judgement, judge
from tallybatch.domain.quality_golden import GoldenTally
from tallybatch.domain.spec_quality import Quality
from tallybatch.report.build import Report, job_report
from tallybatch.report.page import render
from tests.support import reports

HOSTILE = '<script>alert("x")</script>'


def judgement(min_accuracy: float, labels: dict[str, str], answers: dict[str, Any]) -> Judgement:
    closure = reports.films()
    tally = GoldenTally(labels, "genre")
    for key in labels:
        tally.expect(key)
    for key, answer in answers.items():
        tally.answer(key, msgspec.Raw(msgspec.json.encode({"genre": answer})))
    golden = tally.figures("f" * 64)
    terms = Quality.model_validate({"golden": {"file": "g", "field": "genre", "min_accuracy": min_accuracy}})
    gates = judge(terms, expected=closure.expected, succeeded=closure.succeeded, golden=golden)
    return Judgement(job_key=closure.job_key, attempt=1, spec_digest="", golden=golden, gates=gates)


def report(found: Judgement, *, state: JobState = JobState.COMPLETED, **more: Any) -> Report:
    job = reports.job(state)
    uri = reports.RESULTS if state is JobState.COMPLETED else ""
    return job_report(
        job, reports.manifest(), reports.films(), state=state.value, results_uri=uri, parts=1, judgement=found, **more
    )


def test_given_a_job_that_a_gate_stops_when_reported_then_the_page_says_why_and_what_to_do() -> None:
    made = report(judgement(0.9, {"a": "War", "b": "War"}, {"a": "War", "b": "Drama"}), state=JobState.FAILED)

    assert made["verdict"] == (
        "Stopped by a gate, so nothing was published: right on 1 of 2 labelled records (50 %), and min_accuracy asks "
        "for 90 %."
    )
    assert "results" not in made["places"]
    assert any("nothing is paid again" in step for step in made["next_steps"])
    page = render(made).decode()
    assert "stops the job" in page
    assert "1 of 2 right" in page


def test_given_hostile_labels_and_answers_when_the_page_is_made_then_they_stay_text() -> None:
    found = judgement(0, {"a": HOSTILE, "b": HOSTILE}, {"a": HOSTILE, "b": HOSTILE})
    previous = {
        **report(found),
        "job_key": HOSTILE,
        "dataset_version": HOSTILE,
        "quality": {"labels": {"genre": {HOSTILE: 1}}},
    }
    page = render(report(found, labels={"genre": {HOSTILE: 5}, HOSTILE: {"x": 2}}, previous=previous)).decode()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 6


def test_given_a_version_before_when_compared_then_figures_and_shares_stand_side_by_side() -> None:
    found = judgement(0, {"a": "War"}, {"a": "War"})
    before = report(found, labels={"genre": {"War": 1, "Drama": 3}})
    before["counts"] = {**before["counts"], "expected": 10, "succeeded": 5, "reused": 0}
    before["cost_usd"] = "0.010"
    made = report(found, labels={"genre": {"War": 3, "Crime": 1}}, previous=before)

    told = made["quality"]["previous"]
    assert told["figures"]["acceptance"]["before"] == 0.5
    assert told["figures"]["accuracy"] == {"before": 1.0, "now": 1.0}
    assert told["figures"]["cost_per_accepted_usd"]["before"] == "0.002000000"
    assert told["labels"] == {"genre": {"War": 1, "Drama": 3}}
    page = render(json.loads(json.dumps(made))).decode()
    assert "Compared with the version before" in page
    assert '<td class="n">75 %</td><td class="n">25 %</td>' in page.replace(".0 %", " %")


def test_given_a_report_without_the_section_when_the_page_is_made_then_it_is_left_out() -> None:
    assert "<h2>Quality</h2>" not in render(reports.completed()).decode()
