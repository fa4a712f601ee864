"""Many jobs at once in one process: the real steps as interleaved executions on one virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from msgspec.structs import replace

from infra.local.simulator.server import SimulatorServer
from tallybatch.contracts import FailInput, JobInput, PublishItem, ShardItem
from tallybatch.domain import quotas
from tallybatch.domain.quota_rows import Hold, QuotaPool
from tallybatch.domain.quotas import ALL
from tallybatch.ports import QuotaMove
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_misc import ManualClock, MemoryEvents, MemoryExecutions
from tests.support.memory_objects import MemoryObjects
from tests.support.pipeline import Pipeline


@dataclass
class Group:
    """Children of a Map: so many at once, and whoever yields it goes on when all have ended."""

    children: list[Run]
    at_once: int
    left: int = 0
    parent: Run | None = None
    above: Group | None = None
    """Of which the parent itself is a child."""


Run = Generator["float | Group", None, None]


@dataclass(frozen=True)
class Taken:
    """A reservation, as somebody saw it who stood beside the pool."""

    hold: Hold
    waited_s: float


@dataclass
class WatchedLedger(MemoryLedger):
    """Judges each reservation by what it knows itself of the line, not by what the code under test made of it."""

    clock: ManualClock
    taken: list[Taken] = field(default_factory=list)
    passed: list[tuple[Hold, Hold]] = field(default_factory=list)
    """(who took, who was deprived): the other was before it, within its tenant's share, fitted, and now does not."""
    over: list[str] = field(default_factory=list)
    """Limits that the reservations exceeded, with the figures."""

    def __post_init__(self) -> None:
        super().__init__()

    def move_quota(self, pool: QuotaPool, move: QuotaMove) -> bool:
        with self._quota_lock:
            before, line = self.quota_line(pool.name)
            if not super().move_quota(pool, move):
                return False
            if take := move.take:
                self.taken.append(Taken(take, take.reserved_at - take.asked_at))
                self._look_at(take, before, [*(hold for hold in line if hold.place != take.place), take])
            return True

    def _look_at(self, take: Hold, pool: QuotaPool, line: list[Hold]) -> None:
        """`line` as it was, with the one who takes at its end."""
        held = [hold for hold in self.quota_holds(pool.name) if hold.reserved_at]
        for scope, dimension, limit in _limits(pool, take.model):
            out = sum(hold.amount.of(dimension) for hold in held if scope in (ALL, hold.model))
            if out > limit:
                self.over.append(f"{pool.name} {scope} {dimension}: {out} of {limit}")
        for other in line[:-1]:
            ahead = other.turn < take.turn and other.model == take.model and other.not_before <= self.clock.now()
            before = [hold for hold in held if hold.place != take.place]
            if ahead and self._fits(other, before, pool, line) and not self._fits(other, held, pool, line):
                self.passed.append((take, other))

    def _fits(self, hold: Hold, held: list[Hold], pool: QuotaPool, line: list[Hold]) -> bool:
        """Into what is free, and into its tenant's part, which is the same for all who wait or hold something."""
        for scope, dimension, limit in _limits(pool, hold.model):
            there = [each for each in held if scope in (ALL, each.model)]
            tenants = {each.tenant for each in (*there, *line) if scope in (ALL, each.model)} | {hold.tenant}
            mine = sum(each.amount.of(dimension) for each in there if each.tenant == hold.tenant)
            wanted = hold.amount.of(dimension)
            if sum(each.amount.of(dimension) for each in there) + wanted > limit:
                return False
            if mine and len(tenants) > 1 and mine + wanted > limit / len(tenants):
                return False
        return True


def _limits(pool: QuotaPool, model: str) -> Iterable[tuple[str, str, int]]:
    return [(scope, name, limit) for scope in (model, ALL) for name, limit in quotas.usable(pool, scope).items()]


