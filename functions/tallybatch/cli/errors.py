"""How a command ends: exit codes, and errors as people and programs read them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from tallybatch.domain import errors


class ExitCode(IntEnum):
    DONE = 0
    NOT_COMPLETED = 1
    USAGE = 2
    REFUSED_INPUT = 3
    NOT_FOUND = 4
    REFUSED_BY_OTHERS = 5
    INTERRUPTED = 130


class Ambiguous(errors.TallybatchError):
    """A prefix that fits several jobs; `candidates` are some of their keys."""

    def __init__(self, prefix: str, candidates: Sequence[str]) -> None:
        self.candidates = tuple(candidates)
        super().__init__(
            f"{prefix!r} is the beginning of several jobs",
            why="candidates: " + ", ".join(self.candidates),
            do="give more characters of the one that is meant",
        )


_CODES: tuple[tuple[type[Exception], ExitCode], ...] = (
    (Ambiguous, ExitCode.USAGE),
    (errors.BadInput, ExitCode.REFUSED_INPUT),
    (errors.Conflict, ExitCode.REFUSED_INPUT),
    (errors.NotFound, ExitCode.NOT_FOUND),
    (errors.NotClosed, ExitCode.NOT_COMPLETED),
    (errors.ObjectDamaged, ExitCode.NOT_COMPLETED),
    (errors.TallybatchError, ExitCode.REFUSED_BY_OTHERS),
    (ClientError, ExitCode.REFUSED_BY_OTHERS),
    (BotoCoreError, ExitCode.REFUSED_BY_OTHERS),
)


def exit_code(error: Exception) -> ExitCode:
    """The first row that fits; anything else is a fault of ours, and the job certainly did not complete."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.NOT_COMPLETED)


def explained(error: Exception) -> errors.TallybatchError:
    """The error itself if it is one of ours, else what it means and what to do about it."""
    if isinstance(error, errors.TallybatchError):
        return error
    if isinstance(error, NoCredentialsError):
        return errors.Permanent(
            "there are no AWS credentials",
            do="set AWS_PROFILE or log in; or start the local stack with `tallybatch local up`",
        )
    if isinstance(error, NoRegionError):
        return errors.Permanent("no AWS region is set", do="set AWS_REGION")
    if isinstance(error, ClientError):
        operation = error.operation_name
        return errors.Permanent("AWS refused the call", where=operation, why=error.response["Error"].get("Message", ""))
    if isinstance(error, BotoCoreError):
        return errors.Retryable("AWS could not be asked", why=str(error), do="check the endpoint, region and network")
    return errors.Permanent(
        f"internal error: {type(error).__name__}: {error}",
        do="run it again with TALLYBATCH_DEBUG=1 for the stack trace, and report it",
    )


def as_document(error: Exception) -> dict[str, Any]:
    """`{"error": {"type", "message", "what", "where", "why", "do"}}`, with `problems` or `candidates` where there are
    any."""
    told = explained(error)
    document: dict[str, Any] = {
        "type": type(error).__name__,
        "message": str(told),
        "what": told.what,
        "where": told.where,
        "why": told.why,
        "do": told.do,
    }
    if isinstance(told, errors.BadInput):
        document["problems"] = [
            {"line": problem.line, "key": problem.key, "code": problem.code, "reason": problem.reason}
            for problem in told.problems
        ]
    if isinstance(told, Ambiguous):
        document["candidates"] = list(told.candidates)
    return {"error": document}


def as_lines(error: Exception) -> list[str]:
    """For stderr: each problem of an input as `file:line: key: reason`, which editors can jump to."""
    told = explained(error)
    if isinstance(told, errors.BadInput) and told.problems:
        lines = [f"error: {told.what}"]
        for problem in told.problems:
            place = ":".join(str(part) for part in (told.where, problem.line) if part)
            lines.append("  " + ": ".join(part for part in (place, problem.key, problem.reason) if part))
    else:
        lines = ["error: " + (f"{told.where}: {told.what}" if told.where else told.what)]
        if told.why:
            lines.append(f"  why: {told.why}")
    if told.do:
        lines.append(f"  do: {told.do}")
    return lines
