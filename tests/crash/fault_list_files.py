"""The faults of result files: which there are, where they are named, and whether they can be read.

Here too is what the lists of faults are written with.
"""

from __future__ import annotations

from typing import Any

from tests.support.fault_run import RECORDS, Ending, Fault

ALL_MISSING = {"missing > succeeded": RECORDS}
UNTOUCHED = Ending()
HTTP = ("openai", "gemini")
"""Those whose result files come over HTTP, and are named in the job."""


def call_fault(name: str, wrong: str, *rules: dict[str, Any], ending: Ending = UNTOUCHED, **more: Any) -> Fault:
    return Fault(name=name, wrong=wrong, scenario={"calls": list(rules)}, ending=ending, **more)


def job_fault(
    name: str,
    wrong: str,
    *rules: dict[str, Any],
    ending: Ending = UNTOUCHED,
    keys: dict[str, Any] | None = None,
    **more: Any,
) -> Fault:
    return Fault(name=name, wrong=wrong, scenario={"jobs": list(rules), **(keys or {})}, ending=ending, **more)


FILES = (
    job_fault(
        "only-errors",
        "completed, and its only file is the error file",
        {"fault": "only_error_file:error_500"},
        ending=Ending(told={"retryable > succeeded": RECORDS}, attempts=2, jobs=2),
    ),
    job_fault(
        "all-rows-failed",
        "completed, and every row is an error for good",
        {"fault": "only_error_file:error_400", "count": "always"},
        ending=Ending(told={"permanent": RECORDS}, code="context_length_exceeded"),
        on={
            "bedrock": Ending(told={"permanent": RECORDS}, code="400"),
            "gemini": Ending(told={"permanent": RECORDS}, code="INVALID_ARGUMENT"),
        },
    ),
    job_fault(
        "empty-string-ids",
        "the error file's id is an empty string",
        {"fault": "empty_string_ids"},
        providers=("openai",),
    ),
    job_fault(
        "empty-string-ids-all",
        "the only file's id is an empty string",
        {"fault": "empty_string_ids"},
        ending=Ending(told=ALL_MISSING, attempts=2, jobs=2, unread_jobs=1, anomalies={"counts_disagree": 1}),
        providers=("gemini",),
    ),
    job_fault(
        "empty-string-ids-only-errors",
        "the output file's id is an empty string",
        {"fault": "empty_string_ids"},
        {"fault": "only_error_file:error_500"},
        ending=Ending(told={"retryable > succeeded": RECORDS}, attempts=2, jobs=2),
        providers=("openai",),
    ),
    job_fault(
        "wrong-counts",
        "the job's counts are not those of its files",
        {"fault": "wrong_counts"},
        ending=Ending(anomalies={"counts_disagree": 1}),
    ),
    job_fault("content-404", "the result file answers 404 for 40 s", {"fault": "content_404_for_s:40"}, providers=HTTP),
    call_fault(
        "content-breaks",
        "the result file breaks off half way, then HTTP 503",
        {"on": "content", "fault": "cut_body"},
        {"on": "content", "fault": "status:503", "nth": 2, "count": 2},
        {"on": "content", "fault": "cut_body", "nth": 4},
        providers=HTTP,
    ),
    job_fault(
        "results-gone",
        "the result file is gone when it is read",
        {"fault": "results_gone"},
        ending=Ending(
            told=ALL_MISSING, attempts=2, jobs=2, unread_jobs=1, anomalies={"results_gone": 1, "counts_disagree": 1}
        ),
        on={"bedrock": Ending(told=ALL_MISSING, attempts=2, jobs=2, unread_jobs=1, anomalies={"counts_disagree": 1})},
    ),
    job_fault(
        "results-past-retention",
        "each result file lives for a second only",
        {"durations": {"in_progress": 1}},
        keys={"output_files_live_s": 1},
        spec={"max_attempts": 1},
        ending=Ending(told={"missing": RECORDS}, unread_jobs=1, anomalies={"results_gone": 1, "counts_disagree": 1}),
        providers=HTTP,
    ),
)
