"""What a job costs on AWS itself: an estimate from counted calls, at list prices; free tiers and logs are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

AS_OF: Final = "2026-11-29"
SOURCE: Final = "AWS price pages, us-east-1, list prices"
NANO_USD: Final[Mapping[str, int]] = {
    "state_transition": 25_000,
    "lambda_request": 200,
    "lambda_gb_s": 13_333,
    "write_unit": 625,
    "read_unit": 125,
    "s3_write": 5_000,
    "s3_read": 400,
}
"""Nano-dollars each: Step Functions standard workflows, Lambda on arm64, DynamoDB on demand, S3 Standard."""
MEMORY_GB: Final = 1.73
"""Of the functions that work on records (1,769 MB)."""
RECORD_S: Final = 150e-6
"""CPU time of one record over all functions, see `poe bench`, with room to spare."""
INVOCATION_S: Final = 0.5
"""Of a function beside its records: start, ledger and object calls."""

JOB_TRANSITIONS = 12
ATTEMPT_TRANSITIONS = 6
SHARD_TRANSITIONS = 6
POLL_TRANSITIONS = 3
PUBLISH_TRANSITIONS = 2
JOB_INVOCATIONS = 2
ATTEMPT_INVOCATIONS = 2
SHARD_INVOCATIONS = 4
RECORD_WRITES = 2
"""A claim and an accept."""
SHARD_WRITES = 8
JOB_WRITES = 8
ATTEMPT_WRITES = 4
SHARD_OBJECTS = 8
ATTEMPT_OBJECTS = 4
JOB_OBJECTS = 8
READS_PER_WRITE = 3
"""Objects read, or asked for, for each one written."""


def counted(*, records: int, sent: int, submissions: int, attempts: int, shards: int, polls: int) -> dict[str, float]:
    """Calls by kind. `records` of the job, `sent` those handed to providers over all attempts, `polls` of all
    submissions together."""
    invocations = JOB_INVOCATIONS + attempts * ATTEMPT_INVOCATIONS + submissions * SHARD_INVOCATIONS + polls + shards
    written = JOB_OBJECTS + attempts * ATTEMPT_OBJECTS + submissions * SHARD_OBJECTS + 2 * shards
    return {
        "state_transition": JOB_TRANSITIONS
        + attempts * ATTEMPT_TRANSITIONS
        + submissions * SHARD_TRANSITIONS
        + polls * POLL_TRANSITIONS
        + shards * PUBLISH_TRANSITIONS,
        "lambda_request": invocations,
        "lambda_gb_s": round(MEMORY_GB * (sent * RECORD_S + invocations * INVOCATION_S), 3),
        "write_unit": RECORD_WRITES * sent + SHARD_WRITES * submissions + ATTEMPT_WRITES * attempts + JOB_WRITES,
        "read_unit": records + SHARD_WRITES * submissions + polls,
        "s3_write": written,
        "s3_read": READS_PER_WRITE * written,
    }


def nano_usd(calls: Mapping[str, float]) -> int:
    return sum(round(count * NANO_USD[kind]) for kind, count in calls.items())
