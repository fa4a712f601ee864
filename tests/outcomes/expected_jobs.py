"""The table, part two: how jobs end as a whole, and what becomes of records whose job does not run to its end."""

from __future__ import annotations

from tests.outcomes.cases import NEVER, Case, Ending, Group, Step
from tests.outcomes.expected_records import OK, ok

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
