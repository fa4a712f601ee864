"""The ledger's rows. Each is immutable; a change is a new value written by compare-and-set on `version`."""

from __future__ import annotations

from typing import Literal

import msgspec

from tallybatch.domain.lifecycle import JobState, SubmissionState

Lane = Literal["batch", "on_demand"]
"""How a submission reaches its provider: as one job, or record by record through the synchronous API."""


class ReviewRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Decisions of people that an attempt carries out. `key` names their object, `file_sha256` their file."""

    attempt: int
    key: str
    sha256: str
    file_sha256: str
    by: str
    at: float
    counts: dict[str, int] = {}


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person is asked to let a job go on after its canary. Times are Unix seconds."""

    attempt: int
    """The one whose canary is meant."""
    asked_at: float
    expires_at: float
    token: str = ""
    """Of the task that waits for the answer: whoever has it can wake the execution. Never logged or shown."""
    decision: str = ""
    """`approved` or `rejected`."""
    decided_at: float = 0
    decided_by: str = ""
    reason: str = ""

    def __repr__(self) -> str:
        return f"Approval(attempt={self.attempt}, decision={self.decision!r}, decided_by={self.decided_by!r})"


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One manifest being executed. Times are Unix seconds; counts are records."""

    job_key: str
    tenant: str
    spec: str
    dataset_version: str
    state: JobState
    created_at: float
    updated_at: float
    version: int = 1
    run: int = 1
    attempt: int = 1
    source_uri: str = ""
    provider: str = ""
    model_resolved: str = ""
    expected: int = 0
    shard_count: int = 0
    deadline_at: float = 0
    execution_name: str = ""
    cancel_requested_at: float = 0
    """When somebody asked to cancel; the job ends CANCELLED once everything that is out has come back."""
    partial_requested_at: float = 0
    """When somebody asked to publish what there is: the run submits nothing more, publishes, and ends as before."""
    partial_requested_by: str = ""
    published_attempt: int = 0
    """Up to which attempt what was accepted is published."""
    review: ReviewRun | None = None
    """The decisions that were handed in last."""
    sampled: int = 0
    """Accepted records that lie in the review queue for people to look at."""
    spec_digest: str = ""
    """SHA-256 of the spec whose gates hold for this run; "" is the manifest's."""
    golden_sha256: str = ""
    """Of the labels of the golden file as it was when this run began, "" without one."""
    drop: str = ""
    """The object version whose arrival (re)started the job: a repeated event has the same, a new drop another."""
    dropped_at: float = 0
    """When S3 had that object: events may come late and in any order, so they do not tell which drop is the newer."""
    places: dict[str, float] = {}
    """Keys in the inbox under which this content was dropped, and when last: its results are those of each."""
    dry_run: bool = False
    """Prepared and validated only: nothing works on it until the file is dropped in earnest."""
    released: int = 0
    """The attempt after whose canary the whole job was let go; 0 is not yet."""
    approval: Approval | None = None
    counts: dict[str, int] = {}
    """Final counts: succeeded, reused, failed, missing, unknown, duplicate, in_review, submissions, provider_jobs."""
    reason: str = ""
    certificate: str = ""
    results_uri: str = ""
    report: str = ""
    provider_files_deleted_at: float = 0
    deletions: str = ""
    """URI of the record of which files were deleted at the provider, and when; "" if it had none."""


ON_DEMAND: Lane = "on_demand"
ON_DEMAND_JOB = "on-demand"
"""Stands for the provider's job where there is none."""


