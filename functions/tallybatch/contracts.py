"""What passes between the states of the workflow: ids, small numbers and S3 keys, never records."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LONGEST_NAME = 200
"""Characters of the name of whoever asks or decides."""


class Contract(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ObjectCreated(Contract):
    """`detail` of an EventBridge "Object Created" event from S3. The key is raw there, never URL-encoded."""

    class Bucket(Contract):
        name: str

    class Object(Contract):
        key: str
        size: int = 0
        etag: str = ""
        version_id: str = Field(default="", alias="version-id")

    bucket: Bucket
    object: Object


class S3Event(Contract):
    detail: ObjectCreated
    time: str = ""


class BackfillRequest(Contract):
    """Input of `discover_backfill`: which objects become jobs. `prefix` may hold `{yyyy}`, `{mm}`, `{dd}`."""

    tenant: str
    spec: str
    prefix: str
    source_bucket: str = ""
    """"": the pipeline's own bucket."""
    dataset_version: str = "{yyyy}-{mm}-{dd}"
    max_objects: int = Field(default=100, ge=1, le=10_000)
    """Ceiling of jobs started by one run."""
    days_back: int = Field(default=0, ge=0, le=366)
    """How many days before the run's date the placeholders cover, too."""
    time: str = ""
    """ISO 8601 moment of the run; "" is now."""


class BackfillReply(Contract):
    started: list[str]
    """Inbox keys."""
    seen: int
    """Objects that an earlier run has taken."""
    over_ceiling: int
    """Objects left for the next run."""
    prefixes: list[str]


class SweepRequest(Contract):
    """Input of `sweep`. Provider jobs and our jobs are looked at that were created within the last `lookback_hours`."""

    cancel: bool = False
    """Cancel orphans and duplicates that have not ended."""
    lookback_hours: int = Field(default=192, ge=1, le=8760)
    """Longer than any provider keeps a job running."""


class Orphan(Contract):
    """A provider job that carries a marker of ours and answers to no submission."""

    provider: str
    provider_job_id: str
    marker: str
    state: str
    created_at: float
    """Unix seconds."""
    why: str
    """Begins with `unknown` (not in the ledger) or `superseded` (its submission is bound to another job)."""
    job_key: str = ""
    """"": unknown."""
    tokens: dict[str, int] | None = None
    """As billed, of a job that has ended; null where the provider does not tell."""
    cost_usd: str | None = None
    """By its tokens, at the rates of the job that it was made for; null where one of these is not known."""


class SweepGap(Contract):
    """A provider of which not everything was seen or done, and why."""

    provider: str
    why: str


class SweepReply(Contract):
    checked: int
    """Provider jobs that carry a marker of ours."""
    known: int
    """Of these, as the ledger has them already."""
    orphans: list[Orphan]
    adopted: list[str]
    """Provider jobs that a submission waited for, bound to it now."""
    cancelled: list[str]
    """Provider jobs for which cancellation was asked now."""
    restarted: list[str]
    """Executions started for jobs that nobody worked on."""
    stale: list[str]
    """`job_key/attempt/shard_id` of submissions with an unknown outcome that nobody works on."""
    gaps: list[SweepGap] = []
    released: list[str] = []
    """`pool place` of quota that nobody needed any more, given back now."""
    deleted_files: int = 0
    """Files of completed jobs, deleted at their providers now."""


class ResumeRequest(Contract):
    """What a person asks of a job that has ended without completing. `resume`: go on with what is open. `acknowledge`:
    the unknown ids in quarantine have been seen and count no more. `publish_partial`: publish what was accepted."""

    job_key: str
    action: Literal["resume", "acknowledge", "publish_partial"]
    by: str = Field(min_length=1, max_length=LONGEST_NAME)


class ResumeReply(Contract):
    """`started`: the next run was started by this call, or by an earlier one of the same kind that was not heard."""

    job_key: str
    state: str
    attempt: int
    started: bool
    acknowledged: int = 0
    """Unknown lines that count no more."""
    by: str = ""
    """Whose request it is that stands: of several, the first."""
    left: dict[str, int] = {}
    """What keeps the job from closing all the same: open, in_review, missing, duplicate."""
    at_work: bool = False
    """The job had not ended and an execution works on it: nothing was asked of it."""
    stopped: bool = False
    """The job had not ended and no execution works on it: `resume` starts the next."""
    cancelling: bool = False
    """Somebody has asked for the end of the job at work."""


class ReviewRequest(Contract):
    """`decisions_key`: the file of decisions, put under review/ by its hash."""

    job_key: str
    decisions_key: str
    by: str = Field(min_length=1, max_length=LONGEST_NAME)


class ReviewReply(Contract):
    """`applied` counts the decisions of this file that count, by kind. `already`: records that were decided before."""

    job_key: str
    state: str
    attempt: int
    by: str
    applied: dict[str, int]
    already: list[dict[str, Any]] = []
    undecided: int = 0
    """Lines without a decision."""
    repeated: bool = False
    """The file was handed in before; nothing was changed by this call."""


