"""The small ports in memory: Secrets, Clock, Events, Executions, TaskTokens."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tallybatch.domain.errors import NotFound


@dataclass
class MemorySecrets:
    values: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        if name not in self.values:
            raise NotFound("no such secret", where=f"secret {name}")
        return self.values[name]


@dataclass
class ManualClock:
    """Stands still until it is moved. Unix seconds."""

    at: float = 1_700_000_000.0

    def now(self) -> float:
        return self.at

    def advance(self, seconds: float) -> float:
        self.at += seconds
        return self.at


@dataclass
class MemoryEvents:
    """Keeps what was published, as (kind, detail), after the same trip through JSON as on a bus."""

    published: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def publish(self, kind: str, detail: Mapping[str, Any]) -> None:
        self.published.append((kind, msgspec.json.decode(msgspec.json.encode(detail))))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.published]


@dataclass
class MemoryExecutions:
    started: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Payload by execution name."""
    ended: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, name: str, payload: Mapping[str, Any]) -> bool:
        with self.lock:
            if name in self.started:
                return False
            self.started[name] = msgspec.json.decode(msgspec.json.encode(payload))
            return True

    def running(self, name: str) -> bool:
        with self.lock:
            return name in self.started and name not in self.ended

    def end(self, name: str) -> None:
        """However it ended: done, failed or stopped."""
        with self.lock:
            self.ended.add(name)


@dataclass
class MemoryTaskTokens:
    made: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    """Of tasks that no longer wait."""
    woken: list[str] = field(default_factory=list)

    def wake(self, token: str) -> bool:
        if token not in self.made or token in self.ended:
            return False
        self.woken.append(token)
        return True
