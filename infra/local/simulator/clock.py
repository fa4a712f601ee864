"""Virtual time: Unix seconds that run at a chosen speed, can be moved forward, and fire what is due."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

Action = Callable[[float], None]


class VirtualClock:
    """Starts at the real time. `scale` is virtual seconds per real second; 0 stands still until `advance`."""

    def __init__(
        self,
        scale: float = 1.0,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        if scale < 0:
            raise ValueError(f"clock scale is {scale}: it must be 0 or more")
        self.scale = scale
        self._monotonic = monotonic
        self._unix_time = unix_time
        self.reset()

    def reset(self) -> None:
        """Back to the real time; forgets what was planned."""
        self._start = self._monotonic()
        self._epoch = self._unix_time()
        self._offset_s = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._sequence = itertools.count()

    def now(self) -> float:
        return self._epoch + self._offset_s + (self._monotonic() - self._start) * self.scale

    def call_at(self, moment: float, action: Action) -> None:
        """`action(moment)` runs in the first `run_due` at or after `moment`; ties run in the order of planning."""
        heapq.heappush(self._due, (moment, next(self._sequence), action))

    def run_due(self) -> None:
        """Fire everything that is due, in order of its own time, including what those actions plan themselves."""
        now = self.now()
        while self._due and self._due[0][0] <= now:
            moment, _, action = heapq.heappop(self._due)
            action(moment)

    def advance(self, seconds: float) -> None:
        """Jump forward. Actions in between see the moment for which they were planned."""
        if seconds < 0:
            raise ValueError(f"cannot advance by {seconds} s: time only moves forward")
        self._offset_s += seconds
        self.run_due()
