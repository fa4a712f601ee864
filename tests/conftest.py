"""Fixtures that several kinds of tests share: an emulator per worker, and one whole local stack for all of them.

The local stack is imported by the fixtures that need it: a unit test does not wait for boto3.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from infra.local.stack import LocalStatus


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Endpoint URL of an empty AWS emulator of this worker. Credentials test/test, region us-east-1; waits at 1 %."""
    from tests.support.local import ephemeral_emulator

    with ephemeral_emulator(tmp_path_factory.mktemp("emulator")) as endpoint_url:
        yield endpoint_url


@pytest.fixture(scope="session")
def local_state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared local stack keeps its state: the same directory for all workers of this run."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "local-stack"


@pytest.fixture(scope="session")
def local_stack(local_state_dir: Path) -> Iterator[LocalStatus]:
    """The whole embedded default, up with the simulator's scenario `calm`, shared by all workers: tests tell their
    work apart by tenant. The last worker that used it takes it down."""
    from tests.support.local import shared_stack

    with shared_stack(local_state_dir, scenario="calm") as status:
        yield status
