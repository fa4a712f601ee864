"""One simulator per worker, whose clock stands still until a test moves it; each test begins with an empty one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.simulator.server import SimulatorServer


@pytest.fixture(scope="session")
def simulator() -> Iterator[SimulatorServer]:
    with SimulatorServer("calm", clock_scale=0) as running:
        yield running
