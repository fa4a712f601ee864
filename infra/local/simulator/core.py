"""What all providers share: the clock, the scenario with its fault plan, and the journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from starlette.routing import BaseRoute

from infra.local.simulator.clock import VirtualClock
from infra.local.simulator.faults import Faults
from infra.local.simulator.journal import Journal
from infra.local.simulator.scenario import Scenario
from infra.local.simulator.store import Store
from tallybatch.domain.errors import Permanent


class Core:
    """One per process. Loading a scenario starts its fault counters afresh; jobs that exist keep their plan."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        clock_scale: float = 1.0,
        journal_dir: Path | None = None,
        store: Store | None = None,
    ) -> None:
        self.store = store
        self.clock = VirtualClock(clock_scale)
        self.journal = Journal(journal_dir)
        self.load(scenario)

    @property
    def bedrock_store(self) -> Store:
        """Where Bedrock's input and output are. Raises `Permanent` if the simulator was not told."""
        if self.store is None:
            raise Permanent(
                "the simulator was told no S3 endpoint", where="simulator", do="start it with --s3-endpoint"
            )
        return self.store

    def load(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.faults = Faults(scenario)


class ProviderSimulator(Protocol):
    """One provider. Its routes are mounted under `/<name>`."""

    @property
    def name(self) -> str: ...

    def routes(self) -> list[BaseRoute]: ...

    def reset(self) -> None:
        """Forget every job and file."""

    def jobs(self) -> dict[str, dict[str, Any]]:
        """By job id: state, marker, model, counts and billed tokens, for the journal."""
