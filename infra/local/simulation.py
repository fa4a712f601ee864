"""The provider simulator as a process of ours."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

from infra.local import emulator, processes
from infra.local.loopback import HOST, answers
from infra.local.processes import Running
from tallybatch.domain.errors import BadInput, Permanent

MODULE = "infra.local.simulator"

_SCENARIO_REFUSED = 3
"""The simulator's exit code for a scenario that it does not know or cannot read."""


def url(port: int) -> str:
    return f"http://{HOST}:{port}"


def openai_url(port: int) -> str:
    """What OPENAI_BASE_URL is set to."""
    return f"{url(port)}/openai/v1"


def gemini_url(port: int) -> str:
    """What GOOGLE_GEMINI_BASE_URL is set to."""
    return f"{url(port)}/gemini"


def bedrock_url(port: int) -> str:
    """What AWS_ENDPOINT_URL_BEDROCK is set to: of all AWS services, only Bedrock's calls go there."""
    return f"{url(port)}/bedrock"


def scenario_identity(scenario: str) -> tuple[str, str]:
    """What to pass on (a file's absolute path, or the name), and what changes when the scenario does."""
    file = Path(scenario)
    if not file.is_file():
        return scenario, scenario
    path = str(file.resolve())
    return path, f"{path} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def healthy(port: int) -> bool:
    return answers(f"{url(port)}/_sim/health")


def start(
    port: int, scenario: str, journal_dir: Path, log: Path, *, s3_endpoint: str = "", timeout_s: float = 30
) -> Running:
    """Start and wait until it answers. `scenario` is a built-in name or a file, `s3_endpoint`
    where simulated Bedrock finds its files. Raises `BadInput` for a
    scenario that the simulator refuses, `Permanent` with the end of its log for any other failure."""
    journal_dir.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", MODULE, "--port", str(port)]
    command += ["--scenario", scenario, "--journal-dir", str(journal_dir)]
    if s3_endpoint:
        command += ["--s3-endpoint", s3_endpoint]
    config = emulator.Emulator(port, journal_dir, log)
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONUNBUFFERED")
    env = {name: value for name, value in emulator.environment(config).items() if name in kept}
    running = processes.start(command, env=env, cwd=emulator.ROOT, log=log)
    deadline = time.monotonic() + timeout_s
    try:
        while not healthy(port):
            if processes.exit_code(running) == _SCENARIO_REFUSED:
                raise BadInput(processes.tail(log, 1), where=f"--scenario {scenario}")
            if not running.alive or time.monotonic() > deadline:
                raise Permanent(
                    "the provider simulator did not come up",
                    where=url(port),
                    why=f"the end of {log}:\n{processes.tail(log)}",
                    do="mend what the log says and run the command again",
                )
            time.sleep(0.1)
    except BaseException:
        processes.stop(running)
        raise
    return running


def strays(journal_dir: Path) -> list[Running]:
    """Simulators that write to `journal_dir`, whoever started them."""
    return processes.find(MODULE, str(journal_dir))
