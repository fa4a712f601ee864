"""A simulator whose clock stands still until a test moves it, and the official SDK as its client."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from infra.local.simulator.client import SimulatorControl
from infra.local.simulator.server import SimulatorServer


@pytest.fixture(scope="session")
def simulator() -> Iterator[SimulatorServer]:
    with SimulatorServer("calm", clock_scale=0) as server:
        yield server


@pytest.fixture(scope="session")
def _client(simulator: SimulatorServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="test-key", base_url=simulator.openai_base_url, max_retries=0) as client:
        yield client


@pytest.fixture
def control(simulator: SimulatorServer) -> SimulatorControl:
    simulator.control.set_scenario("calm")
    simulator.control.reset()
    return simulator.control


@pytest.fixture
def client(_client: openai.OpenAI, control: SimulatorControl) -> openai.OpenAI:
    return _client
