"""The AWS emulator as a process of ours: its environment, start, health and end.

What a Lambda sees locally: the emulator starts each worker with *its own* environment, then the function's variables
from the template on top (the function's win), then AWS_REGION, dummy AWS credentials, AWS_ENDPOINT_URL of the emulator
and the AWS_LAMBDA_* names (ministack 1.5.33, core/lambda_runtime.py, `Worker._spawn`). So a variable of the shell that
started us would reach the functions although AWS would never pass it. Therefore the emulator gets the variables of
`environment()` and nothing else; what a function must be told locally goes into its template (`assembly.py`), where
`get_function_configuration` shows it.

State lives in memory and is saved when SIGTERM ends the process. After a kill only the objects would be left, without
the ledger that explains them; `start` empties such a directory.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.local import processes
from infra.local.launcher import CLEAN_EXIT
from infra.local.loopback import HOST, REGION, answers
from infra.local.processes import Running
from tallybatch.domain.errors import Permanent

ROOT = Path(__file__).resolve().parents[2]
MODULE = "infra.local.launcher"

WAIT_SCALE = 0.05
"""Step Functions waits and retry pauses last this fraction of what the definition says."""

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "SYSTEMROOT")


@dataclass(frozen=True, slots=True)
class Emulator:
    """How to run one emulator. `data_dir` holds its state (if `persist`) and the unpacked functions."""

    port: int
    data_dir: Path
    log: Path
    persist: bool = True
    wait_scale: float = WAIT_SCALE
    with_parent: bool = False
    """End when the starting process ends: for tests."""

    @property
    def endpoint_url(self) -> str:
        return f"http://{HOST}:{self.port}"


def environment(config: Emulator, host: Mapping[str, str] | None = None) -> dict[str, str]:
    """Everything the emulator, and through it every function, sees of `host` (default: our own environment)."""
    source = os.environ if host is None else host
    kept = {name: source[name] for name in _INHERITED if name in source}
    return {
        **kept,
        "TMPDIR": str(config.data_dir / "tmp"),
        "PYTHONUNBUFFERED": "1",
        "BIND_HOST": HOST,
        "GATEWAY_PORT": str(config.port),
        "MINISTACK_HOST": HOST,
        "MINISTACK_REGION": REGION,
        "LAMBDA_EXECUTOR": "local",
        "LAMBDA_ASYNC_RETRY_BASE_SECONDS": str(60 * config.wait_scale),
        "SFN_WAIT_SCALE": str(config.wait_scale),
        "PERSIST_STATE": "1" if config.persist else "0",
        "S3_PERSIST": "1" if config.persist else "0",
        "STATE_DIR": str(config.data_dir / "state"),
        "S3_DATA_DIR": str(config.data_dir / "s3"),
        # No listeners beside the HTTP port, and no look through Docker for containers to remove.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "DOCKER_HOST": f"unix://{config.data_dir / 'no-docker.sock'}",
        # The user's own profiles and instance role must not reach a function.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def start(config: Emulator, *, timeout_s: float = 40) -> tuple[Running, bool]:
    """Start and wait until it answers. Returns the process and whether former state was thrown away because the last
    run was killed. Raises `Permanent` with the end of the log if it does not come up."""
    lost = _drop_halves(config.data_dir)
    for name in ("tmp", "state", "s3"):
        (config.data_dir / name).mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", MODULE, "--data-dir", str(config.data_dir)]
    if config.with_parent:
        command += ["--with-parent", str(os.getpid())]
    running = processes.start(command, env=environment(config), cwd=ROOT, log=config.log)
    deadline = time.monotonic() + timeout_s
    try:
        while not healthy(config.endpoint_url):
            if not running.alive or time.monotonic() > deadline:
                raise Permanent(
                    "the emulator did not come up",
                    where=config.endpoint_url,
                    why=f"the end of {config.log}:\n{processes.tail(config.log)}",
                    do="mend what the log says and run the command again",
                )
            time.sleep(0.1)
    except BaseException:
        processes.stop(running)
        raise
    return running, lost


def healthy(endpoint_url: str) -> bool:
    """Whether an emulator answers at `endpoint_url`."""
    return answers(f"{endpoint_url}/_ministack/health")


def stop(running: Running) -> bool:
    """End it, saving its state. True if it did so in time."""
    return processes.stop(running, grace_s=90)


def strays(data_dir: Path) -> list[Running]:
    """Emulators that run on `data_dir`, whoever started them."""
    return processes.find(MODULE, str(data_dir))


def _drop_halves(data_dir: Path) -> bool:
    used = any((data_dir / name).is_dir() and any((data_dir / name).iterdir()) for name in ("state", "s3"))
    shutil.rmtree(data_dir / "tmp", ignore_errors=True)
    if not used or (data_dir / CLEAN_EXIT).exists():
        return False
    shutil.rmtree(data_dir / "state", ignore_errors=True)
    shutil.rmtree(data_dir / "s3", ignore_errors=True)
    return True
