"""What a case is: records that meet faults, the disposition that each must reach, and the job's own ending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

PROVIDERS = ("openai", "bedrock", "gemini")
PAID = frozenset({"succeeded", "truncated", "refused", "unqualified", "conflict"})
"""Outcomes of answers that came back, which is what a provider bills."""
BY_PEOPLE = "accepted by people"
AT = " at "
"""Before the provider that a record fell back to: `succeeded at gemini`."""
NEVER = "not asked"
"""Stands for the history of a record that was in no attempt."""

Ends = str | Mapping[str, int]
"""`retryable > succeeded: accepted`: outcomes attempt by attempt, then where the record stands. With counts where a
fault hits a part of the records, nobody can say which."""
Action = Literal["approve", "reject", "cancel", "resolve", "acknowledge", "publish a part", "drop again"]
Decision = Literal["", "accept", "reject", "requeue"]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Records with one fate. `cell` is the outcome class as it is printed, "" for records that only fill the job."""

    tag: str
    ends: Ends
    cell: str = ""
    records: int = 1
    fault: str = ""
    """Of the simulator, on each record's answer."""
    times: int | Literal["always"] = 1
    on: Mapping[str, Ends] = field(default_factory=dict)
    """`ends` at providers that know no better or worse way."""
    of: str = ""
    """The case whose records these are; "" for its own."""
    tail: str = ""
    """Sent after the title; no single field of the input has both."""
    decision: Decision = ""
    """What people decide about it once it is in review."""

    def names(self) -> list[str]:
        return [f"{self.tag}-{number}" for number in range(1, self.records + 1)]

    def expected(self, provider: str) -> Counter[str]:
        ends = self.on.get(provider, self.ends)
        return Counter({ends: self.records} if isinstance(ends, str) else ends)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run of the job ends. What is counted follows from the groups; the rest is said here."""

    state: str
    jobs: int
    """Made at the provider so far."""
    cell: str = ""
    """The job's own outcome as it is printed, "" if only its records are."""
    reason: str = ""
    """Words in its reason; "" means that it has none."""
    part: bool = False
    """Published as a part."""
    in_review: Mapping[str, int] = field(default_factory=dict)
    """Records by why they are there."""
    unknown: int = 0
    acknowledged: int = 0
    anomalies: Mapping[str, int] = field(default_factory=dict)
    calls: int = 0
    """Records that were asked one by one."""
    reconciled: bool = True
    """Whether the sets of the whole job were counted: a canary that stops its job leaves the rest unknown."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What somebody does once the job has ended, and what comes of it: only groups that change are named."""

    do: Action
    ending: Ending
    changed: Mapping[str, Ends] = field(default_factory=dict)
    on: Mapping[str, Mapping[str, Ends]] = field(default_factory=dict)
    """Of `changed`, by provider."""
    cells: Mapping[str, str] = field(default_factory=dict)
    """What groups are printed as from now on; all others are not printed again."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One dropped file, under one spec."""

    name: str
    groups: tuple[Group, ...]
    ending: Ending
    on: Mapping[str, Ending] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Sections of the spec that are not the usual ones."""
    job_fault: Mapping[str, Any] = field(default_factory=dict)
    """Of the simulator, on the case's first provider job."""
    faults: tuple[Mapping[str, Any], ...] = ()
    """Further ones on records, by provider."""
    begin: tuple[Action, ...] = ()
    """What somebody does while it runs."""
    steps: tuple[Step, ...] = ()
    again: Case | None = None
    """A second file of the same tenant, dropped as another dataset version."""
    again_at: Literal["end", "created"] = "end"
    """When: after the first has ended, or as soon as its provider job is there; that job ends when the second waits."""
    version: str = "v1"
    providers: tuple[str, ...] = PROVIDERS

    def ending_on(self, provider: str) -> Ending:
        return self.on.get(provider, self.ending)

    def rules(self) -> Iterator[dict[str, Any]]:
        """Of the scenario: each record is found by its title."""
        yield from (dict(rule) for rule in self.faults)
        for group in self.groups:
            if group.fault:
                for key in group.names():
                    yield {"fault": group.fault, "contains": title(self, group, key), "times": group.times}
        if self.again is not None:
            yield from self.again.rules()


def title(case: Case, group: Group, key: str) -> str:
    return f"{group.of or case.name}.{key}."


def last_word(ends: str) -> str:
    """The outcome that decided."""
    return _words(ends)[-1].partition(AT)[0]


def stands(ends: str) -> str:
    return ends.rpartition(": ")[2]


def paid_answers(ends: Mapping[str, int]) -> int:
    return sum(count * sum(word.partition(AT)[0] in PAID for word in _words(text)) for text, count in ends.items())


def _words(ends: str) -> list[str]:
    return ends.rpartition(": ")[0].split(" > ")


def failed_by_class(ends: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text, count in ends.items():
        if stands(text) == "failed":
            counts[last_word(text)] += count
    return counts


def standing(ends: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text, count in ends.items():
        counts[stands(text)] += count
    return counts


def counted(ends: Mapping[str, int]) -> str:
    """`retryable > succeeded: accepted`, with counts where there are several."""
    shown = sorted((text, count) for text, count in ends.items() if count)
    return "; ".join(text if len(shown) == 1 else f"{count} {text}" for text, count in shown)
