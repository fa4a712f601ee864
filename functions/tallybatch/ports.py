"""What the steps need from the outside world. Adapters implement these; tests run one contract suite on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, BinaryIO, Protocol

from tallybatch.domain.budgets import Budget, BudgetHold
from tallybatch.domain.outcomes import OutcomeClass, RecordResult, Usage
from tallybatch.domain.quota_rows import Hold, QuotaChange, QuotaPool
from tallybatch.domain.rows import AcceptedAnswer, Job, RecordClaim, RecordRow, Submission
from tallybatch.domain.spec import Spec


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A stored object. `sha256` is of its bytes as we wrote it, "" when it was not written by us; sizes in bytes."""

    key: str
    size: int
    etag: str
    sha256: str = ""
    version_id: str = ""
    last_modified: float = 0
    intent: str = ""
    """What whoever wrote the object put into its metadata under `tallybatch`; filled by `head`."""


class Objects(Protocol):
    """One bucket. Keys are raw, never URL-encoded. A missing object raises `NotFound`."""

    @property
    def bucket(self) -> str: ...

    def uri(self, key: str) -> str:
        """`s3://bucket/key`."""

    def head(self, key: str, *, version_id: str = "") -> ObjectInfo | None: ...

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, offset: int, length: int) -> bytes: ...

    def open(self, key: str, *, version_id: str = "", etag: str = "") -> AbstractContextManager[BinaryIO]:
        """A stream over the whole object that survives a read that breaks in the middle (it resumes by range).
        With `etag`, an object that has changed since raises `NotFound`."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """In key order; `sha256` is not filled."""

    def put_once(
        self, key: str, body: bytes | BinaryIO, *, content_type: str = "application/octet-stream", retention: str = ""
    ) -> ObjectInfo:
        """Write if absent. The same bytes again are a success, other bytes raise `Conflict`. A `BinaryIO` body is read
        from its start and must be seekable; large ones go in parts. `retention` is the value of a tag that lifecycle
        rules read: a class such as `raw`, or days such as `90d`."""

    def put(
        self, key: str, body: bytes | BinaryIO, *, content_type: str = "application/octet-stream", retention: str = ""
    ) -> ObjectInfo:
        """Write, replacing. A `BinaryIO` as in `put_once`."""

    def put_if_match(self, key: str, body: bytes, *, etag: str | None, content_type: str, retention: str = "") -> bool:
        """Replace if the current ETag is `etag` (None: if absent). False when another writer was first."""

    def retain(self, key: str, retention: str, *, version_id: str = "") -> None:
        """Set the retention tag of an object that others wrote; its other tags stay. Raises `BadInput` if it has no
        room for one more."""

    def copy(self, source_bucket: str, source_key: str, key: str, *, version_id: str = "") -> ObjectInfo:
        """Server-side copy into this bucket."""


class ClaimOutcome(StrEnum):
    MINE = "mine"
    ACCEPTED = "accepted"
    """Somebody's answer is already accepted: reuse it."""
    FOREIGN = "foreign"
    """Another job has the record in flight."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    claim: RecordClaim
    outcome: ClaimOutcome
    row: RecordRow | None = None
    """The stored row for ACCEPTED and FOREIGN."""


@dataclass(frozen=True, slots=True)
class QuotaMove:
    """What changes together with a pool's totals: a hold becomes a reservation (`take`), a reservation ends (`give`)
    or, `back`, takes its place in the line again; `note` is for the audit."""

    take: Hold | None = None
    give: Hold | None = None
    back: Hold | None = None
    note: QuotaChange | None = None


class QuotaLedger(Protocol):
    """Quota pools. A pool that is not stored has version 0 and the defaults. Whatever is refused changes nothing."""

    def quota_pool(self, name: str) -> QuotaPool: ...

    def quota_line(self, name: str) -> tuple[QuotaPool, Sequence[Hold]]:
        """The pool, and those who wait, in the order of their turn: the first thousand or so."""

    def quota_hold(self, name: str, place: str) -> Hold | None:
        """A wish or a reservation, see `quota_rows.place`."""

    def quota_holds(self, name: str) -> Iterator[Hold]:
        """All of them, in the order of their places."""

    def quota_changes(self, name: str) -> Sequence[QuotaChange]:
        """Oldest first."""

    def enter_line(self, hold: Hold) -> bool:
        """Wait. False if the place has a hold already."""

    def keep_place(self, hold: Hold) -> bool:
        """Update the times of one who waits. False if it does not wait any more."""

    def leave_line(self, hold: Hold) -> bool:
        """Wait no longer. False if it does not wait: it may hold a reservation by now."""

    def move_quota(self, pool: QuotaPool, move: QuotaMove) -> bool:
        """In one transaction: write the totals if the stored version is still `pool.version` (they get the next), and
        the holds. A `take` needs that its place has no reservation, a `give` and a `back` that it has one. False if
        not."""


class BudgetLedger(Protocol):
    """Budgets. One that is not stored has version 0 and no limit of its own."""

    def budget(self, tenant: str, period: str) -> Budget: ...

    def budget_hold(self, tenant: str, period: str, job_key: str) -> BudgetHold | None: ...

    def budget_holds(self, tenant: str, period: str) -> Iterator[BudgetHold]:
        """Of all jobs, by job_key."""

    def move_budget(self, budget: Budget, hold: BudgetHold | None = None) -> bool:
        """In one transaction: write the totals if the stored version is still `budget.version` (they get the next), and
        the hold. False, and nothing is changed, if not."""


class Ledger(QuotaLedger, BudgetLedger, Protocol):
    """The single table. Every write is conditional; a write whose reply was lost is recognised by its own nonce."""

    def job(self, job_key: str) -> Job | None: ...

    def jobs(self, *, tenant: str = "", since: float = 0) -> Iterator[Job]:
        """Newest first."""

    def jobs_with_prefix(self, prefix: str, limit: int = 2) -> Sequence[Job]:
        """Jobs whose key begins with `prefix`."""

    def put_job(self, job: Job, *, expected_version: int | None) -> Job | None:
        """Compare-and-set: None as `expected_version` means "if absent". Writes `job` with its `version` set to
        expected + 1 (1 when absent) and returns the stored row, or returns None when the condition failed."""

    def submission(self, job_key: str, attempt: int, shard_id: str) -> Submission | None: ...

    def submissions(self, job_key: str, attempt: int | None = None) -> Sequence[Submission]:
        """Ordered by (attempt, shard_id)."""

    def put_submission(self, submission: Submission, *, expected_version: int | None) -> Submission | None:
        """Compare-and-set, as `put_job`."""

    def claim_records(self, claims: Sequence[RecordClaim]) -> Sequence[ClaimResult]:
        """One result per claim, in order. A record in flight for the same job is MINE. In batches of 25; unprocessed
        statements are repeated until none is left."""

    def take_over_records(self, claims: Sequence[RecordClaim], *, from_job: str) -> Sequence[ClaimResult]:
        """Claim records whose owner `from_job` has ended without accepting them."""

    def accept_records(self, answers: Sequence[AcceptedAnswer]) -> Sequence[bool]:
        """Accept once: True if this answer is the stored one (also when a former call stored it), False if the record
        belongs to another job or holds another answer."""

    def withdraw_records(self, answers: Mapping[str, str]) -> None:
        """Take accepted answers back: by record_key the URI of the outcome object that holds the answer. The record is
        nobody's then, and may be claimed afresh. One that holds another answer, or none, is left as it is."""

    def records(self, record_keys: Sequence[str]) -> Mapping[str, RecordRow]:
        """Rows that exist, by record_key; any number of keys."""

    def pinned(self, kind: str, key: str) -> str:
        """The value that `pin` stored, "" if there is none."""

    def pin(self, kind: str, key: str, value: str) -> str:
        """Create if absent; returns the value that is stored now (ours, or the earlier one)."""


