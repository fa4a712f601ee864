"""Starting, recognising and ending the processes of the local stack, also those that an earlier command left behind."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_started: dict[int, subprocess.Popen[bytes]] = {}
"""Our own children: they must be waited for, or they stay as zombies of a long-lived caller such as a test run."""


@dataclass(frozen=True, slots=True)
class Running:
    """A process: its pid and, because pids are used again, its start time in Unix seconds."""

    pid: int
    started: float

    @property
    def process(self) -> psutil.Process | None:
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.started) < 0.1 and found.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return found if same else None

    @property
    def alive(self) -> bool:
        return self.process is not None


def start(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Running:
    """Start `command` in its own session, so that a Ctrl-C in the terminal misses it; output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        child = subprocess.Popen(
            list(command),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _started[child.pid] = child
    return Running(child.pid, psutil.Process(child.pid).create_time())


def stop(running: Running, *, grace_s: float = 20) -> bool:
    """Ask the process to end, wait `grace_s` seconds, then kill it; its descendants never outlive it.
    True if it ended by itself in time, so that what it saves at exit is saved."""
    process = running.process
    if process is None:
        _reap(running.pid)
        return False
    try:
        family = process.children(recursive=True)
        process.terminate()
    except psutil.NoSuchProcess:
        family = []
    _, stubborn = psutil.wait_procs([process], timeout=grace_s)
    _end([*stubborn, *family])
    _reap(running.pid)
    return not stubborn


def exit_code(running: Running) -> int | None:
    """How a process that we started ourselves ended; None while it runs, or if another command started it."""
    child = _started.get(running.pid)
    return None if child is None else child.poll()


def find(*words: str) -> list[Running]:
    """Processes of this user whose command line holds every word as one whole argument."""
    found = []
    for process in psutil.process_iter(["cmdline", "create_time", "status"]):
        info = process.info
        if info["status"] != psutil.STATUS_ZOMBIE and set(words) <= set(info["cmdline"] or ()):
            found.append(Running(process.pid, info["create_time"]))
    return found


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error message; "" if there is none."""
    if not log.is_file():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _reap(pid: int) -> None:
    child = _started.pop(pid, None)
    if child is not None:
        child.wait()


def _end(family: Sequence[psutil.Process]) -> None:
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(list(family), timeout=5)
