"""The whole line in one process: the real steps in the order of the ASL, memory stores, and the simulator over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from infra.local.simulator.server import SimulatorServer
from tallybatch import wiring
from tallybatch.adapters.providers.openai import OpenAIApi
from tallybatch.contracts import (
    AttemptPlan,
    FailInput,
    JobInput,
    PublishItem,
    ReconcileReply,
    S3Event,
    SealReply,
    ShardItem,
)
from tallybatch.domain.errors import Retryable, TallybatchError
from tallybatch.domain.rows import Job
from tallybatch.domain.submitting import SubmitRules
from tallybatch.ports import ProviderApi
from tallybatch.steps import (
    build_manifest,
    collect_shard,
    fail_job,
    plan_attempt,
    poll_shard,
    publish_shard,
    reconcile_job,
    reconcile_shard,
    seal_job,
    submit_shard,
)
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_misc import ManualClock, MemoryEvents, MemoryExecutions
from tests.support.memory_objects import MemoryObjects

TENANT = "acme"
RULES = SubmitRules(settle_window_s=300, create_within_s=30)
_MAX_STEPS = 500


def s3_event(key: str, *, bucket: str = "bucket", etag: str = "") -> S3Event:
    return S3Event.model_validate({"detail": {"bucket": {"name": bucket}, "object": {"key": key, "etag": etag}}})


@dataclass
class Pipeline:
    """Virtual time: each wait of the workflow moves our clock and the simulator's alike."""

    simulator: SimulatorServer
    provider: ProviderApi | None = None
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    events: MemoryEvents = field(default_factory=MemoryEvents)
    executions: MemoryExecutions = field(default_factory=MemoryExecutions)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        if self.provider is None:
            self.provider = OpenAIApi(lambda: "test-key", base_url=self.simulator.openai_base_url, timeout_s=5)
        self.clock.at = self.simulator.core.clock.now()

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.simulator.control.advance(seconds)

    def push_spec(self, text: str, *, tenant: str = TENANT, name: str = "genre") -> None:
        self.objects.put(f"specs/{tenant}/{name}.yaml", text.encode())

    def drop(
        self, body: bytes, *, tenant: str = TENANT, spec: str = "genre", version: str = "v1", name: str = "films.jsonl"
    ) -> dict[str, Any]:
        key = f"inbox/{tenant}/{spec}/{version}/{name}"
        self.objects.put(key, body)
        return self.build(s3_event(key))

    def build(self, event: S3Event) -> dict[str, Any]:
        ports = build_manifest.Ports(
            self.objects, self.ledger, self.executions, self.events, self.clock, wiring.formats
        )
        return build_manifest.run(event, ports)

    def execute(self, job_key: str, *, tenant: str = TENANT) -> SealReply:
        """The state machine: raises what a Catch would not see, ends in FailJob for what it would."""
        request = JobInput(tenant=tenant, job_key=job_key, bucket=self.objects.bucket)
        try:
            return self._attempts(request)
        except TallybatchError as error:
            failed = FailInput(
                tenant=tenant, job_key=job_key, error={"Error": type(error).__name__, "Cause": str(error)}
            )
            return fail_job.run(failed, fail_job.Ports(self.objects, self.ledger, self.events, self.clock))

    def _attempts(self, request: JobInput) -> SealReply:
        for _ in range(30):
            plan = self.plan(request)
            for item in self.items(plan):
                self.shard(item)
            reply = self.reconcile(request)
            if reply.verdict != "retry":
                break
            self.wait(reply.wait_s)
            request = request.model_copy(update={"attempt": reply.next_attempt})
        if reply.verdict == "closed":
            for publish in msgspec.json.decode(self.objects.get(reply.items_key)):
                publish_shard.run(PublishItem.model_validate(publish), self.objects)
        return self.seal(request)

    def plan(self, request: JobInput) -> AttemptPlan:
        ports = plan_attempt.Ports(self.objects, self.ledger, self.events, self.clock, wiring.formats)
        return plan_attempt.run(request, ports)

    def items(self, plan: AttemptPlan) -> list[ShardItem]:
        return [ShardItem.model_validate(item) for item in msgspec.json.decode(self.objects.get(plan.items_key))]

    def shard(self, item: ShardItem) -> None:
        """The child execution. A lost shard does not lose the others."""
        try:
            self.run_shard(item)
        except TallybatchError:
            return

    def run_shard(self, item: ShardItem) -> None:
        assert self.provider is not None
        poll_ports = poll_shard.Ports(self.ledger, self.provider, self.clock)
        waited: float = 0
        for _ in range(_MAX_STEPS):
            submitted = self.retrying(lambda: self.submit(item))
            if submitted.status in ("unknown", "quota"):
                self.wait(submitted.wait_s)
                continue
            if submitted.status != "submitted":
                break
            while True:
                polled = self.retrying(lambda: poll_shard.run(item, poll_ports, waited_s=waited, max_wait_s=600))
                if polled.status != "running":
                    break
                waited = polled.wait_s
                self.wait(waited)
            if polled.status == "terminal":
                collect = collect_shard.Ports(self.objects, self.ledger, self.provider, self.clock)
                self.retrying(lambda: collect_shard.run(item, collect))
                break
            self.wait(polled.wait_s)
        self.reconcile_shard(item)

    def submit(self, item: ShardItem) -> Any:
        assert self.provider is not None
        ports = submit_shard.Ports(self.objects, self.ledger, self.provider, self.clock, wiring.formats)
        return submit_shard.run(item, ports, rules=RULES, unknown_wait_s=30)

    def reconcile_shard(self, item: ShardItem) -> dict[str, int]:
        ports = reconcile_shard.Ports(self.objects, self.ledger, self.clock, wiring.formats)
        return reconcile_shard.run(item, ports)

    def reconcile(self, request: JobInput) -> ReconcileReply:
        return reconcile_job.run(request, reconcile_job.Ports(self.objects, self.ledger, self.clock))

    def seal(self, request: JobInput) -> SealReply:
        return seal_job.run(request, seal_job.Ports(self.objects, self.ledger, self.events, self.clock))

    def retrying(self, call: Callable[[], Any]) -> Any:
        """The Retry of a task state, for errors that are listed there."""
        for _ in range(5):
            try:
                return call()
            except Retryable:
                self.wait(10)
        return call()

    def job(self, job_key: str) -> Job:
        job = self.ledger.job(job_key)
        assert job is not None
        return job

    def run(self, body: bytes, **where: str) -> Job:
        """Drop a file and follow it to its end."""
        reply = self.drop(body, **where)
        if reply["state"] != "FAILED":
            self.execute(reply["job_key"], tenant=where.get("tenant", TENANT))
        return self.job(reply["job_key"])
