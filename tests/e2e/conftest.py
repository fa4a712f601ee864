"""The deployed line for tests. They share one stack and its one simulator, so all of them run in the group `e2e`."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.local.stack import LocalStatus
from tests.support.deployed import Deployed

QUICK = {"durations": {"validating": 0.1, "in_progress": 0.2, "finalizing": 0.1}}
"""Jobs at the provider take less than the first pause before a poll."""

Faults = Callable[..., None]


LAST = "test_called_privileges.py"
"""Looks at what the functions did in all other tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name == LAST)


@pytest.fixture(scope="session")
def line(local_stack: LocalStatus, local_state_dir: Path) -> Iterator[Deployed]:
    deployed = Deployed(local_stack)
    with local_state_dir.with_suffix(".one-worker").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.fail(
                "two workers change the one simulator's scenario: run with --dist loadgroup, which keeps e2e whole"
            )
        load_scenario(deployed)
        yield deployed


@pytest.fixture
def faults(line: Deployed) -> Iterator[Faults]:
    """`faults(records=[...], calls=[...])` replaces the scenario for one test; counters of occurrences begin anew."""
    yield lambda **keys: load_scenario(line, **keys)
    load_scenario(line)


def load_scenario(line: Deployed, **keys: Any) -> None:
    """Without `keys`: nothing goes wrong."""
    line.simulator.set_scenario_text(json.dumps({"name": "e2e", **QUICK, **keys}))
