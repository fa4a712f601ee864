"""The faults of whole jobs: in validation, in their states, and in the files that they leave."""

from __future__ import annotations

from typing import Any

from tests.crash.fault_kinds import ALL_LOST, ALL_MISSING, HOUR_S, HTTP, call, job
from tests.support.fault_run import RECORDS, Ending

_FILE_CODES = (
    "invalid_json_line",
    "invalid_request",
    "invalid_url",
    "missing_required_parameter",
    "duplicate_custom_id",
    "mismatched_model",
    "model_not_found",
    "empty_file",
    "too_many_tasks",
)

_OF_ONE_PROVIDER = {
    "above_maximum": ("bedrock", "permanent"),
    "invalid_input": ("bedrock", "permanent"),
    "access_denied": ("bedrock", "retryable > succeeded"),
    "below_minimum": ("bedrock", "retryable > succeeded"),
    "INVALID_ARGUMENT": ("gemini", "permanent"),
    "FAILED_PRECONDITION": ("gemini", "retryable > succeeded"),
    "PERMISSION_DENIED": ("gemini", "retryable > succeeded"),
    **dict.fromkeys(_FILE_CODES, ("openai", "permanent")),
}
"""Reasons for which a job fails in validation: whose they are, and what becomes of its records."""


def _nothing(outcome: str, **more: Any) -> Ending:
    """No record was accepted: closed, and nothing to publish."""
    return Ending(state="FAILED", reason=f"none of {RECORDS} records was accepted", told={outcome: RECORDS}, **more)


