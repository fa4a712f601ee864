"""The order of the ASL in one process: what runs after what, what is tried again, what is waited for, what is lost."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

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
    SealReply,
    ShardItem,
    SubmitReply,
)
from tallybatch.domain.errors import Retryable
from tests.support.memory_misc import MemoryTaskTokens

RETRYABLE_RETRIES = 6
"""As many as the fewest that a task state of the ASL has for errors named in its Retry."""
OTHER_RETRIES = 3
"""As many as the ASL has for any other error of a task in a Map."""
RELEASING = frozenset({"ReserveQuota", "SubmitShard", "PollShard"})
"""States whose Catch gives the shard's quota back."""
_MAX_STEPS = 500
_MAX_ATTEMPTS = 60

T = TypeVar("T")


class StateMachine(ABC):
    """Runs a job's states in their order. What a state does, and how time passes, is a subclass's."""

    tokens: MemoryTaskTokens
    people: list[Callable[[], object]]
    """What people do while the job waits for one of them."""
    attempt: int
    """The one that the execution is in."""
    tasks: list[tuple[str, str]]
    """Every run of a task state: its name, and the class of the error it ended with, "" for none."""

    def work(self, request: JobInput) -> SealReply:
        try:
            return self._attempts(request)
        except Exception as error:  # as States.ALL
            failed = FailInput(
                tenant=request.tenant,
                job_key=request.job_key,
                bucket=request.bucket,
                attempt=self.attempt,
                error={"Error": type(error).__name__, "Cause": json.dumps({"errorMessage": str(error)})},
            )
            return self.task("FailJob", lambda: self.fail(failed))

    def _attempts(self, request: JobInput) -> SealReply:
        self.attempt = request.attempt
        for _ in range(_MAX_STEPS):
            turn = self.task("AdmitJob", lambda: self.admit(request))
            if turn.status == "go":
                break
            self.wait(turn.wait_s)
        for _ in range(_MAX_ATTEMPTS):
            reply = self.one_attempt(request)
            following: ReconcileReply | CanaryReply = reply
            if reply.verdict == "canary":
                following = self.canary(request)
            elif reply.verdict != "retry":
                break
            self.wait(following.wait_s)
            self.attempt = following.next_attempt
            request = request.model_copy(update={"attempt": self.attempt})
        if reply.verdict in ("closed", "publish_partial"):
            for item in self.publish_items(reply):
                self.task("PublishShard", lambda item=item: self.publish(item))  # type: ignore[misc]
        return self.task("SealJob", lambda: self.seal(request))

    def one_attempt(self, request: JobInput) -> ReconcileReply:
        """PlanAttempt and ShardMap, wave by wave, ReconcileJob."""
        plan = self.task("PlanAttempt", lambda: self.plan(request))
        while True:
            for item in self.items(plan):
                self.shard(item)
            if not plan.next_shard:
                break
            wave = request.model_copy(update={"next_shard": plan.next_shard, "wave": plan.wave})
            plan = self.task("PlanAttempt", lambda wave=wave: self.plan(wave))  # type: ignore[misc]
        return self.task("ReconcileJob", lambda: self.reconcile(request))

    def canary(self, request: JobInput) -> CanaryReply:
        """JudgeCanary and ApproveCanary, until the rest may go. While the execution waits for its token, the `people`
        come by, one each time; when nobody is left, the time is over."""
        while True:
            reply = self.task("JudgeCanary", lambda: self.judge(request))
            if reply.verdict != "ask":
                return reply
            token = f"token-{len(self.tokens.made) + 1}"
            self.tokens.made.append(token)
            ask = ApprovalRequest(
                tenant=request.tenant, job_key=request.job_key, attempt=reply.attempt, task_token=token
            )
            self.task("ApproveCanary", lambda ask=ask: self.ask(ask))  # type: ignore[misc]
            while token not in self.tokens.woken and self.people:
                self.people.pop(0)()
            if token not in self.tokens.woken:
                self.wait(reply.timeout_s)
            self.tokens.ended.add(token)

    def shard(self, item: ShardItem) -> None:
        """A child execution of ShardMap. A lost one does not lose the others."""
        try:
            self.run_shard(item)
        except Exception:  # the Map tolerates every failure of a child
            if self.tasks[-1][0] in RELEASING:
                with suppress(Exception):
                    self.task("ReleaseQuota", lambda: self.release(item))
            self.tasks.append(("ShardMap", "lost"))

    def run_shard(self, item: ShardItem) -> None:
        if item.lane == "on_demand":
            self.answer_shard(item)
            return
        waited: float = 0
        reserved: QuotaReply | None = None
        for _ in range(_MAX_STEPS):
            if reserved is None or reserved.status == "wait":
                reserved = self.task("ReserveQuota", lambda: self.reserve(item))
            if reserved.status == "wait":
                self.wait(reserved.wait_s)
                continue
            submitted = self.task("SubmitShard", lambda: self.submit(item))
            if submitted.status == "on_demand":
                self.answer_shard(item)
                return
            if submitted.status == "cancelled":
                return
            if submitted.status in ("unknown", "quota"):
                reserved = reserved if submitted.status == "unknown" else None
                self.wait(submitted.wait_s)
                continue
            if submitted.status != "submitted":
                break
            while True:
                polled = self.task("PollShard", lambda waited=waited: self.poll(item, waited))  # type: ignore[misc]
                if polled.status != "running":
                    break
                waited = polled.wait_s
                self.wait(waited)
            if polled.status == "terminal":
                self.task("CollectShard", lambda: self.collect(item))
                break
            reserved = None
            self.wait(polled.wait_s)
        self.task("ReconcileShard", lambda: self.reconcile_shard(item))

    def answer_shard(self, item: ShardItem) -> None:
        for _ in range(_MAX_STEPS):
            answered = self.task("AnswerShard", lambda: self.ask_records(item))
            if answered.status == "cancelled":
                return
            if answered.status not in ("more", "quota"):
                break
            self.wait(answered.wait_s)
        self.task("ReconcileShard", lambda: self.reconcile_shard(item))

    def task(self, name: str, call: Callable[[], T]) -> T:
        """A task state with its Retry: more patient with errors that are named there than with others."""
        retryable = others = 0
        while True:
            try:
                reply = call()
            except Exception as error:
                self.tasks.append((name, type(error).__name__))
                known = isinstance(error, Retryable)
                retryable, others = retryable + known, others + (not known)
                if retryable > RETRYABLE_RETRIES or others > OTHER_RETRIES:
                    raise
                self.wait(10)
            else:
                self.tasks.append((name, ""))
                return reply

    # Single states

    @abstractmethod
    def wait(self, seconds: float) -> None: ...

    @abstractmethod
    def admit(self, request: JobInput) -> QuotaReply: ...

    @abstractmethod
    def plan(self, request: JobInput) -> AttemptPlan: ...

    @abstractmethod
    def items(self, plan: AttemptPlan) -> list[ShardItem]:
        """The ItemReader of ShardMap."""

    @abstractmethod
    def reserve(self, item: ShardItem) -> QuotaReply: ...

    @abstractmethod
    def release(self, item: ShardItem) -> ReleaseReply: ...

    @abstractmethod
    def submit(self, item: ShardItem) -> SubmitReply: ...

    @abstractmethod
    def ask_records(self, item: ShardItem) -> AnswerReply: ...

    @abstractmethod
    def poll(self, item: ShardItem, waited_s: float = 0) -> Any: ...

    @abstractmethod
    def collect(self, item: ShardItem) -> dict[str, int]: ...

    @abstractmethod
    def reconcile_shard(self, item: ShardItem) -> dict[str, int]: ...

    @abstractmethod
    def reconcile(self, request: JobInput) -> ReconcileReply: ...

    @abstractmethod
    def judge(self, request: JobInput) -> CanaryReply: ...

    @abstractmethod
    def ask(self, request: ApprovalRequest) -> None: ...

    @abstractmethod
    def publish_items(self, reply: ReconcileReply) -> list[PublishItem]:
        """The ItemReader of PublishMap."""

    @abstractmethod
    def publish(self, item: PublishItem) -> Any: ...

    @abstractmethod
    def seal(self, request: JobInput) -> SealReply: ...

    @abstractmethod
    def fail(self, request: FailInput) -> SealReply: ...
