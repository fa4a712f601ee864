"""The table: every outcome class, and where its records and its job must end. From sections 6 and 7 of the design."""

from __future__ import annotations

from tests.outcomes.cases import BY_PEOPLE, NEVER, Case, Ending, Group, Step

OK = "succeeded: accepted"
EXPIRED = {
    "openai": {OK: 6, "expired > succeeded: accepted": 6},
    "bedrock": {OK: 6, "missing > succeeded: accepted": 6},
    "gemini": {"missing > succeeded: accepted": 12},
}
CANCELLED = {
    "openai": {OK: 6, "cancelled > succeeded: accepted": 6},
    "bedrock": {OK: 6, "missing > succeeded: accepted": 6},
    "gemini": {OK: 6, "missing > succeeded: accepted": 6},
}
QUICK = {"validating": 0.1, "in_progress": 0.2, "finalizing": 0.1}
SLOW_S = 3600


def ok(records: int = 3, *, of: str = "", tag: str = "ok", cell: str = "", ends: str = OK) -> Group:
    return Group(tag=tag, ends=ends, records=records, of=of, cell=cell)


PLAIN = Case(
    name="plain",
    groups=(
        ok(cell="succeeded"),
        Group(cell="permanent", tag="permanent", fault="error_400", times="always", ends="permanent: failed"),
        Group(cell="retryable, once", tag="retry", fault="error_500", ends="retryable > succeeded: accepted"),
        Group(
            cell="retryable, exhausted",
            tag="retries",
            fault="error_503",
            times="always",
            ends="retryable > retryable > retryable: failed",
        ),
        Group(cell="truncated, final", tag="cut", fault="length", times="always", ends="truncated: failed"),
        Group(cell="refused by the model", tag="refused", fault="refusal", times="always", ends="refused: failed"),
        Group(
            cell="refused by a filter", tag="filtered", fault="content_filter", times="always", ends="refused: failed"
        ),
        Group(
            cell="unqualified, no JSON, once", tag="json", fault="bad_json", ends="unqualified > succeeded: accepted"
        ),
        Group(cell="unqualified, schema, once", tag="s", fault="bad_schema", ends="unqualified > succeeded: accepted"),
        Group(
            cell="unqualified, schema, exhausted",
            tag="schema",
            fault="bad_schema",
            times="always",
            ends="unqualified > unqualified > unqualified: failed",
        ),
        Group(cell="unqualified, rule, exhausted", tag="rule", ends="unqualified > unqualified > unqualified: failed"),
        Group(
            cell="unqualified, quote, exhausted",
            tag="quote",
            tail="never",
            ends="unqualified > unqualified > unqualified: failed",
        ),
        Group(cell="missing, once", tag="lost", fault="missing", ends="missing > succeeded: accepted"),
        Group(
            cell="missing, exhausted",
            tag="gone",
            fault="missing",
            times="always",
            ends="missing > missing > missing: failed",
        ),
        Group(cell="duplicate, same content", tag="twice", fault="duplicate_same", ends=OK),
        Group(cell="success and error", tag="both", fault="success_and_error", ends=OK),
    ),
    spec={"quality": {"rules": ["input.title != 'plain.rule-1.'"], "quotes": ["/quote"]}},
    ending=Ending(state="COMPLETED", jobs=3, anomalies={"duplicate_same": 1, "success_and_error": 1}),
    again=Case(
        name="again",
        version="v2",
        groups=(ok(of="plain", cell="reused", ends="reused: accepted"), ok(1, tag="new")),
        spec={"quality": {"rules": ["input.title != 'plain.rule-1.'"], "quotes": ["/quote"]}},
        ending=Ending(cell="job: reuses, pays for the rest", state="COMPLETED", jobs=1),
    ),
)

SWAPPED_RULE = Case(
    name="rules",
    groups=(
        Group(cell="unqualified, rule, once", tag="a", fault="swapped_id", ends="unqualified > succeeded: accepted"),
        Group(tag="b", ends="unqualified > succeeded: accepted"),
    ),
    spec={"quality": {"rules": ["output.quote == input.title"]}},
    ending=Ending(state="COMPLETED", jobs=2),
)
SWAPPED_QUOTE = Case(
    name="quotes",
    groups=(
        Group(cell="unqualified, quote, once", tag="a", fault="swapped_id", ends="unqualified > succeeded: accepted"),
        Group(tag="b", ends="unqualified > succeeded: accepted"),
    ),
    spec={"quality": {"quotes": ["/quote"]}},
    ending=Ending(state="COMPLETED", jobs=2),
)

