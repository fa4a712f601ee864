"""What the providers were really asked to do, and what they billed: the evidence that tests and the demo check."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from infra.local.simulator.meter import Meter

MARKER_KEY = "tallybatch_submission"
"""The metadata key under which a client puts the mark of its submission."""


@dataclass(slots=True)
class Tokens:
    """Billed tokens. `input` includes `cached_input` and `cache_write`, `output` includes `reasoning`, as OpenAI counts
    them; `nano_usd` is what they cost."""

    input: int = 0
    cached_input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_write: int = 0
    nano_usd: int = 0

    def add(self, other: Tokens) -> None:
        self.input += other.input
        self.cached_input += other.cached_input
        self.output += other.output
        self.reasoning += other.reasoning
        self.cache_write += other.cache_write
        self.nano_usd += other.nano_usd

    def counts(self) -> dict[str, int]:
        """Without the money; `cache_write` only where there is any."""
        counted = asdict(self)
        del counted["nano_usd"]
        return counted if self.cache_write else {kind: n for kind, n in counted.items() if kind != "cache_write"}


class Journal:
    """In memory, and as JSONL in `<directory>/<provider>.jsonl` when a directory is given."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        self.clear()

    def clear(self) -> None:
        """Forget what is in memory; the files are an archive and stay."""
        self.entries: dict[str, list[dict[str, Any]]] = {}
        self.jobs_per_marker: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.tokens = Tokens()
        self.meter = Meter()
        self.tokens_per_marker: dict[str, Tokens] = {}
        self.tokens_per_lane = {"batch": Tokens(), "on_demand": Tokens()}
        """By price class: synchronous calls cost the full price."""

    def record(self, provider: str, kind: str, at: float, **fields: Any) -> None:
        """Append an event of a kind such as `creates`, `uploads`, `cancels`; `at` is virtual Unix seconds."""
        entry = {"provider": provider, "at": round(at, 3), **fields}
        self.entries.setdefault(kind, []).append(entry)
        self._write(provider, {"kind": kind, **entry})

    def created(self, provider: str, at: float, *, job_id: str, marker: str, **fields: Any) -> None:
        """A job exists at the provider, whether or not the client heard of it."""
        if marker:
            self.jobs_per_marker[marker] += 1
        self.record(provider, "creates", at, job_id=job_id, marker=marker, **fields)

    def billed(self, provider: str, at: float, *, job_id: str, marker: str, tokens: Tokens) -> None:
        """The final bill of a job (or of one synchronous call, with an empty `job_id`)."""
        self.tokens.add(tokens)
        lane = "batch" if job_id else "on_demand"
        self.tokens_per_marker.setdefault(marker, Tokens()).add(tokens)
        self.tokens_per_lane[lane].add(tokens)
        told = {"lane": lane, "tokens": tokens.counts(), "nano_usd": tokens.nano_usd}
        self.record(provider, "bills", at, job_id=job_id, marker=marker, **told)

    def summary(self) -> dict[str, Any]:
        """The JSON of `GET /_sim/journal`, without the providers' own job tables."""
        kinds = ("creates", "resends", "uploads", "cancels", "deletes", "bills", "finished")
        return {
            **{kind: self.entries.get(kind, []) for kind in kinds},
            "jobs_per_marker": dict(self.jobs_per_marker),
            "tokens_billed": self.tokens.counts(),
            "tokens_per_marker": {marker: tokens.counts() for marker, tokens in self.tokens_per_marker.items()},
            "tokens_per_lane": {lane: tokens.counts() for lane, tokens in self.tokens_per_lane.items()},
            "billed_nano_usd": self.tokens.nano_usd,
            "billed_nano_usd_per_marker": {marker: told.nano_usd for marker, told in self.tokens_per_marker.items()},
            "quotas": self.meter.summary(),
            "calls": dict(self.calls),
            "faults": dict(self.faults),
        }

    def _write(self, provider: str, entry: dict[str, Any]) -> None:
        if self._directory is not None:
            with (self._directory / f"{provider}.jsonl").open("ab") as file:
                file.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))
