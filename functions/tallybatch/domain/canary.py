"""The canary: which records are tried first, what their answers say of the rest, and in which waves that follows."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

import msgspec

from tallybatch.domain.prices import usd

MOST_STRATA = 1000
"""Further ones are sampled together: a field with a value of its own for each record tells no strata apart."""
OTHER = "other"
GROWTH = 4
"""By which each wave of shards is larger than the one before."""
_SHOWN_VALUE = 40
_SCRIPTS: tuple[tuple[int, int, str], ...] = (
    (0x0080, 0x024F, "latin"),
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x052F, "cyrillic"),
    (0x0590, 0x05FF, "hebrew"),
    (0x0600, 0x077F, "arabic"),
    (0x0900, 0x0DFF, "indic"),
    (0x0E00, 0x0E7F, "thai"),
    (0x1100, 0x11FF, "hangul"),
    (0x1E00, 0x1EFF, "latin"),
    (0x3040, 0x30FF, "kana"),
    (0x3400, 0x9FFF, "han"),
    (0xAC00, 0xD7AF, "hangul"),
)
"""Unicode blocks (Unicode Standard, Blocks.txt) by the script that most of each is; one that shows kana is Japanese."""
_SCRIPT_SAMPLE = 256

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def canary_size(asked: int, expected: int, least: int) -> int:
    """Records of the canary: as many as asked for, but as many as a provider job needs. 0 where nothing that the
    provider would take were left to hold back: the job itself is small enough."""
    size = max(asked, least)
    return size if expected - size >= max(least, 1) else 0


def stratum_of(line: bytes, names: Sequence[str]) -> str:
    """The stratum of an input in JSON: values of the declared fields, size within a factor of two, and script."""
    parts = [f"<{1 << len(line).bit_length()} bytes", script_of(line)]
    if names:
        values = _fields(line)
        parts[:0] = [f"{name}={_shown(bytes(values.get(name, b'')))}" for name in names]
    return ", ".join(parts)


def _shown(value: bytes) -> str:
    text = value.decode()
    return text if len(text) <= _SHOWN_VALUE else text[:_SHOWN_VALUE] + "…"


def script_of(line: bytes) -> str:
    """The script of most letters beyond ASCII, as a hint at the language; `ascii` where there are none."""
    if line.isascii():
        return "ascii"
    counts: dict[str, int] = {}
    seen = 0
    for letter in line.decode():
        if letter < "\x80":
            continue
        seen += 1
        if seen > _SCRIPT_SAMPLE:
            break
        script = _script(ord(letter))
        counts[script] = counts.get(script, 0) + 1
    if counts.get("kana"):
        return "kana"
    return max(sorted(counts), key=lambda name: counts[name])


def _script(code: int) -> str:
    for first, last, name in _SCRIPTS:
        if first <= code <= last:
            return name
    return OTHER


class StratumShare(msgspec.Struct, frozen=True):
    """`records` of the job are in the stratum, `taken` of them in the canary."""

    stratum: str
    records: int
    taken: int


@dataclass
class Sampler:
    """Takes a sample of `size` records over all strata, each by the order of record_ids, which are hashes: the same
    records in any order give the same sample. Keeps at most `size` ids of each stratum."""

    size: int
    _counts: dict[str, int] = field(default_factory=dict)
    _kept: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def add(self, stratum: str, record_id: str) -> None:
        if stratum not in self._counts and len(self._counts) >= MOST_STRATA:
            stratum = OTHER
        self._counts[stratum] = self._counts.get(stratum, 0) + 1
        kept = self._kept.setdefault(stratum, [])
        entry = (-int(record_id, 16), record_id)
        if len(kept) < self.size:
            heapq.heappush(kept, entry)
        elif entry > kept[0]:
            heapq.heapreplace(kept, entry)

    def chosen(self) -> tuple[frozenset[str], tuple[StratumShare, ...]]:
        """Record ids, and how the strata are represented, the largest first."""
        shares = allocate(self._counts, self.size)
        ids: set[str] = set()
        for stratum, count in shares.items():
            ids.update(record_id for _, record_id in sorted(self._kept[stratum], reverse=True)[:count])
        ordered = sorted(self._counts, key=lambda name: (-self._counts[name], name))
        table = tuple(StratumShare(name, self._counts[name], shares.get(name, 0)) for name in ordered)
        return frozenset(ids), table


def allocate(counts: Mapping[str, int], size: int) -> dict[str, int]:
    """How many of each stratum: one at least, so that what is rare is seen; the rest in proportion. With more strata
    than places, the largest and the rarest take turns."""
    order = sorted(counts, key=lambda name: (-counts[name], name))
    if len(order) >= size:
        ends = [order[-1 - place // 2] if place % 2 else order[place // 2] for place in range(len(order))]
        return dict.fromkeys(ends[:size], 1)
    total = sum(counts.values())
    left = min(size, total) - len(order)
    beyond = total - len(order)
    shares = {name: Fraction((counts[name] - 1) * left, beyond or 1) for name in order}
    taken = {name: 1 + int(shares[name]) for name in order}
    rest = min(size, total) - sum(taken.values())
    for name in sorted(order, key=lambda name: (int(shares[name]) - shares[name], name))[:rest]:
        taken[name] += 1
    return taken


class Judgement(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    """Too many were never answered: they are asked again before anything is concluded."""


class CanaryCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of the canary's records: each is in one of the four."""

    accepted: int
    failed: dict[str, int]
    """For good, by class; `in_review` where people decide."""
    unqualified: int
    """Answered, not accepted, and open for another try."""
    unanswered: int
    """Open because the provider did not answer."""

    @property
    def records(self) -> int:
        return self.accepted + sum(self.failed.values()) + self.unqualified + self.unanswered

    @property
    def acceptance(self) -> float:
        return round(self.accepted / self.records, 4) if self.records else 0


