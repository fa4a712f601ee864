"""Synthesises the stack once per state of its sources, so that a second `up` does not wait for the CDK."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from infra.local import processes
from infra.local.emulator import ROOT
from tallybatch.domain.errors import Permanent

SOURCES = ("infra", "statemachines", "functions")
_STEERING = ("CDK_OUTDIR", "CDK_CONTEXT_JSON", "CDK_DEFAULT_ACCOUNT", "CDK_DEFAULT_REGION", "TALLYBATCH_STACK")
"""Variables that `infra.app` obeys; a shell prepared for an AWS account must not change what is deployed here."""


def sources_digest(root: Path = ROOT) -> str:
    """Hex SHA-256 over the paths and bytes of all that the assembly is made from."""
    digest = hashlib.sha256(sys.version.encode())
    for path in _files(root):
        body = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(body)}\0".encode())
        digest.update(body)
    return digest.hexdigest()


def synthesise(cache: Path, log: Path, report: Callable[[str], None]) -> Path:
    """The directory of the cloud assembly for the present sources. Raises `Permanent` with the end of the log."""
    target = cache / sources_digest()[:32]
    if target.is_dir():
        return target
    report("synthesising the stack (only after a change of its sources)")
    building = cache / f"building-{os.getpid()}"
    shutil.rmtree(cache, ignore_errors=True)
    building.mkdir(parents=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        result = subprocess.run(
            [sys.executable, "-m", "infra.app", "--context", "local=true", "--output", str(building)],
            env={name: value for name, value in os.environ.items() if name not in _STEERING},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if result.returncode != 0:
        raise Permanent(
            "the stack could not be synthesised",
            where=f"exit code {result.returncode}",
            why=f"the end of {log}:\n{processes.tail(log)}",
            do="mend the stack in infra/ and run the command again",
        )
    building.rename(target)
    return target


def _files(root: Path) -> Iterator[Path]:
    yield root / "uv.lock"
    for name in SOURCES:
        for path in sorted((root / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield path