PEOPLE = Case(
    name="people",
    groups=(
        ok(),
        Group(
            cell="conflict",
            tag="conflict",
            fault="duplicate_different",
            times="always",
            ends="conflict: in review",
            decision="accept",
        ),
        Group(
            cell="refused, to review",
            tag="refused",
            fault="refusal",
            times="always",
            ends="refused: in review",
            decision="reject",
        ),
        Group(
            cell="unqualified, to review",
            tag="bad",
            fault="bad_schema",
            times="always",
            ends="unqualified > unqualified: in review",
            decision="accept",
        ),
        Group(
            cell="truncated, to review",
            tag="cut",
            fault="length",
            times="always",
            ends="truncated: in review",
            decision="reject",
        ),
        Group(
            cell="permanent, to review",
            tag="permanent",
            fault="error_400",
            times="always",
            ends="permanent: in review",
            decision="reject",
        ),
        Group(
            cell="exhausted, to review",
            tag="retries",
            fault="error_500",
            times=2,
            ends="retryable > retryable: in review",
            decision="requeue",
        ),
    ),
    spec={
        "retry": {"max_attempts": 2},
        "review": {"classes": ["conflict", "refused", "unqualified", "truncated", "permanent", "exhausted"]},
    },
    ending=Ending(
        state="PARTIAL",
        jobs=2,
        cell="job: waits for people",
        reason="6",
        in_review={"conflict": 1, "refused": 1, "unqualified": 1, "truncated": 1, "permanent": 1, "exhausted": 1},
        anomalies={"conflict": 1},
    ),
    steps=(
        Step(
            do="resolve",
            changed={
                "conflict": f"conflict > {BY_PEOPLE}: accepted",
                "refused": "refused > rejected: failed",
                "bad": f"unqualified > unqualified > {BY_PEOPLE}: accepted",
                "cut": "truncated > rejected: failed",
                "permanent": "permanent > rejected: failed",
                "retries": "retryable > retryable > requeued > succeeded: accepted",
            },
            cells={"conflict": "review: accept", "refused": "review: reject", "retries": "review: requeue"},
            ending=Ending(
                state="COMPLETED", jobs=3, cell="job: the last decision closes it", anomalies={"conflict": 1}
            ),
        ),
    ),
)

CAP = Case(
    name="cap",
    groups=(
        Group(cell="truncated, cap raised, once", tag="short", ends="truncated > succeeded: accepted", records=2),
        Group(
            cell="truncated, cap raised, exhausted",
            tag="long",
            fault="length",
            times="always",
            ends="truncated > truncated: failed",
        ),
    ),
    spec={"generation": {"max_output_tokens": 31}, "retry": {"raise_output_cap": {"factor": 2, "max": 62}}},
    faults=(
        {"provider": "openai", "fault": "length", "contains": '"max_output_tokens":31'},
        {"provider": "bedrock", "fault": "length", "contains": '"maxTokens":31'},
        {"provider": "gemini", "fault": "length", "contains": '"maxOutputTokens":31'},
    ),
    ending=Ending(state="COMPLETED", jobs=2),
)

UNKNOWN = Case(
    name="unknown",
    groups=(ok(), Group(tag="stranger", fault="unknown_id", ends=OK)),
    ending=Ending(state="PARTIAL", jobs=1, cell="unknown ids", reason="1", unknown=1, anomalies={"unknown": 1}),
    steps=(
        Step(
            do="acknowledge",
            ending=Ending(
                state="COMPLETED", jobs=1, cell="unknown ids, acknowledged", acknowledged=1, anomalies={"unknown": 1}
            ),
        ),
    ),
)

ALL_FAILED = Case(
    name="failed",
    groups=(Group(tag="bad", records=4, fault="error_400", times="always", ends="permanent: failed"),),
    ending=Ending(
        state="FAILED",
        jobs=1,
        cell="job: completed at the provider, all rows failed",
        reason="none of 4 records was accepted",
    ),
)
GATE = Case(
    name="gate",
    groups=(ok(), Group(tag="bad", fault="error_400", times="always", ends="permanent: failed")),
    spec={"quality": {"min_acceptance": 0.9}},
    ending=Ending(
        state="FAILED",
        jobs=1,
        cell="job: stopped by a gate",
        reason="accepted 3 of 4 records (75 %), and min_acceptance asks for 90 %",
    ),
)

