"""What the words of a report mean: one line for each failure class and each anomaly, for JSON and page alike."""

from __future__ import annotations

FAILURES = {
    "permanent": "The request itself is wrong: the code of each record in the outcomes says how.",
    "refused": "The model or a filter declined to answer.",
    "retryable": "Still failing after the last attempt: raise retry.max_attempts or run the records later.",
    "expired": "The provider's window ended before the record was answered.",
    "cancelled": "Cancelled at the provider before the record was answered.",
    "truncated": "The answer was cut off: raise generation.max_output_tokens.",
    "unqualified": "The answer broke the output schema or a rule in every attempt.",
    "missing": "The provider returned nothing for the record, or its shard was lost before it was handed over.",
    "conflict": "Answered more than once with different content: never picked silently.",
    "too_few": "Fewer records were left than the provider takes in one job: set retry.small_set to on_demand.",
    "rejected": "People looked at it and accepted no answer.",
    "requeued": "People asked for one more try, and the deadline passed before it.",
    "waiting": "Another job had the record in flight until the deadline.",
}
"""By outcome class, for records that failed for good."""

REVIEWS = {
    "conflict": "Answered more than once with different content: people pick, or send it on.",
    "over_cap": "Out of its tokens or dollars (limits) before it had an accepted answer.",
    "exhausted": "Out of tries or of time before it had an answer.",
    "refused": "The model or a filter declined to answer.",
    "unqualified": "The answer broke the output schema or a rule in every attempt.",
    "truncated": "The answer was cut off.",
    "permanent": "The request itself is wrong: the code of each record in the outcomes says how.",
    "too_few": "Fewer records were left than the provider takes in one job.",
}
"""By `ReviewClass`, for records that wait for people."""

ANOMALIES = {
    "unknown": "Result lines with an id that was never sent: kept in quarantine, and the job cannot close over them.",
    "duplicate_same": "A record was returned more than once with the same content: kept once.",
    "conflict": "A record was answered more than once with different content: no answer was taken.",
    "success_and_error": "A record came back both answered and failed: the answer counts.",
    "unparsable": "Result lines that are not valid JSON: kept raw; the records they held count as missing.",
    "model_drift": "Answered by another model version than the one asked for: marked on each such result.",
    "counts_disagree": "The provider's own counts differ from its files: the files count.",
    "duplicate_submission": "Other provider jobs for the same work: cancelled; what they had done is booked.",
    "reply_lost": "Single calls that were sent and whose answers were lost: repeated, and booked as if paid twice.",
    "unknown_code": "Failed with a code that no table knows: tried once more; `retry.codes` can say what it means.",
    "fetched_again": "A result file came damaged, was fetched again, and is whole or less damaged now.",
    "results_gone": "Result files that the provider no longer had when they were fetched.",
}
"""By the names under which submissions count them."""
