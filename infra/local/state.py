"""What the local stack remembers between two commands, in `.tallybatch/`: which processes, which ports, which stack."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from infra.local.processes import Running
from tallybatch.domain.errors import BadInput, Permanent


@dataclass(slots=True)
class State:
    """A process that is None is not running; its port is kept, so that URLs stay the same after a restart."""

    emulator: Running | None = None
    emulator_port: int | None = None
    wait_scale: float = 0
    simulator: Running | None = None
    simulator_port: int | None = None
    scenario: str = ""
    """The built-in name, or path and digest of the file."""
    provider_urls: dict[str, str] = field(default_factory=dict)
    stack: str = ""


@dataclass(frozen=True, slots=True)
class StateDir:
    root: Path

    @property
    def file(self) -> Path:
        return self.root / "state.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def emulator(self) -> Path:
        return self.root / "emulator"

    @property
    def journal(self) -> Path:
        return self.root / "simulator"

    @property
    def assemblies(self) -> Path:
        return self.root / "assemblies"

    def make(self) -> None:
        """Readable by its owner only: the emulator keeps the secrets it is given as plain text. Raises `BadInput` for a
        place where it cannot be."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            why = error.strerror or str(error)
            do = "name a folder that you may write to with --state-dir"
            raise BadInput(f"the state directory cannot be made ({why})", where=str(self.root), do=do) from error

    def load(self) -> State:
        """The remembered state; an empty one if there is none, or if the file is damaged."""
        try:
            stored = json.loads(self.file.read_bytes())
            for name in ("emulator", "simulator"):
                if stored.get(name) is not None:
                    stored[name] = Running(**stored[name])
            return State(**stored)
        except (OSError, ValueError, TypeError):
            return State()

    def save(self, state: State) -> None:
        self.make()
        written = self.file.with_suffix(".new")
        written.write_text(json.dumps(asdict(state), indent=1))
        written.replace(self.file)

    @contextmanager
    def lock(self, *, timeout_s: float = 300) -> Iterator[None]:
        """One command at a time; released by the system when its holder dies. Raises `Permanent` after the timeout."""
        self.make()
        with (self.root / "lock").open("w") as handle:
            deadline = time.monotonic() + timeout_s
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise Permanent(
                            "another command works on the local stack",
                            where=str(self.root),
                            do="wait for it, or end it",
                        ) from None
                    time.sleep(0.2)
            handle.write(str(os.getpid()))
            handle.flush()
            yield
