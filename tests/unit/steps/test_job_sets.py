"""What an attempt's shards count as when their outcomes are missing: tries are counted, lost work is resumed."""

from __future__ import annotations

from typing import Any

import msgspec
import zstandard

from tallybatch.contracts import ShardItem
from tallybatch.domain.closure import Row, Sets, SubmissionEntry, fold_shard
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.outcomes import Outcome, OutcomeClass
from tallybatch.domain.records import ShardRecord, encode_record
from tallybatch.domain.retries import RetryPolicy
from tallybatch.steps.job_sets import attempt_items, attempt_rows, record_ids
from tallybatch.steps.outcome_files import OutcomeFile
from tests.support.memory_objects import MemoryObjects
from tests.support.rows import hexdigest

KEYS = JobKeys("acme", hexdigest("job"))


class Job:
    """A job's objects, as the steps write them."""

    def __init__(self) -> None:
        self.objects = MemoryObjects()

    def shard(self, name: str, records: list[ShardRecord]) -> str:
        body = b"".join(encode_record(record) + b"\n" for record in records)
        self.objects.put(KEYS.shard(hexdigest(name)), zstandard.compress(body))
        return hexdigest(name)

    def plan(self, attempt: int, items: list[ShardItem]) -> None:
        self.objects.put(KEYS.items(attempt), msgspec.json.encode([item.model_dump() for item in items]))

    def outcomes(self, attempt: int, shard_id: str, outcomes: list[Outcome]) -> SubmissionEntry:
        file = OutcomeFile()
        file.extend(outcomes)
        key = KEYS.outcomes(attempt, shard_id)
        self.objects.put(key, file.close())
        return SubmissionEntry(attempt, shard_id, shard_id, "RECONCILED", outcomes=key)

    def rows(self, attempt: int, submissions: list[SubmissionEntry], shards: list[str]) -> list[tuple[str, Row]]:
        stream = attempt_rows(self.objects, KEYS, attempt, submissions)
        found = [pair for shard_id in shards for pair in stream.take(shard_id)]
        assert not stream.left_over
        return found


def record(name: str, **fields: Any) -> ShardRecord:
    return ShardRecord(name, name, "v", msgspec.Raw(b"{}"), **fields)


def item(attempt: int, shard_id: str, sha256: str, count: int) -> ShardItem:
    return ShardItem(
        tenant="acme", job_key=KEYS.job_key, attempt=attempt, shard_id=shard_id, shard_sha256=sha256, record_count=count
    )


def outcome(name: str, shard_id: str, kind: OutcomeClass, tries: int = 1) -> Outcome:
    return Outcome(name, "k" + name, name, shard_id, 1, tries, kind)


def test_given_reconciled_lost_and_never_submitted_shards_when_read_then_each_record_has_the_row_that_says_so() -> None:
    job = Job()
    shards = [job.shard(name, [record(f"{name}0"), record(f"{name}1")]) for name in "abc"]
    job.plan(1, [item(1, f"s{number}", sha256, 2) for number, sha256 in enumerate(shards)])
    done = job.outcomes(
        1, "s0", [outcome("a0", "s0", OutcomeClass.SUCCEEDED), outcome("a1", "s0", OutcomeClass.EXPIRED)]
    )
    out = SubmissionEntry(1, "s1", "k", "RUNNING", provider_jobs=("batch_1",))
    elsewhere = SubmissionEntry(2, "s2", "k", "RUNNING")

    assert job.rows(1, [done, out, elsewhere], ["s0", "s1", "s2"]) == [
        (done.outcomes, Row("a0", "s0", OutcomeClass.SUCCEEDED, 1)),
        (done.outcomes, Row("a1", "s0", OutcomeClass.EXPIRED, 1)),
        ("", Row("b0", "s1", OutcomeClass.UNSETTLED, 1, "lost_shard")),
        ("", Row("b1", "s1", OutcomeClass.UNSETTLED, 1, "lost_shard")),
        ("", Row("c0", "s2", OutcomeClass.MISSING, 0, "lost_shard")),
        ("", Row("c1", "s2", OutcomeClass.MISSING, 0, "lost_shard")),
    ]


def test_given_a_lost_retry_shard_when_read_then_its_records_keep_their_parents_and_their_tries() -> None:
    job = Job()
    retry = job.shard("r", [
        record("a1", tries=1, attempt=2, parent_shard_id="s0"),
        record("b0", tries=2, attempt=2, parent_shard_id="s1"),
    ])  # fmt: skip
    job.plan(2, [item(2, "r2-00000-aa", retry, 2), item(1, "s5", hexdigest("other"), 7)])

    assert attempt_items(job.objects, KEYS, 2) == [item(2, "r2-00000-aa", retry, 2)]
    assert job.rows(2, [], ["s0", "s1"]) == [
        ("", Row("a1", "s0", OutcomeClass.MISSING, 1, "lost_shard")),
        ("", Row("b0", "s1", OutcomeClass.MISSING, 2, "lost_shard")),
    ]


def test_given_a_shard_lost_before_its_submission_in_every_attempt_when_folded_then_only_the_deadline_ends_it() -> None:
    """It was handed to nobody: that is no try, whether a function failed or a person cancelled."""
    job = Job()
    policy = RetryPolicy(max_attempts=3, backoff_s=60)
    for attempt in (1, 2, 3, 4):
        parent = {} if attempt == 1 else {"parent_shard_id": "s0"}
        sha256 = job.shard(f"r{attempt}", [record("a0", tries=0, attempt=attempt, **parent)])
        job.plan(attempt, [item(attempt, "s0" if attempt == 1 else f"r{attempt}", sha256, 1)])
        for overdue in (False, True):
            streams = [attempt_rows(job.objects, KEYS, number, []) for number in range(1, attempt + 1)]
            sets = Sets()
            still_open, _, sources = fold_shard(sets, "s0", ["a0"], streams, policy, overdue=overdue)
            assert sources == []
            if overdue:
                assert (still_open, dict(sets.failed)) == ([], {"missing": 1})
            else:
                assert [(one.tries, one.reason) for one in still_open] == [(0, "lost_shard")]


def test_given_an_attempt_that_was_never_planned_when_read_then_it_has_no_rows() -> None:
    assert Job().rows(4, [], ["s0"]) == []


def test_given_a_shard_when_its_ids_are_read_then_they_come_in_the_shards_order() -> None:
    job = Job()
    sha256 = job.shard("a", [record("z"), record("a"), record("m")])
    assert record_ids(job.objects, KEYS, sha256) == ["z", "a", "m"]
