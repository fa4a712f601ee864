"""The port Clock on the machine's own time."""

from __future__ import annotations

import time


class SystemClock:
    def now(self) -> float:
        """Unix seconds."""
        return time.time()