VALIDATION = (
    *(
        job(
            f"validation-{code.lower().replace('_', '-')}",
            f"one of two jobs fails in validation: {code}",
            {"fault": f"fail_validation:{code}"},
            spec={"shard_records": RECORDS // 2},
            ending=Ending(told={told: RECORDS // 2}, attempts=attempts, jobs=1 + attempts, code=code),
            providers=(provider,),
        )
        for code, (provider, told) in _OF_ONE_PROVIDER.items()
        for attempts in (1 + told.count(">"),)
    ),
    job(
        "validation-minimum",
        "fewer records than a job must have",
        keys={"limits": {"min_records": 100}},
        ending=Ending(state="FAILED", reason="below_minimum", told={"retryable": RECORDS}),
        providers=("bedrock",),
    ),
    job(
        "validation-always",
        "each job fails in validation: model_not_found",
        {"fault": "fail_validation:model_not_found", "count": "always"},
        spec={"shard_records": RECORDS // 2},
        ending=Ending(state="FAILED", reason="model_not_found", told={"permanent": RECORDS}, jobs=2),
        on={"gemini": Ending(state="FAILED", reason="INVALID_ARGUMENT", told={"permanent": RECORDS}, jobs=2)},
        providers=HTTP,
    ),
    job(
        "validation-spend-cap",
        "each job fails at the account's spend limit",
        {"fault": "fail_validation:billing_hard_limit_reached", "count": "always"},
        ending=Ending(state="FAILED", reason="billing_hard_limit_reached", told={"retryable": RECORDS}),
        on={"gemini": Ending(state="FAILED", reason="FAILED_PRECONDITION", told={"retryable": RECORDS})},
        providers=HTTP,
    ),
    *(
        job(
            f"validation-{code.lower().replace('_', '-')}",
            wrong,
            {"fault": f"fail_validation:{code}"},
            ending=Ending(told=ALL_MISSING, attempts=2, jobs=2),
            providers=providers,
        )
        for code, wrong, providers in (
            ("file_not_found", "validation does not find the file, once", ("openai",)),
            ("never_heard_of", "validation fails with a word that nobody knows", ("openai", "bedrock")),
            ("INTERNAL", "the job fails for a reason that may pass", ("gemini",)),
        )
    ),
)

STATES = (
    job(
        "slow",
        "twenty hours of work",
        {"durations": {"in_progress": 20 * HOUR_S}},
        ending=Ending(at_least_s=20 * HOUR_S),
    ),
    job(
        "finalizing",
        "three hours in finalizing",
        {"durations": {"finalizing": 3 * HOUR_S}},
        ending=Ending(at_least_s=3 * HOUR_S),
    ),
    job(
        "backwards",
        "from finalizing back to in_progress",
        {"fault": "backwards", "durations": {"finalizing": 300, "in_progress": 300}},
    ),
    job("unknown-state", "a state that nobody knows", {"fault": "unknown_state", "durations": {"in_progress": 300}}),
    job(
        "stuck",
        "stuck at a quarter, until the window ends",
        {"fault": "stuck", "done": 0.25},
        ending=Ending(told={"expired > succeeded": 9}, attempts=2, jobs=2, at_least_s=24 * HOUR_S),
        on={
            "bedrock": Ending(told={"missing": 9}, at_least_s=48 * HOUR_S),
            "gemini": _nothing("missing", anomalies={"counts_disagree": 1}),
        },
    ),
    job(
        "stuck-beyond-deadline",
        "stuck at a quarter, and the spec's deadline passes",
        {"fault": "stuck", "done": 0.25, "count": "always"},
        spec={"deadline": "20h"},
        ending=Ending(told={"expired": 9}),
        on={
            "bedrock": Ending(told={"missing": 9}),
            "gemini": _nothing("missing", anomalies={"counts_disagree": 1}),
        },
    ),
    job(
        "vanished",
        "the provider knows no such job any more",
        {"fault": "vanish"},
        ending=Ending(told=ALL_MISSING, attempts=2, jobs=2, unread_jobs=1),
        on={"gemini": Ending(told=ALL_MISSING, attempts=2, jobs=2)},
    ),
    call("get-404-once", "get answers 404 once: not gone", {"on": "get", "fault": "status:404"}),
    call("get-503", "get answers 503: unknown, not gone", {"on": "get", "fault": "status:503", "count": 4}),
    job(
        "expired",
        "expires with half of its records done",
        {"fault": "expire", "done": 0.5},
        ending=Ending(told={"expired > succeeded": 6}, attempts=2, jobs=2, code="batch_expired"),
        on={"bedrock": Ending(told={"missing > succeeded": 6}, attempts=2, jobs=2), "gemini": ALL_LOST},
    ),
    job(
        "expired-empty",
        "expires with nothing done",
        {"fault": "expire", "done": 0},
        ending=Ending(told={"expired > succeeded": RECORDS}, attempts=2, jobs=2),
        on={
            "bedrock": Ending(told=ALL_MISSING, attempts=2, jobs=2),
            "gemini": Ending(told=ALL_MISSING, attempts=2, jobs=2),
        },
    ),
    job(
        "cancelled",
        "cancelled by the provider, half done; the rest in no file",
        {"fault": "cancel", "done": 0.5},
        ending=Ending(told={"missing > succeeded": 6}, attempts=2, jobs=2),
    ),
    job(
        "cancelled-told",
        "cancelled by the provider, half done; a line for each other",
        {"fault": "cancel", "done": 0.5},
        keys={"cancelled_rows": "error_line"},
        ending=Ending(told={"cancelled > succeeded": 6}, attempts=2, jobs=2),
        providers=("openai",),
    ),
    job(
        "cancelled-empty",
        "cancelled by the provider with nothing done: null file ids",
        {"fault": "cancel", "done": 0},
        ending=Ending(told=ALL_MISSING, attempts=2, jobs=2),
    ),
)

FILES = (
    job(
        "only-errors",
        "completed, and its only file is the error file",
        {"fault": "only_error_file:error_500"},
        ending=Ending(told={"retryable > succeeded": RECORDS}, attempts=2, jobs=2),
    ),
    job(
        "all-rows-failed",
        "completed, and every row is an error for good",
        {"fault": "only_error_file:error_400", "count": "always"},
        ending=_nothing("permanent", code="context_length_exceeded"),
        on={"bedrock": _nothing("permanent", code="400"), "gemini": _nothing("permanent", code="INVALID_ARGUMENT")},
    ),
    job(
        "empty-string-ids",
        "the error file's id is an empty string",
        {"fault": "empty_string_ids"},
        providers=("openai",),
    ),
    job(
        "empty-string-ids-all",
        "the only file's id is an empty string",
        {"fault": "empty_string_ids"},
        ending=Ending(told=ALL_MISSING, attempts=2, jobs=2, unread_jobs=1, anomalies={"counts_disagree": 1}),
        providers=("gemini",),
    ),
    job(
        "empty-string-ids-only-errors",
        "the output file's id is an empty string",
        {"fault": "empty_string_ids"},
        {"fault": "only_error_file:error_500"},
        ending=Ending(told={"retryable > succeeded": RECORDS}, attempts=2, jobs=2),
        providers=("openai",),
    ),
    job(
        "wrong-counts",
        "the job's counts are not those of its files",
        {"fault": "wrong_counts"},
        ending=Ending(anomalies={"counts_disagree": 1}),
    ),
    job("content-404", "the result file answers 404 for 40 s", {"fault": "content_404_for_s:40"}, providers=HTTP),
    call(
        "content-breaks",
        "the result file breaks off half way, then HTTP 503",
        {"on": "content", "fault": "cut_body"},
        {"on": "content", "fault": "status:503", "nth": 2, "count": 2},
        {"on": "content", "fault": "cut_body", "nth": 4},
        providers=HTTP,
    ),
    call(
        "content-garbled",
        "the last third of the result file is NUL bytes, once: it is fetched again",
        {"on": "content", "fault": "garbled_body"},
        ending=Ending(anomalies={"fetched_again": 1}),
        on={"gemini": Ending()},
        providers=HTTP,
    ),
    job(
        "results-gone",
        "the result file is gone when it is read",
        {"fault": "results_gone"},
        ending=Ending(
            told=ALL_MISSING, attempts=2, jobs=2, unread_jobs=1, anomalies={"results_gone": 1, "counts_disagree": 1}
        ),
        on={"bedrock": Ending(told=ALL_MISSING, attempts=2, jobs=2, unread_jobs=1, anomalies={"counts_disagree": 1})},
    ),
    job(
        "results-past-retention",
        "each result file lives for a second only",
        {"durations": {"in_progress": 1}},
        keys={"output_files_live_s": 1},
        spec={"max_attempts": 1},
        ending=_nothing("missing", unread_jobs=1, anomalies={"results_gone": 1, "counts_disagree": 1}),
        providers=HTTP,
    ),
)
