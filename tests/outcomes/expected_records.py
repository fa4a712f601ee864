"""The table, part one: outcome classes of records, and the disposition that each must reach."""

from __future__ import annotations

from tests.outcomes.cases import BY_PEOPLE, Case, Ending, Group, Step
from tests.support.films import MODELS

OK = "succeeded: accepted"


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


def _falls_back(first: str, second: str) -> Case:
    """The records that the first provider never answers, and those that neither does."""
    return Case(
        name=f"falls-{first}",
        groups=(
            ok(),
            Group(cell="fallback, answered there", tag="once", ends=f"retryable > succeeded at {second}: accepted"),
            Group(cell="fallback, exhausted", tag="never", ends=f"retryable > retryable at {second}: failed"),
        ),
        spec={
            "retry": {"max_attempts": 1},
            "fallback": [{"provider": second, "model": MODELS[second][0], "endpoint": MODELS[second][1]}],
        },
        faults=(
            {"provider": first, "fault": "error_500", "contains": f"falls-{first}.once-1.", "times": "always"},
            {"fault": "error_500", "contains": f"falls-{first}.never-1.", "times": "always"},
        ),
        ending=Ending(state="COMPLETED", jobs=2, cell="job: falls back"),
        providers=(first,),
    )


FALLBACKS = (_falls_back("openai", "gemini"), _falls_back("bedrock", "openai"), _falls_back("gemini", "bedrock"))
