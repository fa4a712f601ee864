"""The whole line in one process: the real steps on memory stores, with the simulator over HTTP, in the ASL's order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from infra.local.simulator.server import SimulatorServer
from tallybatch import settings, wiring
from tallybatch.adapters.providers.bedrock import BedrockApi
from tallybatch.adapters.providers.gemini import GeminiApi
from tallybatch.adapters.providers.openai import OpenAIApi
from tallybatch.contracts import (
    AnswerReply,
    ApprovalRequest,
    AttemptPlan,
    CanaryReply,
    FailInput,
    JobInput,
    PublishItem,
    QuotaReply,
    ReconcileReply,
    ReleaseReply,
    ResumeReply,
    ResumeRequest,
    ReviewReply,
    ReviewRequest,
    S3Event,
    SealReply,
    ShardItem,
    SubmitReply,
    SweepReply,
    SweepRequest,
)
from tallybatch.domain.certificate import Certificate, from_bytes
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.rows import Job
from tallybatch.domain.submitting import SubmitRules
from tallybatch.ports import Ledger, Objects, OnDemand, ProviderApi
from tallybatch.steps import (
    admit_job,
    answer_approval,
    answer_shard,
    approve_canary,
    build_manifest,
    collect_shard,
    fail_job,
    judge_canary,
    plan_attempt,
    poll_shard,
    publish_shard,
    reconcile_job,
    reconcile_shard,
    release_quota,
    reserve_quota,
    resolve_review,
    resume_job,
    seal_job,
    submit_shard,
    sweep,
    verify_job,
)
from tallybatch.steps.answer_shard import AnswerRules
from tests.support.bedrock import ROLE_ARN, MemoryStore, bedrock_client
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_misc import ManualClock, MemoryEvents, MemoryExecutions, MemoryTaskTokens
from tests.support.memory_objects import MemoryObjects
from tests.support.on_demand import lane
from tests.support.privileges import AllowedLedger, AllowedObjects
from tests.support.state_machine import StateMachine

TENANT = "acme"
API_KEY = "sk-proj-key-of-the-tests-0123456789"
RULES = SubmitRules(settle_window_s=300, create_within_s=30)
ANSWER_RULES = AnswerRules(work_s=600, call_s=60)
UNKNOWN_WAIT_S = 30


def s3_event(key: str, *, bucket: str = "bucket", etag: str = "", version_id: str = "") -> S3Event:
    dropped = {"key": key, "etag": etag, "version-id": version_id}
    return S3Event.model_validate({"detail": {"bucket": {"name": bucket}, "object": dropped}})


@dataclass
class Pipeline(StateMachine):
    """Virtual time: each wait of the workflow moves our clock and the simulator's alike."""

    simulator: SimulatorServer
    provider: ProviderApi = field(default=None)  # type: ignore[assignment]
    on_demand: OnDemand = field(default=None)  # type: ignore[assignment]
    provider_name: str = "openai"
    min_records: Mapping[str, int] = field(default_factory=dict)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    events: MemoryEvents = field(default_factory=MemoryEvents)
    executions: MemoryExecutions = field(default_factory=MemoryExecutions)
    clock: ManualClock = field(default_factory=ManualClock)
    rules: SubmitRules = RULES
    tokens: MemoryTaskTokens = field(default_factory=MemoryTaskTokens)
    people: list[Callable[[], object]] = field(default_factory=list)
    keep_files_s: float = 24 * 3600
    elsewhere: dict[str, Any] = field(default_factory=dict)
    """Ports of the providers that jobs fall back to, by name; made by the first use."""
    tasks: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.simulator.core.store = MemoryStore(self.objects)
        if self.provider is None:
            self.provider = self.makers()[self.provider_name]()
        if self.on_demand is None:
            self.on_demand = lane(self.provider.name, self.simulator, key=API_KEY)
        self.clock.at = self.simulator.core.clock.now()
        if isinstance(self.objects, MemoryObjects):
            self.objects.dated_by(self.clock.now)

    def makers(self) -> dict[str, Callable[[], ProviderApi]]:
        return {"openai": self.openai, "bedrock": self.bedrock, "gemini": self.gemini}

    def port(self, inner: Any) -> Any:
        """Put around each port that is made for a provider elsewhere."""
        return inner

    def api(self, name: str) -> ProviderApi:
        """The provider's batch API; the job's own is `provider`, which a test may have replaced."""
        if name == self.provider.name:
            return self.provider
        if name not in self.elsewhere:
            self.elsewhere[name] = self.port(self.makers()[name]())
        found: ProviderApi = self.elsewhere[name]
        return found

    def single(self, name: str) -> OnDemand:
        """The same of its synchronous API."""
        if name == self.provider.name:
            return self.on_demand
        key = f"{name}, on demand"
        if key not in self.elsewhere:
            self.elsewhere[key] = self.port(lane(name, self.simulator, key=API_KEY))
        found: OnDemand = self.elsewhere[key]
        return found

    def openai(self, *, key: str = API_KEY, **options: Any) -> OpenAIApi:
        """The real adapter, over HTTP to the simulator; its own pauses pass in virtual time."""
        defaults: dict[str, Any] = {"timeout_s": 5, "create_timeout_s": 5, "max_retries": 0, "sleep": self.wait}
        return OpenAIApi(lambda: key, base_url=self.simulator.openai_base_url, **{**defaults, **options})

    def bedrock(self, *, role_arn: str = ROLE_ARN) -> BedrockApi:
        """As `openai`; results are found in the memory bucket, where the simulator puts them."""
        clients = [bedrock_client(self.simulator.bedrock_endpoint_url) for _ in range(2)]
        return BedrockApi(clients[0], clients[1], self.objects, role_arn, sleep=self.wait)

    def gemini(self, *, key: str = API_KEY, **options: Any) -> GeminiApi:
        """The same for Gemini."""
        defaults: dict[str, Any] = {"timeout_s": 5, "create_timeout_s": 5, "max_retries": 0, "sleep": self.wait}
        return GeminiApi(lambda: key, base_url=self.simulator.gemini_base_url, **{**defaults, **options})

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.simulator.control.advance(seconds)

    # What users do

    def push_spec(self, text: str, *, tenant: str = TENANT, name: str = "genre") -> None:
        self.objects.put(f"specs/{tenant}/{name}.yaml", text.encode())

    def upload(
        self,
        body: bytes,
        *,
        tenant: str = TENANT,
        spec: str = "genre",
        version: str = "v1",
        name: str = "films.jsonl",
        intent: str = "",
    ) -> S3Event:
        """Put a file into the inbox; returns the event that S3 sends for it. `intent` is its metadata `tallybatch`."""
        key = f"inbox/{tenant}/{spec}/{version}/{name}"
        info = self.objects.write_as_user(key, body, intent=intent) if intent else self.objects.put(key, body)
        etag = info.etag.strip('"')
        return s3_event(info.key, bucket=self.objects.bucket, etag=etag, version_id=info.version_id)

    def drop(self, body: bytes, **where: str) -> dict[str, Any]:
        return self.build(self.upload(body, **where))

    def run(self, body: bytes, **where: str) -> Job:
        """Drop a file and follow it to its end."""
        job_key = self.drop(body, **where)["job_key"]
        self.execute(job_key, tenant=where.get("tenant", TENANT))
        return self.job(job_key)

    # What AWS does

    def build(self, event: S3Event) -> dict[str, Any]:
        ports = build_manifest.Ports(
            *self.stores(settings.BuildManifest),
            self.executions,
            self.events,
            self.clock,
            wiring.formats,
            self.min_records,
        )
        return build_manifest.run(event, ports)

    def execute(self, job_key: str, *, tenant: str = TENANT) -> SealReply | None:
        """What was started for the job, to its end; None if nothing was. Ends in FailJob for what a Catch sees."""
        job = self.job(job_key)
        if not job.execution_name or job.state.value not in ("VALIDATED", "CREATED"):
            return None
        request = JobInput(tenant=tenant, job_key=job_key, bucket=self.objects.bucket, attempt=job.attempt)
        return self.work(request)

    # Single states

    def stores(self, function: type[settings.StoreSettings]) -> tuple[Objects, Ledger]:
        """Bucket and table as the function's role lets it see them."""
        return cast("Objects", AllowedObjects(self.objects, function)), cast(
            "Ledger", AllowedLedger(self.ledger, function)
        )

    def admit(self, request: JobInput) -> QuotaReply:
        return admit_job.run(request, admit_job.Ports(*self.stores(settings.AdmitJob), self.clock))

    def reserve(self, item: ShardItem) -> QuotaReply:
        return reserve_quota.run(item, reserve_quota.Ports(self.stores(settings.ReserveQuota)[1], self.clock))

    def release(self, item: ShardItem) -> ReleaseReply:
        return release_quota.run(item, release_quota.Ports(self.stores(settings.ReleaseQuota)[1], self.clock))

    def plan(self, request: JobInput) -> AttemptPlan:
        ports = plan_attempt.Ports(
            *self.stores(settings.PlanAttempt), self.events, self.clock, wiring.formats, self.min_records
        )
        return plan_attempt.run(request, ports)

    def items(self, plan: AttemptPlan) -> list[ShardItem]:
        """The ItemReader of ShardMap."""
        return [ShardItem.model_validate(item) for item in msgspec.json.decode(self.objects.get(plan.items_key))]

    def submit(self, item: ShardItem) -> SubmitReply:
        ports = submit_shard.Ports(
            *self.stores(settings.SubmitShard), self.api(item.provider), self.clock, wiring.formats, self.min_records
        )
        return submit_shard.run(item, ports, rules=self.rules, unknown_wait_s=UNKNOWN_WAIT_S)

    def ask_records(self, item: ShardItem) -> AnswerReply:
        ports = answer_shard.Ports(
            *self.stores(settings.AnswerShard), self.single(item.provider), self.clock, wiring.formats
        )
        return answer_shard.run(item, ports, rules=ANSWER_RULES)

    def poll(self, item: ShardItem, waited_s: float = 0) -> Any:
        ports = poll_shard.Ports(self.stores(settings.PollShard)[1], self.api(item.provider), self.clock)
        return poll_shard.run(item, ports, waited_s=waited_s, max_wait_s=600)

    def collect(self, item: ShardItem) -> dict[str, int]:
        ports = collect_shard.Ports(*self.stores(settings.CollectShard), self.api(item.provider), self.clock)
        return collect_shard.run(item, ports)

    def reconcile_shard(self, item: ShardItem) -> dict[str, int]:
        ports = reconcile_shard.Ports(*self.stores(settings.ReconcileShard), self.clock, wiring.formats)
        return reconcile_shard.run(item, ports)

    def reconcile(self, request: JobInput) -> ReconcileReply:
        return reconcile_job.run(request, reconcile_job.Ports(*self.stores(settings.ReconcileJob), self.clock))

    def judge(self, request: JobInput) -> CanaryReply:
        return judge_canary.run(request, judge_canary.Ports(*self.stores(settings.JudgeCanary), self.clock))

    def ask(self, request: ApprovalRequest) -> None:
        ports = approve_canary.Ports(*self.stores(settings.ApproveCanary), self.events, self.tokens, self.clock)
        approve_canary.run(request, ports)

    def approve(self, job_key: str, *, approve: bool = True, who: str = "ada", reason: str = "") -> Job:
        """As `tallybatch approve` does."""
        ports = answer_approval.Ports(self.objects, self.ledger, self.tokens, self.clock)
        return answer_approval.run(job_key, approve=approve, who=who, reason=reason, ports=ports)

    def publish_items(self, reply: ReconcileReply) -> list[PublishItem]:
        """The ItemReader of PublishMap."""
        return [PublishItem.model_validate(item) for item in msgspec.json.decode(self.objects.get(reply.items_key))]

    def publish(self, item: PublishItem) -> Any:
        return publish_shard.run(item, self.stores(settings.PublishShard)[0])

    def seal(self, request: JobInput) -> SealReply:
        return seal_job.run(request, self.seal_ports())

    def seal_ports(self) -> seal_job.Ports:
        return seal_job.Ports(*self.stores(settings.SealJob), self.events, self.clock, wiring.formats)

    def resume(self, job_key: str, action: Any = "resume", *, by: str = "ada") -> ResumeReply:
        ports = resume_job.Ports(*self.stores(settings.ResumeJob), self.executions, self.clock)
        return resume_job.run(ResumeRequest(job_key=job_key, action=action, by=by), ports)

    def hand_in(self, job: Job, decisions: bytes, *, by: str = "ada") -> ReviewReply:
        """What `review resolve` does: upload a file of decisions, and call for it."""
        key = self.keys(job).review_handed_in(hashlib.sha256(decisions).hexdigest())
        self.objects.put_once(key, decisions)
        return self.resolve(ReviewRequest(job_key=job.job_key, decisions_key=key, by=by))

    def resolve(self, request: ReviewRequest) -> ReviewReply:
        ports = resolve_review.Ports(*self.stores(settings.ResolveReview), self.executions, self.clock)
        return resolve_review.run(request, ports)

    def run_again(self, job_key: str) -> Job:
        """The execution that was started last for the job, to its end."""
        self.work(JobInput.model_validate(self.executions.started[self.job(job_key).execution_name]))
        return self.job(job_key)

    def sweep(self, **request: Any) -> SweepReply:
        """As the schedule calls it, or with another request."""
        ports = sweep.Ports(
            self.stores(settings.Sweep)[1],
            {
                self.provider.name: self.provider,
                **{name: self.elsewhere[name] for name in self.makers() if name in self.elsewhere},
            },
            self.events,
            self.executions,
            self.clock,
            self.stores(settings.Sweep)[0],
            self.keep_files_s,
        )
        return sweep.run(SweepRequest(**request), ports)

    def fail(self, request: FailInput) -> SealReply:
        return fail_job.run(request, fail_job.Ports(*self.stores(settings.FailJob), self.events, self.clock))

    # What came of it

    def job(self, job_key: str) -> Job:
        job = self.ledger.job(job_key)
        assert job is not None, f"no job {job_key}"
        return job

    def keys(self, job: Job) -> JobKeys:
        return JobKeys(job.tenant, job.job_key)

    def certificate(self, job: Job) -> Certificate:
        key = self.keys(job).certificate
        return from_bytes(self.objects.get(key), where=key)

    def verify(self, job: Job) -> verify_job.Verification:
        return verify_job.run(self.objects, self.keys(job))