def judge(counts: CanaryCounts, min_acceptance: float, *, overdue: bool = False) -> Judgement:
    """By the answers that are there, as soon as those that are not could change nothing. What was answered and not
    accepted counts against the canary, though the job would ask again: it shows what the prompt is worth."""
    needed = Fraction(str(min_acceptance)) * counts.records
    if counts.accepted >= needed:
        return Judgement.PASSED
    if overdue or counts.accepted + counts.unanswered < needed:
        return Judgement.FAILED
    return Judgement.UNDECIDED


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Of the whole job, from the canary's bill. Seconds are those of the canary's provider jobs times the waves of
    shards: providers promise no more than a day for each."""

    tokens: dict[str, int]
    shards: int
    waves: int
    seconds: int
    cost_usd: str | None = None
    """Null where a part of the canary has no price."""


def forecast(
    tokens: Mapping[str, int],
    asked: int,
    *,
    expected: int,
    shards: int,
    max_parallel: int,
    seconds: float,
    nano_usd: int | None = None,
) -> Forecast:
    """`tokens`, `seconds` and `nano_usd` are what `asked` records took."""
    scaled = {kind: round(count * expected / asked) if asked else 0 for kind, count in sorted(tokens.items())}
    rounds = len(waves(shards, max_parallel)) - 1
    # The last wave runs max_parallel at a time; each of the others as a whole.
    last = shards - sum(waves(shards, max_parallel)[:-1]) if shards else 0
    turns = rounds + -(-last // max_parallel)
    cost = nano_usd * expected // asked if nano_usd is not None and asked else None
    return Forecast(tokens=scaled, shards=shards, waves=rounds + 1, seconds=round(turns * seconds), cost_usd=usd(cost))


def waves(shards: int, max_parallel: int) -> list[int]:
    """How many shards each wave has: 1, 4, 16, …, and from `max_parallel` on all that are left."""
    sizes: list[int] = []
    begin, size = 0, 1
    while begin < shards:
        end = wave_end(begin, size, shards, max_parallel)
        sizes.append(end - begin)
        begin, size = end, size * GROWTH
    return sizes or [0]


def wave_end(begin: int, size: int, shards: int, max_parallel: int) -> int:
    return shards if size >= max_parallel else min(begin + size, shards)


def is_broken(counts: Mapping[str, int], judged_classes: Sequence[str], accepted_classes: Sequence[str]) -> bool:
    """Whether fewer than half of the answers of a wave were accepted. What was never answered says nothing."""
    accepted = sum(counts.get(name, 0) for name in accepted_classes)
    judged = accepted + sum(counts.get(name, 0) for name in judged_classes)
    return accepted * 2 < judged


class CanaryReport(msgspec.Struct, frozen=True, kw_only=True):
    """canary.json: the judgement on a canary, and what the whole job would take."""

    canary_version: int = 1
    job_key: str
    attempt: int
    at: float
    judgement: Judgement
    why: str
    records: int
    held: int
    """Records of the job that were not sent yet."""
    counts: CanaryCounts
    acceptance: float
    min_acceptance: float
    approval: str
    tokens: dict[str, int]
    """As billed for the canary, over all its attempts."""
    cost_usd: str | None = None
    """Null where a part of it has no price."""
    forecast: Forecast
    strata: tuple[StratumShare, ...] = ()

    def figures(self) -> dict[str, Any]:
        """For an event and a reason: numbers only."""
        return {
            "records": self.records,
            "accepted": self.counts.accepted,
            "acceptance": self.acceptance,
            "min_acceptance": self.min_acceptance,
            "cost_usd": self.cost_usd,
            "forecast_tokens": self.forecast.tokens,
            "forecast_seconds": self.forecast.seconds,
            "forecast_cost_usd": self.forecast.cost_usd,
        }


def why(counts: CanaryCounts, min_acceptance: float) -> str:
    """`41 of 50 records accepted (82.0 %), 90.0 % needed; 9 unqualified`. Counts only."""
    others = {**counts.failed}
    if counts.unqualified:
        others["unqualified"] = others.get("unqualified", 0) + counts.unqualified
    if counts.unanswered:
        others["unanswered"] = counts.unanswered
    named = ", ".join(f"{count} {name}" for name, count in sorted(others.items(), key=lambda pair: (-pair[1], pair[0])))
    share = f"{counts.accepted} of {counts.records} records accepted ({counts.acceptance:.1%})"
    return f"{share}, {min_acceptance:.1%} needed" + (f"; {named}" if named else "")
