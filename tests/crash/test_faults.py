"""Each fault of `poe faults` ends where it must, on each provider that has it."""

from __future__ import annotations

import pytest

from infra.local.simulator.server import SimulatorServer
from tests.crash.fault_list import FAULTS
from tests.support.fault_run import Fault, Stage, scenarios

SCENARIOS = [pytest.param(fault, provider, id=f"{fault.name}-{provider}") for fault, provider in scenarios(FAULTS)]


@pytest.fixture(scope="module")
def stage(simulator: SimulatorServer) -> Stage:
    return Stage(simulator)


def test_given_the_list_when_read_then_no_name_stands_for_two_faults() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 40


@pytest.mark.parametrize(("fault", "provider"), SCENARIOS)
def test_given_a_fault_when_the_job_ends_then_it_ends_where_it_must(stage: Stage, fault: Fault, provider: str) -> None:
    assert stage.run(fault, provider).wrong == ()
