"""One simulator per worker, whose clock stands still until a test moves it; each test begins with an empty one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.simulator.server import SimulatorServer
from tests.support.pipeline import Pipeline


@pytest.fixture(scope="session")
def simulator_of_the_worker() -> Iterator[SimulatorServer]:
    with SimulatorServer("calm", clock_scale=0) as simulator:
        yield simulator


@pytest.fixture
def simulator(simulator_of_the_worker: SimulatorServer) -> SimulatorServer:
    simulator_of_the_worker.control.set_scenario("calm")
    simulator_of_the_worker.control.reset()
    return simulator_of_the_worker


@pytest.fixture
def pipeline(simulator: SimulatorServer) -> Pipeline:
    return Pipeline(simulator)