class ProviderState(StrEnum):
    SUBMITTED = "submitted"
    QUEUED = "queued"
    RUNNING = "running"
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    UNKNOWN = "unknown"
    """A word we do not know: not terminal, reported."""
    DONE = "done"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"
    GONE = "gone"
    """The provider answers that there is no such job: terminal, every row missing."""


TERMINAL_STATES = frozenset(
    {ProviderState.DONE, ProviderState.CANCELLED, ProviderState.EXPIRED, ProviderState.FAILED, ProviderState.GONE}
)


META = "meta-"
"""Begins the name of a channel that is kept as it came and holds no records."""


@dataclass(frozen=True, slots=True)
class JobError:
    """A reason at job level, e.g. from asynchronous validation. `line` is 1-based, 0 if none."""

    code: str
    message: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class ProviderJob:
    """A provider's job in one shape. `channels` maps a channel name (output, error) to what `download` takes; a channel
    whose name begins with `META` holds no records."""

    id: str
    state: ProviderState
    raw_state: str
    marker: str
    raw: bytes
    """The provider's own JSON, for the audit."""
    created_at: float = 0
    channels: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """total, completed, failed: the provider's word; files win."""
    errors: tuple[JobError, ...] = ()
    quota_refused: bool = False
    """Ended before it ran, for lack of quota: wait and submit again, no attempt used up."""
    failure: OutcomeClass | None = None
    """Of a job that failed as a whole, without results, and would fail again as it is: the class of all its records."""
    untried: bool = False
    """`failure` is the account's (its rights, its bill), not the records': none has used up a try."""
    usage: Usage | None = None
    """Tokens as billed for the whole job so far, where the provider tells them."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a look through the provider's job list found. `complete` is False if the walk was cut short."""

    jobs: tuple[ProviderJob, ...]
    jobs_seen: int
    pages: int
    complete: bool


