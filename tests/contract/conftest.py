"""An emulator for the contract suites."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Endpoint URL of an empty AWS emulator of this worker. Credentials test/test, region us-east-1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = tmp_path_factory.mktemp("emulator")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "LAMBDA_EXECUTOR": "local",
        "SFN_WAIT_SCALE": "0.01",
    }
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ministack"], env=environment, cwd=home, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        give_up_at = time.monotonic() + 40
        while not _listens(port):
            assert process.poll() is None, (home / "log").read_text()[-2000:]
            assert time.monotonic() < give_up_at, "the emulator did not come up in 40 s"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