class Evidence(msgspec.Struct, frozen=True):
    """One look at a provider's list that did not find the marker. `at` is when it began: what came into being while the
    list was walked may be on a page that was read already."""

    at: float
    jobs_seen: int
    pages: int
    complete: bool


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One (shard, attempt) handed to a provider; section 5 of the design is the table of its moves."""

    job_key: str
    tenant: str
    attempt: int
    shard_id: str
    shard_sha256: str
    state: SubmissionState
    provider: str
    model: str = ""
    """As resolved; "" is the manifest's."""
    submission_key: str
    updated_at: float
    version: int = 1
    home: str = ""
    """The bucket of the pipeline that made the row: a part of its markers."""
    lane: Lane = "batch"
    generation: int = 1
    owner: str = ""
    """Nonce of the invocation that may call create, or has sent it again by its token. Never expires by clock."""
    first_claimed_at: float = 0
    """When the first generation was claimed."""
    claimed_at: float = 0
    create_by: float = 0
    """The owner does not send create after this moment (Unix seconds)."""
    input_sha256: str = ""
    input_records: int = 0
    reused_records: int = 0
    waiting_records: int = 0
    file_id: str = ""
    earlier_files: tuple[str, ...] = ()
    """Request files of earlier generations at the provider."""
    provider_job_id: str = ""
    provider_state: str = ""
    refusal: str = ""
    """Why the provider would not take the submission, or failed it as a whole."""
    refusal_code: str = ""
    refusal_class: str = ""
    """The outcome class of every record for that reason."""
    untried: bool = False
    """The refusal says nothing about the records: none was looked at, and none has used up a try."""
    unknown_since: float = 0
    evidence: tuple[Evidence, ...] = ()
    absences: tuple[Evidence, ...] = ()
    """For each earlier generation whose job was proven not to exist: the look that proved it."""
    ghosts: tuple[str, ...] = ()
    """Provider jobs of this submission other than the bound one: cancelled, harvested, and booked as duplicates."""
    earlier_jobs: tuple[str, ...] = ()
    """Provider jobs of earlier generations that ended without running (quota refusals)."""
    not_before: float = 0
    """After a quota refusal: no create before this moment."""
    quota_refusals: int = 0
    submitted_at: float = 0
    cancelled_at: float = 0
    """When we began to cancel the provider job because its job was cancelled: its undone records used up no try."""
    terminal_at: float = 0
    progress: dict[str, int] = {}
    """The provider's own counts while it runs: total, completed, failed."""
    channels: dict[str, str] = {}
    """Raw objects by channel name (S3 keys)."""
    lost_calls: dict[str, int] = {}
    """On demand: by record_id, calls that may have been paid for and whose answer is not the one that counts."""
    outcomes_key: str = ""
    counts: dict[str, int] = {}
    """Records by outcome class, after reconciliation."""
    tokens: dict[str, int] = {}
    """As billed by the bound provider job."""
    duplicate_tokens: dict[str, int] = {}
    """As billed by ghosts."""
    provider_tokens: dict[str, int] = {}
    """The bound job's tokens by the provider's own count, where it has one."""
    ghost_tokens: dict[str, int] = {}
    """The same of all ghosts together."""
    unread_jobs: int = 0
    """Provider jobs, ghosts included, that may have billed and whose results and token counts cannot be had."""
    price: str = ""
    """`Price.id` of the rates at which the submission is booked."""
    cost_nano_usd: int = 0
    """Of the bound provider job, booked when the submission is reconciled."""
    costs: dict[str, int] = {}
    """Its parts, see `billing.Costs`."""
    duplicate_cost_nano_usd: int = 0
    schema_valid: int = 0
    """Of the unqualified answers: those that fit the schema, and broke a rule or lacked a quote."""
    unpriced: int = 0
    """Executions whose cost nobody can tell; the costs are too low by those."""
    anomalies: dict[str, int] = {}
    """unknown, duplicate_same, conflict, success_and_error, errors_differ, unparsable, model_drift, counts_disagree,
    unknown_code, fetched_again, results_gone, duplicate_submission, reply_lost."""
    unknown_codes: dict[str, int] = {}
    """Records by each code that the provider's table does not have."""


class RecordClaim(msgspec.Struct, frozen=True, gc=False):
    """A wish to spend money on one record."""

    record_key: str
    job_key: str
    attempt: int
    reason: str = ""
    """Why it is tried again, "" for the first time."""


class AcceptedAnswer(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where an accepted answer is: a zstd frame inside an outcome object, and the row within it."""

    record_key: str
    job_key: str
    attempt: int
    uri: str
    offset: int
    length: int
    sha256: str
    """Of the frame's lines, before compression."""


NOBODY = ""
"""Owner of a record that its last owner has given up: the next job that wants it takes it over."""


class RecordRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One slot for an accepted answer. `owner` is the job_key that may spend on it, or NOBODY; `answer` is set once
    accepted. `attempt` is the last in which the record was claimed, `reason` why that was not the first."""

    record_key: str
    owner: str
    attempt: int
    answer: AcceptedAnswer | None = None
    reason: str = ""
