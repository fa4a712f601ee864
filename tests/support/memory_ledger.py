"""The port Ledger in memory, safe for threads. Passes the contract suite of `DynamoDBLedger`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from tallybatch.domain.rows import NOBODY, AcceptedAnswer, Job, RecordClaim, RecordRow, Submission
from tallybatch.ports import ClaimOutcome, ClaimResult
from tests.support.memory_budgets import MemoryBudgets
from tests.support.memory_quotas import MemoryQuotas

_CasRow = TypeVar("_CasRow", Job, Submission)
_Key = TypeVar("_Key", str, tuple[str, int, str])


class MemoryLedger(MemoryQuotas, MemoryBudgets):
    def __init__(self) -> None:
        MemoryQuotas.__init__(self)
        MemoryBudgets.__init__(self)
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] = {}
        self._submissions: dict[tuple[str, int, str], Submission] = {}
        self._records: dict[str, RecordRow] = {}
        self._pins: dict[tuple[str, str], str] = {}

    def job(self, job_key: str) -> Job | None:
        return self._jobs.get(job_key)

    def jobs(self, *, tenant: str = "", since: float = 0) -> Iterator[Job]:
        with self._lock:
            newest_first = sorted(self._jobs.values(), key=lambda job: (job.created_at, job.job_key), reverse=True)
        return (job for job in newest_first if job.created_at >= since and tenant in ("", job.tenant))

    def jobs_with_prefix(self, prefix: str, limit: int = 2) -> Sequence[Job]:
        if exact := self._jobs.get(prefix):
            return [exact][: max(limit, 0)]
        return [job for job in self.jobs() if job.job_key.startswith(prefix)][: max(limit, 0)]

    def put_job(self, job: Job, *, expected_version: int | None) -> Job | None:
        return self._compare_and_set(self._jobs, job.job_key, job, expected_version)

    def submission(self, job_key: str, attempt: int, shard_id: str) -> Submission | None:
        return self._submissions.get((job_key, attempt, shard_id))

    def submissions(self, job_key: str, attempt: int | None = None) -> Sequence[Submission]:
        with self._lock:
            found = sorted(self._submissions.items())
        return [row for (job, number, _), row in found if job == job_key and attempt in (None, number)]

    def put_submission(self, submission: Submission, *, expected_version: int | None) -> Submission | None:
        key = (submission.job_key, submission.attempt, submission.shard_id)
        return self._compare_and_set(self._submissions, key, submission, expected_version)

    def claim_records(self, claims: Sequence[RecordClaim]) -> Sequence[ClaimResult]:
        with self._lock:
            for claim in claims:
                self._records.setdefault(claim.record_key, _fresh(claim))
            return [self._judge(claim) for claim in claims]

    def take_over_records(self, claims: Sequence[RecordClaim], *, from_job: str) -> Sequence[ClaimResult]:
        with self._lock:
            for claim in claims:
                row = self._records.get(claim.record_key)
                if row is None or (row.owner == from_job and row.answer is None):
                    self._records[claim.record_key] = _fresh(claim)
            return [self._judge(claim) for claim in claims]

    def accept_records(self, answers: Sequence[AcceptedAnswer]) -> Sequence[bool]:
        return [self._accept(answer) for answer in answers]

    def withdraw_records(self, answers: Mapping[str, str]) -> None:
        with self._lock:
            for key, uri in answers.items():
                row = self._records.get(key)
                if row is not None and row.answer is not None and row.answer.uri == uri:
                    self._records[key] = RecordRow(record_key=key, owner=NOBODY, attempt=row.attempt)

    def records(self, record_keys: Sequence[str]) -> Mapping[str, RecordRow]:
        with self._lock:
            return {key: self._records[key] for key in record_keys if key in self._records}

    def pinned(self, kind: str, key: str) -> str:
        with self._lock:
            return self._pins.get((kind, key), "")

    def pin(self, kind: str, key: str, value: str) -> str:
        if "#" in kind:
            raise ValueError(f"a pin's kind is a word without '#', not {kind!r}")
        with self._lock:
            return self._pins.setdefault((kind, key), value)

    def _accept(self, answer: AcceptedAnswer) -> bool:
        with self._lock:
            row = self._records.get(answer.record_key)
            if row is None:
                return False
            if row.answer is None and row.owner == answer.job_key:
                self._records[answer.record_key] = msgspec.structs.replace(row, answer=answer)
                return True
            return row.answer == answer

    def _judge(self, claim: RecordClaim) -> ClaimResult:
        row = self._records[claim.record_key]
        if row.answer is not None:
            return ClaimResult(claim, ClaimOutcome.ACCEPTED, row)
        if row.owner == claim.job_key:
            return ClaimResult(claim, ClaimOutcome.MINE)
        return ClaimResult(claim, ClaimOutcome.FOREIGN, row)

    def _compare_and_set(
        self, rows: dict[_Key, _CasRow], key: _Key, row: _CasRow, expected_version: int | None
    ) -> _CasRow | None:
        with self._lock:
            stored = rows.get(key)
            if (None if stored is None else stored.version) != expected_version:
                return None
            rows[key] = msgspec.structs.replace(row, version=(expected_version or 0) + 1)
            return rows[key]


def _fresh(claim: RecordClaim) -> RecordRow:
    return RecordRow(claim.record_key, claim.job_key, claim.attempt, reason=claim.reason)
