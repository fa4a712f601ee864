"""An operator at a stack in memory, with the provider simulated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.simulator.server import SimulatorServer
from tests.support.operating import Operator
from tests.support.pipeline import Pipeline


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorServer]:
    with SimulatorServer("calm") as server:
        yield server


@pytest.fixture
def operator(simulator: SimulatorServer) -> Operator:
    simulator.control.reset()
    return Operator(Pipeline(simulator))