class ProviderFormat(Protocol):
    """The pure half of a provider: its request and result lines. Loads no SDK."""

    @property
    def name(self) -> str: ...

    def request_line(self, record_id: str, *, system: str, user: str) -> bytes:
        """One line of the input file, without the newline, for a prompt that has been rendered."""

    def request_bytes(self, *, system: str, user: str) -> int:
        """Size of `request_line` in bytes, for any record_id of 32 characters."""

    def native_line(self, record_id: str, request: Mapping[str, Any]) -> bytes:
        """One line of the input file for a native request whose own id is replaced by record_id."""

    def native_problem(self, line: Mapping[str, Any]) -> str:
        """What is wrong with a line of a native batch file, "" if nothing is."""

    def parse(self, line: bytes) -> RecordResult:
        """Read one line of a result file. Raises `ValueError` for a line that holds no record."""


class Formats(Protocol):
    def __call__(self, spec: Spec) -> ProviderFormat:
        """The format of a spec's provider."""


class ProviderApi(Protocol):
    """The other half: HTTP calls. All but `create` may be repeated freely."""

    @property
    def name(self) -> str: ...

    @property
    def create_is_idempotent(self) -> bool:
        """Whether create with the same marker again gives the job that is there. Then an unknown outcome is resolved
        by sending it again, not by looking for the marker."""

    def upload(self, filename: str, body: BinaryIO, *, uri: str) -> str:
        """Returns what create takes as `file_id`. `uri` is where the same bytes are in our bucket."""

    def create(
        self,
        *,
        submission_key: str,
        file_id: str,
        endpoint: str,
        model: str,
        output_uri: str,
        deadline_s: float = 0,
    ) -> ProviderJob:
        """`deadline_s` is how long the spec gives the whole job, for providers that take a timeout.

        Send create exactly once, with the SDK's own retries off. Raises `CreateUnknown` whenever the job may exist
        all the same, `QuotaRefused` or `ProviderRefused` only when the provider said that it does not, and
        `ProviderUnavailable` only when the request provably never left."""

    def find(self, submission_key: str, *, since: float) -> Search:
        """All jobs that carry the marker ("": any marker), among those created after `since` (Unix seconds)."""

    def get(self, provider_job_id: str) -> ProviderJob:
        """State GONE if the provider knows no such job; raises `ProviderUnavailable` when it cannot tell."""

    def cancel(self, provider_job_id: str) -> ProviderJob: ...

    @property
    def keeps_files(self) -> bool:
        """Whether request and result files lie at the provider, and not in our own bucket."""

    def result_files(self, job: ProviderJob) -> Mapping[str, str]:
        """What `delete_file` takes to delete a job's results, by a word for each."""

    def delete_file(self, file_id: str) -> bool:
        """Delete a request file, or one of `result_files`. False if the provider itself says that it has none of that
        name. Raises `ProviderRefused`, or `ProviderUnavailable` when it cannot tell."""

    def download(self, channel: str) -> Iterator[bytes]:
        """Chunks of exactly the bytes of a result file, complete or `ProviderUnavailable`. Raises `ResultsGone`."""


class OnDemand(Protocol):
    """A provider's synchronous API, one request a call, at its full price."""

    @property
    def name(self) -> str: ...

    def answer(self, line: bytes, *, endpoint: str, model: str) -> bytes:
        """Send the request of one line of the format's input file, exactly once, with the SDK's own retries off.

        Returns what came as one line of the provider's batch results, without the newline, so that
        `ProviderFormat.parse` reads it; a refusal of this one request is such a line too. Raises `QuotaRefused` for a
        rate or a quota, `ProviderUnavailable` if the request provably never left, `ProviderRefused` for what would be
        refused on every record (key, model, account), and `AnswerUnknown` for everything else."""


class Secrets(Protocol):
    def get(self, name: str) -> str: ...


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds."""


class Events(Protocol):
    def publish(self, kind: str, detail: Mapping[str, Any]) -> None:
        """Put an event on the bus: `kind` is e.g. `JobCompleted`; ids, counts and URIs only."""


class TaskTokens(Protocol):
    def wake(self, token: str) -> bool:
        """Tell the task that waits with this token to go on. False if none does, or no more."""


class Executions(Protocol):
    def start(self, name: str, payload: Mapping[str, Any]) -> bool:
        """Start the job's state machine. False if an execution of that name exists already."""

    def running(self, name: str) -> bool:
        """Whether an execution of that name exists and has not ended."""