_CANARY = {"records": 4, "min_acceptance": 0.8}
CANARY_FAILS = Case(
    name="canary",
    groups=(
        Group(
            tag="bad",
            records=12,
            fault="bad_schema",
            times="always",
            ends={"unqualified: open": 4, f"{NEVER}: open": 8},
        ),
    ),
    spec={"canary": _CANARY},
    ending=Ending(
        state="FAILED",
        jobs=1,
        reconciled=False,
        cell="job: its canary fails",
        reason="the canary failed: 0 of 4 records accepted",
    ),
)
CANARY_APPROVED = Case(
    name="approved",
    groups=(ok(12),),
    spec={"canary": {**_CANARY, "approval": "manual"}},
    begin=("approve",),
    ending=Ending(state="COMPLETED", jobs=2, cell="job: its canary is approved"),
)
CANARY_REJECTED = Case(
    name="rejected",
    groups=(Group(tag="ok", records=12, ends={OK: 4, f"{NEVER}: open": 8}),),
    spec={"canary": {**_CANARY, "approval": "manual"}},
    begin=("reject",),
    ending=Ending(state="CANCELLED", jobs=1, reconciled=False, cell="job: its canary is rejected", reason="rejected"),
)

EXPIRES = Case(
    name="expires",
    groups=(Group(cell="expired, half done", tag="e", records=12, ends="", on=EXPIRED),),
    job_fault={"fault": "expire", "done": 0.5},
    ending=Ending(state="COMPLETED", jobs=2),
    on={"gemini": Ending(state="COMPLETED", jobs=2, anomalies={"counts_disagree": 1})},
)
CANCELLED_THERE = Case(
    name="cancelled",
    groups=(Group(cell="cancelled by the provider, half done", tag="c", records=12, ends="", on=CANCELLED),),
    job_fault={"fault": "cancel", "done": 0.5, "durations": {**QUICK, "in_progress": 20}},
    ending=Ending(state="COMPLETED", jobs=2),
)
_LIKE_MISSING = ("bedrock", "gemini")
"""Where nothing is said of what a cancelled job left undone."""
_CUT_OFF = {
    "openai": {OK: 4, "cancelled: open": 6},
    **{name: {OK: 4, "missing: open": 6} for name in _LIKE_MISSING},
}
_PAID_LATER = {
    "openai": {OK: 4, "cancelled > succeeded: accepted": 6},
    **{name: {OK: 4, "missing > succeeded: accepted": 6} for name in _LIKE_MISSING},
}
CANCELLED_HERE = Case(
    name="cut-off",
    groups=(Group(tag="c", records=10, ends="", on=_CUT_OFF),),
    job_fault={"fault": "stuck", "done": 0.4},
    begin=("cancel",),
    ending=Ending(
        state="CANCELLED", jobs=1, cell="job: cancelled at 40 %", reason="Cancelled, so nothing was published"
    ),
    steps=(
        Step(
            do="publish a part",
            ending=Ending(
                state="CANCELLED",
                jobs=1,
                cell="job: cancelled, then a part published",
                part=True,
                reason="published as a part, as asked",
            ),
        ),
        Step(
            do="drop again",
            on={provider: {"c": ends} for provider, ends in _PAID_LATER.items()},
            ending=Ending(state="COMPLETED", jobs=2, cell="job: cancelled, dropped again"),
        ),
    ),
)
WAITING = Case(
    name="slow",
    groups=(ok(4),),
    job_fault={"durations": {**QUICK, "in_progress": SLOW_S}},
    ending=Ending(state="COMPLETED", jobs=1),
    again_at="created",
    again=Case(
        name="waits",
        version="v2",
        groups=(ok(4, of="slow", cell="waiting for another job", ends="waiting > reused: accepted"),),
        ending=Ending(state="COMPLETED", jobs=0),
    ),
)

LEAST = 10
"""Records that Bedrock takes at least, in the cases of small sets."""
_LEFT = "retryable > "


def _small_set(name: str, ends: str, ending: Ending) -> Case:
    return Case(
        name=f"few-{name.replace('_', '-')}",
        groups=(
            ok(LEAST),
            Group(cell=f"too few, small_set: {name}", tag="few", records=3, fault="error_500", ends=_LEFT + ends),
        ),
        spec={"retry": {"small_set": name}},
        ending=ending,
        providers=("bedrock",),
    )


SMALL_SETS = (
    _small_set("wait", "waiting > too_few: failed", Ending(state="COMPLETED", jobs=1)),
    _small_set("on_demand", "succeeded: accepted", Ending(state="COMPLETED", jobs=1, calls=3)),
    _small_set("review", "too_few: in review", Ending(state="PARTIAL", jobs=1, reason="3", in_review={"too_few": 3})),
)
IN_ORDER = (WAITING, CANCELLED_HERE, CANCELLED_THERE, EXPIRES)
"""Faults of whole jobs are dealt out in the order of creation, so these are dropped one after the other, and first."""
AT_ONCE = (
    PEOPLE,
    PLAIN,
    CANARY_APPROVED,
    UNKNOWN,
    CAP,
    SWAPPED_RULE,
    SWAPPED_QUOTE,
    GATE,
    ALL_FAILED,
    CANARY_FAILS,
    CANARY_REJECTED,
)
