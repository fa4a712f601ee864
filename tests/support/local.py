"""Starting and sharing the embedded default in tests."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.local import emulator, loopback, stack
from infra.local.stack import LocalStatus
from tests.support.recorder import sitecustomize as recorder


@contextmanager
def ephemeral_emulator(directory: Path) -> Iterator[str]:
    """An emulator on a free port that keeps nothing; yields its endpoint URL."""
    config = emulator.Emulator(
        port=loopback.free_port(),
        data_dir=directory / "data",
        log=directory / "emulator.log",
        persist=False,
        wait_scale=0.01,
        with_parent=True,
    )
    running, _ = emulator.start(config)
    try:
        yield config.endpoint_url
    finally:
        emulator.stop(running)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def calls_dir(state_dir: Path) -> Path:
    """Where the functions of the stack in `state_dir` write down what they ask of AWS."""
    return state_dir.with_suffix(".calls")


@contextmanager
def recording(calls: Path) -> Iterator[None]:
    """An emulator that is started in this block gives its functions the recorder."""
    calls.mkdir(parents=True, exist_ok=True)
    environment = emulator.environment
    more = {"PYTHONPATH": str(Path(recorder.__file__).parent), recorder.DIRECTORY: str(calls)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulator, "environment", lambda config: {**environment(config), **more})
        yield


@contextmanager
def shared_stack(state_dir: Path, *, scenario: str) -> Iterator[LocalStatus]:
    """The local stack in `state_dir`, up for as long as any process is in this block."""
    users = state_dir.with_suffix(".users")
    with locked(state_dir.with_suffix(".lock")), recording(calls_dir(state_dir)):
        _rewrite(users, add=True)
        status = stack.up(state_dir, scenario=scenario)
    try:
        yield status
    finally:
        with locked(state_dir.with_suffix(".lock")):
            if not _rewrite(users, add=False):
                stack.down(state_dir)


def _rewrite(users: Path, *, add: bool) -> list[int]:
    """The pids that use it, after adding or removing ours; those of dead processes are dropped."""
    before: list[int] = json.loads(users.read_text()) if users.exists() else []
    alive = [pid for pid in before if pid != os.getpid() and _exists(pid)]
    now = [*alive, os.getpid()] if add else alive
    users.write_text(json.dumps(now))
    return now


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