class JobInput(Contract):
    """Input of the state machine."""

    tenant: str
    job_key: str
    bucket: str
    attempt: int = 1
    next_shard: int = 0
    """The first shard of the wave, in the order of the attempt's list; 0 begins the attempt."""
    wave: int = 1
    """How many shards the wave has."""


class AttemptPlan(Contract):
    """Output of PlanAttempt and input of ShardMap."""

    tenant: str
    job_key: str
    bucket: str
    attempt: int
    items_key: str
    """A JSON array of `ShardItem`."""
    shard_count: int
    max_parallel: int
    next_shard: int = 0
    """Where the next wave of this attempt begins; 0: this was the last."""
    wave: int = 1
    """How many shards the next wave has."""


class ShardItem(Contract):
    """One child of ShardMap."""

    tenant: str
    job_key: str
    attempt: int
    shard_id: str
    shard_sha256: str
    record_count: int
    provider: str = "openai"
    model: str = ""
    """As resolved; "" in a plan that was written before plans named it."""
    tokens: int = 0
    """Prompt tokens, as estimated."""
    priority: Literal["low", "normal", "high"] = "normal"
    lane: Literal["batch", "on_demand"] = "batch"
    rescue_at: int = 0
    """Unix seconds from which on nothing is left to a provider's job; 0 is never."""
    can_grow: bool = True
    """Whether other records of the job may still join these, if they are too few."""


class QuotaReply(Contract):
    """Of ReserveQuota and AdmitJob. `wait`: ask again after `wait_s`; `position` 1 is next in the line, and `why` says
    what no waiting will change."""

    status: Literal["go", "wait"]
    wait_s: int = 0
    position: int = 0
    why: str = ""


class ReleaseReply(Contract):
    """Of ReleaseQuota: whether there was anything to give back."""

    released: bool


class SubmitReply(Contract):
    """`unknown`: nobody knows yet whether create worked; `quota`: refused for now; both come back after `wait_s`.
    `empty`: nothing is sent; every record is answered, in flight elsewhere, or kept back. `refused`: the provider will
    not take it. `cancelled`: the job was cancelled before this shard was submitted. `on_demand`: its records are asked
    one by one."""

    status: Literal["submitted", "unknown", "quota", "empty", "refused", "cancelled", "on_demand"]
    wait_s: int = 0
    provider_job_id: str = ""


class AnswerReply(Contract):
    """`more`: records are left, go on after `wait_s`; `quota`: the same, for the provider has no room. `answered`:
    nothing is left to ask. `empty` and `cancelled`: as in `SubmitReply`."""

    status: Literal["more", "quota", "answered", "empty", "cancelled"]
    wait_s: int = 0


class PollReply(Contract):
    """`resubmit`: the provider's job ended before it ran for lack of quota; submit again after `wait_s`."""

    status: Literal["running", "terminal", "resubmit"]
    wait_s: int = 0
    state: str = ""


class ReconcileReply(Contract):
    """Output of ReconcileJob. `wait_s` and `next_attempt` matter for `retry`; the publish fields for `closed`. `gate`:
    the sets close, and a gate stops the job before anything is published."""

    tenant: str
    job_key: str
    bucket: str
    attempt: int
    verdict: Literal["closed", "retry", "partial", "cancelled", "gate", "canary", "publish_partial"]
    next_attempt: int = 0
    wait_s: int = 0
    items_key: str = ""
    """A JSON array of `PublishItem`."""
    max_parallel: int = 1


class CanaryReply(Contract):
    """Output of JudgeCanary. `go`: the next attempt begins after `wait_s`; `ask`: a person has `timeout_s`."""

    tenant: str
    job_key: str
    bucket: str
    attempt: int
    verdict: Literal["go", "ask"]
    next_attempt: int
    wait_s: int = 0
    timeout_s: int = 1


class ApprovalRequest(Contract):
    """Input of ApproveCanary. The answer to the token carries nothing: the ledger says what was decided."""

    tenant: str
    job_key: str
    attempt: int
    task_token: str = Field(repr=False)


class PublishItem(Contract):
    """One child of PublishMap: a shard of the manifest and the outcome objects in which its records appear."""

    tenant: str
    job_key: str
    attempt: int
    shard_id: str
    outcomes: list[str]
    partial: bool = False
    """Somebody asked to publish what there is, though the sets do not close."""


class SealReply(Contract):
    tenant: str
    job_key: str
    state: str
    age_s: int = 0
    """From the manifest to the end of the job."""
    certificate: str = ""
    results_uri: str = ""


class FailInput(Contract):
    tenant: str
    job_key: str
    bucket: str = ""
    attempt: int = 1
    error: dict[str, Any] = {}
    """`Error` and `Cause` as Step Functions hands them to a Catch."""