class ManyJobs:
    """One pipeline a provider, all on the same stores and the same clock."""

    def __init__(self, simulator: SimulatorServer, providers: Iterable[str]) -> None:
        self.clock = ManualClock()
        self.ledger = WatchedLedger(self.clock)
        shared: dict[str, Any] = {
            "objects": MemoryObjects(),
            "ledger": self.ledger,
            "events": MemoryEvents(),
            "executions": MemoryExecutions(),
            "clock": self.clock,
        }
        self.pipelines: Mapping[str, Pipeline] = {
            name: Pipeline(simulator, provider_name=name, **shared) for name in providers
        }
        self._heap: list[tuple[float, int, Run, Group | None]] = []
        self._numbers = count()
        self.ended_at: dict[str, float] = {}

    @property
    def any_pipeline(self) -> Pipeline:
        return next(iter(self.pipelines.values()))

    def set_limits(self, name: str, **settings: Any) -> None:
        """As `tallybatch quota set`."""
        pool = self.ledger.quota_pool(name)
        assert self.ledger.move_quota(replace(pool, **settings), QuotaMove())

    def start(self, job_key: str, provider: str, *, tenant: str, after_s: float = 0) -> None:
        """Start the execution of a job that was dropped."""
        self._put(self.clock.now() + after_s, self._job(self.pipelines[provider], job_key, tenant), None)

    def run(self) -> None:
        """Until every execution has ended."""
        while self._heap:
            moment, _, run, group = heapq.heappop(self._heap)
            if moment > self.clock.now():
                self.any_pipeline.wait(moment - self.clock.now())
            self._step(run, group)

    def _step(self, run: Run, group: Group | None) -> None:
        try:
            asked = next(run)
        except StopIteration:
            if group is not None:
                self._ended(group)
            return
        if isinstance(asked, Group):
            asked.parent, asked.above, asked.left = run, group, len(asked.children)
            for _ in range(min(asked.at_once, len(asked.children))):
                self._put(self.clock.now(), asked.children.pop(0), asked)
            if not asked.left:
                self._put(self.clock.now(), run, group)
        else:
            self._put(self.clock.now() + asked, run, group)

    def _ended(self, group: Group) -> None:
        group.left -= 1
        if group.children:
            self._put(self.clock.now(), group.children.pop(0), group)
        elif not group.left and group.parent is not None:
            self._put(self.clock.now(), group.parent, group.above)

    def _put(self, moment: float, run: Run, group: Group | None) -> None:
        heapq.heappush(self._heap, (moment, next(self._numbers), run, group))

    # The state machine, as in the ASL

    def _job(self, p: Pipeline, job_key: str, tenant: str) -> Run:
        request = JobInput(tenant=tenant, job_key=job_key, bucket=p.objects.bucket)
        try:
            while (turn := p.task("AdmitJob", lambda: p.admit(request))).status == "wait":
                yield turn.wait_s
            while True:
                plan = p.task("PlanAttempt", lambda request=request: p.plan(request))  # type: ignore[misc]
                yield Group([self._shard(p, item) for item in p.items(plan)], plan.max_parallel)
                reply = p.task("ReconcileJob", lambda request=request: p.reconcile(request))  # type: ignore[misc]
                if reply.verdict != "retry":
                    break
                yield reply.wait_s
                request = request.model_copy(update={"attempt": reply.next_attempt})
            if reply.verdict == "closed":
                yield Group([self._publish(p, item) for item in p.publish_items(reply)], reply.max_parallel)
            p.task("SealJob", lambda: p.seal(request))
        except Exception as error:  # as States.ALL
            told = {"Error": type(error).__name__, "Cause": str(error)}
            attempt = p.job(job_key).attempt
            p.fail(FailInput(tenant=tenant, job_key=job_key, bucket=p.objects.bucket, attempt=attempt, error=told))
        self.ended_at[job_key] = self.clock.now()

    def _publish(self, p: Pipeline, item: PublishItem) -> Run:
        p.task("PublishShard", lambda: p.publish(item))
        yield 0

    def _shard(self, p: Pipeline, item: ShardItem) -> Run:
        try:
            yield from self._shard_states(p, item)
        except Exception:  # the Map tolerates every failure of a child
            p.tasks.append(("ShardMap", "lost"))

    def _shard_states(self, p: Pipeline, item: ShardItem) -> Run:
        while True:
            while (turn := p.task("ReserveQuota", lambda: p.reserve(item))).status == "wait":
                yield turn.wait_s
            while (submitted := p.task("SubmitShard", lambda: p.submit(item))).status == "unknown":
                yield submitted.wait_s
            if submitted.status == "quota":
                yield submitted.wait_s
                continue
            if submitted.status != "submitted":
                break
            waited: float = 15
            yield waited
            while (polled := p.task("PollShard", lambda waited=waited: p.poll(item, waited))).status == "running":  # type: ignore[misc]
                waited = polled.wait_s
                yield waited
            if polled.status == "terminal":
                p.task("CollectShard", lambda: p.collect(item))
                break
            yield polled.wait_s
        p.task("ReconcileShard", lambda: p.reconcile_shard(item))
