"""Which fault hits what: records by the hash of their content, calls and jobs by their ordinal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from infra.local.simulator.scenario import CallRule, Durations, RecordFault, RecordRule, Scenario, split_fault


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The fate of one job, fixed when it is created. `faults` maps a fault's name to its argument."""

    durations: Durations
    faults: Mapping[str, str]
    done: float


class Faults:
    """The fault plan of one scenario, with its counters. Loading a scenario starts a new one."""

    def __init__(self, scenario: Scenario) -> None:
        self._records = scenario.records
        self._needles = [rule.contains.encode() for rule in scenario.records]
        self._calls = scenario.calls
        self._jobs = scenario.jobs
        self._durations = scenario.durations
        self._salts = [f"{scenario.seed}/{number}".encode() for number in range(len(scenario.records))]
        self._hits: Counter[tuple[int, bytes]] = Counter()
        self.struck: Counter[str] = Counter()
        """Record faults dealt out so far, by name."""
        self._call_ordinals: Counter[tuple[str, str]] = Counter()
        self._job_ordinals: Counter[str] = Counter()

    def record(self, provider: str, digest: bytes, body: bytes, *, only: frozenset[RecordFault] | None = None) -> str:
        """The fault that hits a record now, "" if none. `digest` is of the body; rules are tried in order.

        With `only`, rules for other faults are passed over without being used up.
        """
        for number, rule in enumerate(self._records):
            if only is not None and rule.fault not in only:
                continue
            if self._chosen(number, rule, provider, digest, body):
                self._hits[number, digest] += 1
                self.struck[rule.fault.value] += 1
                return rule.fault.value
        return ""

    def _chosen(self, number: int, rule: RecordRule, provider: str, digest: bytes, body: bytes) -> bool:
        if rule.provider not in ("any", provider) or self._needles[number] not in body:
            return False
        if rule.rate < 1 and _fraction(self._salts[number] + digest) >= rule.rate:
            return False
        return rule.times == "always" or self._hits[number, digest] < rule.times

    def call(self, provider: str, kind: str) -> CallRule | None:
        """Counts one call of this kind; returns the rule that hits it."""
        self._call_ordinals[provider, kind] += 1
        ordinal = self._call_ordinals[provider, kind]
        for rule in self._calls:
            if rule.on == kind and rule.provider in ("any", provider) and rule.hits(ordinal):
                return rule
        return None

    def job(self, provider: str) -> JobPlan:
        """Counts one new job; every rule that hits it has its say, the first one on `done` and durations."""
        self._job_ordinals[provider] += 1
        ordinal = self._job_ordinals[provider]
        rules = [rule for rule in self._jobs if rule.provider in ("any", provider) and rule.hits(ordinal)]
        partial = (rule.done for rule in rules if rule.fault in ("expire", "cancel", "stuck"))
        return JobPlan(
            durations=next((rule.durations for rule in rules if rule.durations), self._durations),
            faults=dict(split_fault(rule.fault) for rule in reversed(rules) if rule.fault != "none"),
            done=next(partial, 1.0),
        )


def _fraction(data: bytes) -> float:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") / 2**64
