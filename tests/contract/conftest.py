"""A simulator whose clock stands still until a test moves it, with the official SDK as its client, and every ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import openai
import pytest

from infra.local.simulator.client import SimulatorControl
from infra.local.simulator.server import SimulatorServer
from tallybatch.adapters.dynamodb_ledger import DynamoDBLedger
from tallybatch.ports import Ledger
from tests.support.emulated import emulated_at
from tests.support.memory_ledger import MemoryLedger


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


@pytest.fixture(scope="module")
def new_dynamodb(emulator: str) -> Callable[[], Ledger]:
    """Each call gives a ledger on an empty table of its own."""
    emulated = emulated_at(emulator)
    return lambda: DynamoDBLedger(emulated.shared_dynamodb, emulated.new_table())


@pytest.fixture(params=["memory", "emulator"])
def ledger(request: pytest.FixtureRequest) -> Ledger:
    """What the contract suites of the ledger run on: the in-memory twin, and DynamoDBLedger on the emulator."""
    if request.param == "memory":
        return MemoryLedger()
    made: Ledger = request.getfixturevalue("new_dynamodb")()
    return made
