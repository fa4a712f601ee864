"""Every fault that a provider is known for, and where a job must end that meets it.

The scenarios are the simulator's; `../support/fault_run.py` runs them and adds what must hold after any fault.
"""

from __future__ import annotations

from tests.crash.fault_list_files import ALL_MISSING, FILES, HTTP, UNTOUCHED, call_fault, job_fault
from tests.crash.fault_list_records import LINES, RECORD
from tests.support.fault_run import RECORDS, Ending, Fault

HOUR_S = 3600
SETTLED_S = 30 + 60 + 300
"""Until absence is proven: the last moment of a create, its timeout, and the settle window of the tests."""

_ALL_LOST = Ending(told=ALL_MISSING, attempts=2, jobs=2, anomalies={"counts_disagree": 1})
"""The provider counts rows of which it leaves nothing."""
_SAME_TOKEN = {"bedrock": UNTOUCHED}
"""Bedrock is sent the same token again, which makes the job or tells which one it is."""


CREATE = (
    call_fault("create-then-drop", "created, and the connection is dropped", {"on": "create", "fault": "lost_reply"}),
    call_fault("create-then-500", "created, and the answer is HTTP 500", {"on": "create", "fault": "reply_500_after"}),
    call_fault("create-then-cut", "created, and the answer breaks off half way", {"on": "create", "fault": "cut_body"}),
    call_fault(
        "create-then-late",
        "created, and the answer comes after the client's timeout",
        {"on": "create", "fault": "late_reply_s:0.6"},
        client={"create_timeout_s": 0.25},
    ),
    call_fault(
        "create-not-sent",
        "the connection is dropped before anything is created",
        {"on": "create", "fault": "drop_before"},
        ending=Ending(generation=2, at_least_s=SETTLED_S),
        on=_SAME_TOKEN,
    ),
    call_fault(
        "create-500-before",
        "HTTP 500, and nothing is created",
        {"on": "create", "fault": "status:500"},
        ending=Ending(generation=2, at_least_s=SETTLED_S),
        on=_SAME_TOKEN,
    ),
    call_fault(
        "create-refused",
        "one of two creates is refused with HTTP 403",
        {"on": "create", "fault": "status:403"},
        spec={"shard_records": RECORDS // 2},
        ending=Ending(told={"retryable > succeeded": RECORDS // 2}, attempts=2, jobs=2),
    ),
    call_fault(
        "create-refused-always",
        "each create is refused with HTTP 403",
        {"on": "create", "fault": "status:403", "count": "always"},
        ending=Ending(state="FAILED", reason="403", told={"retryable": RECORDS}, jobs=0),
    ),
    Fault(
        name="list-late",
        wrong="created without an answer, and not listed for 45 s",
        scenario={
            "calls": [{"on": "create", "fault": "lost_reply"}],
            "jobs": [{"fault": "invisible_in_list_for_s:45"}],
        },
    ),
    Fault(
        name="list-late-5min",
        wrong="created without an answer, and not listed for 5 minutes",
        scenario={
            "calls": [{"on": "create", "fault": "lost_reply"}],
            "jobs": [{"fault": "invisible_in_list_for_s:300"}],
        },
    ),
    Fault(
        name="list-ghost",
        wrong="listed only after its absence counted as proven: a ghost",
        scenario={
            "calls": [{"on": "create", "fault": "lost_reply"}],
            "jobs": [{"fault": f"invisible_in_list_for_s:{2 * SETTLED_S}"}],
            "durations": {"in_progress": 4 * SETTLED_S},
        },
        ending=Ending(jobs=2, generation=2, anomalies={"duplicate_submission": 1}),
        on=_SAME_TOKEN,
    ),
    call_fault(
        "list-shifts",
        "120 strangers' jobs come in before each page",
        {"on": "create", "fault": "lost_reply"},
        {"on": "list", "fault": "strangers:120", "count": 3},
        providers=HTTP,
    ),
    call_fault(
        "list-empty-pages",
        "the list is empty pages that promise more",
        {"on": "create", "fault": "lost_reply"},
        {"on": "list", "fault": "empty_page", "count": 20},
    ),
    call_fault(
        "list-500",
        "the list answers HTTP 500 at first",
        {"on": "create", "fault": "lost_reply"},
        {"on": "list", "fault": "status:500", "count": 2},
    ),
    Fault(
        name="token-conflict",
        wrong="created without an answer, not listed, and the token conflicts",
        scenario={
            "calls": [
                {"on": "create", "fault": "lost_reply"},
                {"on": "create", "fault": "status:409", "nth": 2, "count": 3},
            ],
            "jobs": [{"fault": "invisible_in_list_for_s:200"}],
        },
        providers=("bedrock",),
    ),
)

QUOTA = (
    call_fault(
        "quota-429",
        "create is refused twice with 429, retry-after 77 s",
        {"on": "create", "fault": "status:429", "retry_after_s": 77, "count": 2},
        spec={"max_attempts": 1},
        ending=Ending(generation=3, at_least_s=154),
    ),
    job_fault(
        "quota-token-limit",
        "validation ends with token_limit_exceeded, three times",
        {"fault": "fail_validation:token_limit_exceeded", "count": 3},
        spec={"max_attempts": 1},
        ending=Ending(jobs=4, generation=4, at_least_s=60 + 120 + 240),
        providers=HTTP,
    ),
    Fault(
        name="quota-enqueued",
        wrong="two shards, and room for one shard's tokens",
        scenario={"quota": {"enqueued_tokens": {"*": 60}, "release_delay_s": 120}, "durations": {"in_progress": 40}},
        spec={"shard_records": RECORDS // 2, "max_attempts": 1},
        ending=Ending(jobs=4, generation=3, at_least_s=120),
        on={"gemini": Ending(jobs=2, generation=3, at_least_s=120)},
        providers=HTTP,
    ),
    Fault(
        name="quota-concurrent",
        wrong="two shards, and room for one job: ServiceQuotaExceeded",
        scenario={"quota": {"concurrent_jobs": {"*": 1}, "release_delay_s": 120}},
        spec={"shard_records": RECORDS // 2, "max_attempts": 1},
        ending=Ending(jobs=2, generation=3, at_least_s=120),
        providers=("bedrock",),
    ),
)

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

VALIDATION = (
    *(
        job_fault(
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
    job_fault(
        "validation-minimum",
        "fewer records than a job must have",
        keys={"limits": {"min_records": 100}},
        ending=Ending(state="FAILED", reason="below_minimum", told={"retryable": RECORDS}),
        providers=("bedrock",),
    ),
    job_fault(
        "validation-always",
        "each job fails in validation: model_not_found",
        {"fault": "fail_validation:model_not_found", "count": "always"},
        spec={"shard_records": RECORDS // 2},
        ending=Ending(state="FAILED", reason="model_not_found", told={"permanent": RECORDS}, jobs=2),
        on={"gemini": Ending(state="FAILED", reason="INVALID_ARGUMENT", told={"permanent": RECORDS}, jobs=2)},
        providers=HTTP,
    ),
    job_fault(
        "validation-spend-cap",
        "each job fails at the account's spend limit",
        {"fault": "fail_validation:billing_hard_limit_reached", "count": "always"},
        ending=Ending(state="FAILED", reason="billing_hard_limit_reached", told={"retryable": RECORDS}),
        on={"gemini": Ending(state="FAILED", reason="FAILED_PRECONDITION", told={"retryable": RECORDS})},
        providers=HTTP,
    ),
    *(
        job_fault(
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
    job_fault(
        "slow",
        "twenty hours of work",
        {"durations": {"in_progress": 20 * HOUR_S}},
        ending=Ending(at_least_s=20 * HOUR_S),
    ),
    job_fault(
        "finalizing",
        "three hours in finalizing",
        {"durations": {"finalizing": 3 * HOUR_S}},
        ending=Ending(at_least_s=3 * HOUR_S),
    ),
    job_fault(
        "backwards",
        "from finalizing back to in_progress",
        {"fault": "backwards", "durations": {"finalizing": 300, "in_progress": 300}},
    ),
    job_fault(
        "unknown-state", "a state that nobody knows", {"fault": "unknown_state", "durations": {"in_progress": 300}}
    ),
    job_fault(
        "stuck",
        "stuck at a quarter, until the window ends",
        {"fault": "stuck", "done": 0.25},
        ending=Ending(told={"expired > succeeded": 9}, attempts=2, jobs=2, at_least_s=24 * HOUR_S),
        on={
            "bedrock": Ending(told={"missing": 9}, at_least_s=48 * HOUR_S),
            "gemini": Ending(told={"missing": RECORDS}, anomalies={"counts_disagree": 1}),
        },
    ),
    job_fault(
        "stuck-beyond-deadline",
        "stuck at a quarter, and the spec's deadline passes",
        {"fault": "stuck", "done": 0.25, "count": "always"},
        spec={"deadline": "20h"},
        ending=Ending(told={"expired": 9}),
        on={
            "bedrock": Ending(told={"missing": 9}),
            "gemini": Ending(told={"missing": RECORDS}, anomalies={"counts_disagree": 1}),
        },
    ),
    job_fault(
        "vanished",
        "the provider knows no such job any more",
        {"fault": "vanish"},
        ending=Ending(told=ALL_MISSING, attempts=2, jobs=2, unread_jobs=1),
        on={"gemini": Ending(told=ALL_MISSING, attempts=2, jobs=2)},
    ),
    call_fault("get-404-once", "get answers 404 once: not gone", {"on": "get", "fault": "status:404"}),
    call_fault("get-503", "get answers 503: unknown, not gone", {"on": "get", "fault": "status:503", "count": 4}),
    job_fault(
        "expired",
        "expires with half of its records done",
        {"fault": "expire", "done": 0.5},
        ending=Ending(told={"expired > succeeded": 6}, attempts=2, jobs=2),
        on={"bedrock": Ending(told={"missing > succeeded": 6}, attempts=2, jobs=2), "gemini": _ALL_LOST},
    ),
    job_fault(
        "expired-empty",
        "expires with nothing done",
        {"fault": "expire", "done": 0},
        ending=Ending(told={"expired > succeeded": RECORDS}, attempts=2, jobs=2),
        on={
            "bedrock": Ending(told=ALL_MISSING, attempts=2, jobs=2),
            "gemini": Ending(told=ALL_MISSING, attempts=2, jobs=2),
        },
    ),
    job_fault(
        "cancelled",
        "cancelled by the provider, half done; the rest in no file",
        {"fault": "cancel", "done": 0.5},
        ending=Ending(told={"missing > succeeded": 6}, attempts=2, jobs=2),
    ),
    job_fault(
        "cancelled-told",
        "cancelled by the provider, half done; a line for each other",
        {"fault": "cancel", "done": 0.5},
        keys={"cancelled_rows": "error_line"},
        ending=Ending(told={"cancelled > succeeded": 6}, attempts=2, jobs=2),
        providers=("openai",),
    ),
    job_fault(
        "cancelled-empty",
        "cancelled by the provider with nothing done: null file ids",
        {"fault": "cancel", "done": 0},
        ending=Ending(told=ALL_MISSING, attempts=2, jobs=2),
    ),
)

FAULTS = (*CREATE, *QUOTA, *VALIDATION, *STATES, *FILES, *RECORD, *LINES)
