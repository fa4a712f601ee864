"""The functions' deployment packages, made without Docker: locked wheels for arm64 beside our source.

Two packages. `core` (no extra) is for functions that call no provider; `core` plus the extras `gemini` and `openai` is
for SubmitShard, PollShard and CollectShard, so that nothing else carries, or could import, a provider's SDK. boto3 is
in both: the version that the lock pins and the tests ran with, not whichever the Lambda runtime has that week.

A package is named by the hash of all that shapes it (uv.lock, our source, this file). It is built once per hash under
`.build/`, and the same inputs give the same asset hash on every machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE_DIR: Final = ROOT / "functions"
BUILD_DIR: Final = ROOT / ".build"
PYTHON_VERSION: Final = "3.13"
PLATFORM: Final = "aarch64-manylinux_2_28"
"""The python3.13 runtime runs on Amazon Linux 2023, which has glibc 2.34 (Lambda Developer Guide, "Runtimes")."""
UNZIPPED_LIMIT_BYTES: Final = 250 * 1024 * 1024
"""The most that a function's package may hold (Lambda quotas: "Deployment package size, unzipped, with layers")."""
NOT_SHIPPED: Final = ("tallybatch/cli",)
"""Below `functions/`: for the operator's machine only."""

_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
_INSTALLER_NOTES: Final = frozenset(
    {"RECORD", "INSTALLER", "REQUESTED", "uv_cache.json", "uv_build.json", "direct_url.json"}
)


class BundlingError(Exception):
    """A package cannot be built; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Package:
    """`path` is a zip file or a directory; `hash` names its content."""

    path: Path
    hash: str


def source_package(source_dir: Path = SOURCE_DIR) -> Package:
    """Our source alone, for the embedded default, whose functions run in an environment that has the dependencies."""
    return Package(source_dir, _digest(_source_parts(source_dir)))


def package(*extras: str, build_dir: Path = BUILD_DIR, source_dir: Path = SOURCE_DIR) -> Package:
    """The zip of our source and its locked dependencies, those of the named extras included.

    Raises `BundlingError` if uv is missing, an install fails, or the content is too large for Lambda.
    """
    lock_digest = _digest([*_lock_parts(), *(extra.encode() for extra in sorted(extras))])
    digest = _digest([lock_digest.encode(), *_source_parts(source_dir)])
    name = "-".join(["core", *sorted(extras)])
    target = build_dir / f"{name}-{digest[:16]}.zip"
    if not target.is_file():
        dependencies = build_dir / f"dependencies-{name}-{lock_digest[:16]}"
        if not dependencies.is_dir():
            with _staged(dependencies) as staging:
                _install(staging, extras)
            _drop_outdated(dependencies)
        with _staged(target) as staging:
            _write_zip(staging, dependencies, source_dir)
        _drop_outdated(target)
    return Package(target, digest)


def source_files(source_dir: Path = SOURCE_DIR) -> list[Path]:
    """What of `functions/` is shipped, in a fixed order."""
    left_out = tuple(source_dir / part for part in NOT_SHIPPED)
    return [path for path in _files(source_dir) if not any(path.is_relative_to(part) for part in left_out)]


def _files(directory: Path) -> list[Path]:
    found = (path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(found, key=lambda path: path.relative_to(directory).as_posix())


def _lock_parts() -> list[bytes]:
    return [
        (ROOT / "uv.lock").read_bytes(),
        Path(__file__).read_bytes(),
        f"{PLATFORM} {PYTHON_VERSION} {project_version()}".encode(),
    ]


def _source_parts(source_dir: Path) -> Iterator[bytes]:
    for path in source_files(source_dir):
        yield path.relative_to(source_dir).as_posix().encode()
        yield path.read_bytes()


def _digest(parts: Iterable[bytes]) -> str:
    """SHA-256 over parts of which each is hashed first, so that no boundary between them can shift."""
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def project_version() -> str:
    """The version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """A path beside `target` that takes its place when the block ends well. Who comes second finds it done."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".staging-") as directory:
        staging = Path(directory) / target.name
        yield staging
        try:
            staging.replace(target)
        except OSError:
            if not target.exists():
                raise


_AT_HOME = ("typer", "rich", "prompt-toolkit", "pygments", "markdown-it-py", "mdurl", "wcwidth", "shellingham")
"""What libraries ask for on behalf of their own command lines; no function loads it."""


def _install(target: Path, extras: Sequence[str]) -> None:
    """Install what uv.lock pins for the target platform, wheels only, each checked against its hash."""
    wanted = [argument for extra in sorted(extras) for argument in ("--extra", extra)]
    left_out = [argument for name in _AT_HOME for argument in ("--no-emit-package", name)]
    requirements = _uv("export", "--frozen", "--no-dev", "--no-emit-project", "--quiet", *left_out, *wanted)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "requirements.txt"
        file.write_text(requirements, encoding="utf-8")
        _uv(
            *("pip", "install", "--quiet", "--require-hashes", "--no-deps", "--requirements", str(file)),
            *("--target", str(target), "--link-mode", "copy"),
            *("--python-platform", PLATFORM, "--python-version", PYTHON_VERSION, "--only-binary", ":all:"),
        )
    shutil.rmtree(target / "bin", ignore_errors=True)
    for path in _files(target):
        if (path.name in _INSTALLER_NOTES and path.parent.suffix == ".dist-info") or path.name == ".lock":
            path.unlink()


def _uv(*arguments: str) -> str:
    program = os.environ.get("UV") or shutil.which("uv")
    if program is None:
        raise BundlingError("uv is not on the path; install it (https://docs.astral.sh/uv/) or run under `uv run`")
    plain = [program, "--color", "never"]
    command = [*plain, "--project", str(ROOT), *arguments] if arguments[0] == "export" else [*plain, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise BundlingError(f"uv {arguments[0]} failed with code {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def _write_zip(target: Path, dependencies: Path, source_dir: Path) -> None:
    entries = {path.relative_to(dependencies).as_posix(): path for path in _files(dependencies)}
    entries |= {path.relative_to(source_dir).as_posix(): path for path in source_files(source_dir)}
    size = sum(path.stat().st_size for path in entries.values())
    if size > UNZIPPED_LIMIT_BYTES:
        raise BundlingError(f"{target.name}: {size:,} bytes unzipped, Lambda takes {UNZIPPED_LIMIT_BYTES:,}; ship less")
    version = project_version()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(entries.items()):
            archive.writestr(_entry(name), path.read_bytes())
        metadata = f"Metadata-Version: 2.1\nName: tallybatch\nVersion: {version}\n"
        archive.writestr(_entry(f"tallybatch-{version}.dist-info/METADATA"), metadata)


def _drop_outdated(current: Path) -> None:
    """Remove what has the same name and another hash: each change of the source would leave some 30 MB behind."""
    name = current.stem.rpartition("-")[0]
    for path in current.parent.glob(f"{name}-*{current.suffix}"):
        if path == current or path.stem.rpartition("-")[0] != name:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=_EARLIEST)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
