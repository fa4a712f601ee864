"""The faults of create, of the list in which a lost job is looked for, and of quotas."""

from __future__ import annotations

from tests.crash.fault_kinds import HTTP, SAME_TOKEN, SETTLED_S, call, job
from tests.support.fault_run import RECORDS, Ending, Fault

CREATE = (
    call("create-then-drop", "created, and the connection is dropped", {"on": "create", "fault": "lost_reply"}),
    call("create-then-500", "created, and the answer is HTTP 500", {"on": "create", "fault": "reply_500_after"}),
    call("create-then-cut", "created, and the answer breaks off half way", {"on": "create", "fault": "cut_body"}),
    call(
        "create-then-late",
        "created, and the answer comes after the client's timeout",
        {"on": "create", "fault": "late_reply_s:0.6"},
        client={"create_timeout_s": 0.25},
    ),
    call(
        "create-not-sent",
        "the connection is dropped before anything is created",
        {"on": "create", "fault": "drop_before"},
        ending=Ending(generation=2, at_least_s=SETTLED_S),
        on=SAME_TOKEN,
    ),
    call(
        "create-500-before",
        "HTTP 500, and nothing is created",
        {"on": "create", "fault": "status:500"},
        ending=Ending(generation=2, at_least_s=SETTLED_S),
        on=SAME_TOKEN,
    ),
    call(
        "create-refused",
        "one of two creates is refused with HTTP 403",
        {"on": "create", "fault": "status:403"},
        spec={"shard_records": RECORDS // 2},
        ending=Ending(told={"retryable > succeeded": RECORDS // 2}, attempts=2, jobs=2),
    ),
    call(
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
        on=SAME_TOKEN,
    ),
    call(
        "list-shifts",
        "120 strangers' jobs come in before each page",
        {"on": "create", "fault": "lost_reply"},
        {"on": "list", "fault": "strangers:120", "count": 3},
        providers=HTTP,
    ),
    call(
        "list-empty-pages",
        "the list is empty pages that promise more",
        {"on": "create", "fault": "lost_reply"},
        {"on": "list", "fault": "empty_page", "count": 20},
    ),
    call(
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
    call(
        "quota-429",
        "create is refused twice with 429, retry-after 77 s",
        {"on": "create", "fault": "status:429", "retry_after_s": 77, "count": 2},
        spec={"max_attempts": 1},
        ending=Ending(generation=3, at_least_s=154),
    ),
    job(
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
