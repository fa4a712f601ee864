"""Files of the user's own machine."""

from __future__ import annotations

from pathlib import Path

from tallybatch.domain.errors import BadInput, NotFound, Problem


def require_file(path: Path) -> None:
    """Raises `NotFound` if there is nothing of that name, `BadInput` if it is not a file."""
    if not path.exists():
        raise NotFound("there is no such file", where=str(path), do="check the path")
    if not path.is_file():
        raise _unreadable(path, "it is not a file")


def read_file(path: Path) -> bytes:
    require_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error


def _unreadable(path: Path, reason: str) -> BadInput:
    return BadInput("the file cannot be read", [Problem(reason, code="unreadable")], where=str(path))
