"""A pipeline at rest that can be taken up again, as it was, as often as a test wants to try something on it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.interrupted import InterruptedPipeline, Interrupter
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_misc import ManualClock, MemoryExecutions
from tests.support.memory_objects import MemoryBuckets, MemoryObjects
from tests.support.pipeline import Pipeline


@dataclass(frozen=True)
class Snapshot:
    pipeline: Pipeline

    def again(self, interrupter: Interrupter | None = None) -> InterruptedPipeline:
        """A copy of the stores as they are now; the provider is the same one."""
        origin = self.pipeline
        copied = InterruptedPipeline(
            origin.simulator,
            provider=origin.provider,
            objects=_objects(origin.objects),
            ledger=_ledger(origin.ledger),
            executions=MemoryExecutions(dict(origin.executions.started), set(origin.executions.ended)),
            clock=ManualClock(),
        )
        copied.clock.at = origin.clock.now()
        copied.interrupt(interrupter or Interrupter())
        return copied


def _objects(origin: MemoryObjects) -> MemoryObjects:
    buckets = MemoryBuckets(clock=origin._buckets.clock)
    buckets.versions = {key: list(versions) for key, versions in origin._buckets.versions.items()}
    return MemoryObjects(origin.bucket, buckets)


def _ledger(origin: MemoryLedger) -> MemoryLedger:
    ledger = MemoryLedger()
    ledger._jobs = dict(origin._jobs)
    ledger._submissions = dict(origin._submissions)
    ledger._records = dict(origin._records)
    ledger._pins = dict(origin._pins)
    return ledger
