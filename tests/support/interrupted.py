"""Ports that die at a chosen call: before it is carried out, or after it was and before anybody hears of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from tests.support.pipeline import Pipeline

T = TypeVar("T")
Mode = Literal["before", "after"]

PURE = frozenset({"uri"})
WRITES = frozenset(
    {"put_once", "put", "put_if_match", "copy", "retain"}
    | {"put_job", "put_submission", "claim_records", "take_over_records", "accept_records", "pin"}
    | {"enter_line", "keep_place", "leave_line", "move_quota"}
    | {"upload", "create", "cancel", "delete_file", "answer", "publish", "start"}
)
"""Dying after a read is dying before the next call."""


class Killed(Exception):
    """The function died here. No code of ours knows this error."""


@dataclass
class Interrupter:
    """Counts the calls of all ports while armed; kills the one at `point`."""

    point: tuple[int, Mode] = (-1, "before")
    calls: list[str] = field(default_factory=list)
    """Every call so far, as `Port.method`."""
    struck: str = ""
    _armed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def armed(self) -> Iterator[None]:
        self._armed = True
        try:
            yield
        finally:
            self._armed = False

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if not self._armed:
                return call(*args, **kwargs)
            with self._lock:
                number = len(self.calls)
                self.calls.append(name)
            if (number, "before") == self.point:
                self._strike(name)
            reply = call(*args, **kwargs)
            if (number, "after") == self.point:
                self._strike(name)
            return reply

        return counted

    def _strike(self, name: str) -> None:
        self.struck = name
        raise Killed(f"at {name}")

    def points(self) -> list[tuple[int, Mode]]:
        """Every place at which a run with these calls can die."""
        before: list[tuple[int, Mode]] = [(number, "before") for number in range(len(self.calls))]
        after: list[tuple[int, Mode]] = [
            (number, "after") for number, name in enumerate(self.calls) if name.split(".")[1] in WRITES
        ]
        return sorted(before + after)


class Port:
    """A port whose calls pass an interrupter."""

    def __init__(self, inner: Any, interrupter: Interrupter) -> None:
        self._inner = inner
        self._interrupter = interrupter

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value) or name in PURE:
            return value
        return self._interrupter.around(f"{type(self._inner).__name__}.{name}", value)


class InterruptedPipeline(Pipeline):
    """A pipeline whose tasks can die at any call that leaves them; the workflow itself does not."""

    def interrupt(self, interrupter: Interrupter) -> None:
        self.interrupter = interrupter
        for name in ("objects", "ledger", "provider", "on_demand", "events", "executions"):
            setattr(self, name, cast("Any", Port(getattr(self, name), interrupter)))

    def port(self, inner: Any) -> Any:
        return Port(inner, self.interrupter)

    def task(self, name: str, call: Callable[[], T]) -> T:
        def armed() -> T:
            with self.interrupter.armed():
                return call()

        return super().task(name, armed)
