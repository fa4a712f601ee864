"""Typed errors, split by who must act: the pipeline (retry), the operator, or the author of the input.

Step Functions matches `ErrorEquals` by class name, so each name below is part of the workflow's contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class TallybatchError(Exception):
    """Base of every error we raise: what happened, where, why, and what to do about it."""

    def __init__(self, what: str, *, where: str = "", why: str = "", do: str = "") -> None:
        self.what = what
        self.where = where
        self.why = why
        self.do = do
        parts = [what if not where else f"{where}: {what}", why, do]
        super().__init__(". ".join(part.rstrip(".") for part in parts if part))


class Retryable(TallybatchError):
    """Nothing is wrong with the request; the same call may succeed later."""


class Permanent(TallybatchError):
    """The same call will fail again; an operator has to change something."""


class Conflict(TallybatchError):
    """The same identity with other content: two truths for one name."""


class ProviderUnavailable(Retryable):
    """The provider did not answer a call that is safe to repeat."""


class CreateUnknown(Retryable):
    """A create call was sent and no trustworthy answer came back: the job may or may not exist."""


class AnswerUnknown(Retryable):
    """A synchronous call was sent and no answer came that counts: it may have been carried out, and billed. `reply` is
    the result line of an answer that says no more than that it failed, b"" if there was none."""

    def __init__(self, what: str, *, reply: bytes = b"", where: str = "", why: str = "") -> None:
        super().__init__(what, where=where, why=why, do="the call is noted as one that may have been paid for")
        self.reply = reply


class QuotaRefused(Retryable):
    """The provider refused for lack of quota; nothing was created. `retry_after_s` is its own advice, in seconds."""

    def __init__(self, what: str, *, retry_after_s: float | None = None, where: str = "", why: str = "") -> None:
        super().__init__(what, where=where, why=why, do="the shard waits and tries again; no attempt is used up")
        self.retry_after_s = retry_after_s


class LedgerBusy(Retryable):
    """A conditional write kept losing its race, or the table kept throttling."""


class ProviderRefused(Permanent):
    """The provider answered that it will not do this, and that nothing was created. `account`: the key, its rights or
    its bill was refused, whatever the request."""

    def __init__(self, what: str, *, account: bool = False, where: str = "", why: str = "", do: str = "") -> None:
        super().__init__(what, where=where, why=why, do=do)
        self.account = account


class ResultsGone(Permanent):
    """The provider no longer has a job or a result file."""


class NotClosed(Permanent):
    """Publishing was asked for a job whose sets do not close."""


class RolloutStopped(Permanent):
    """What was tried first was not good enough to go on with the rest."""


class ApprovalRejected(Permanent):
    """A person looked at the canary and said no."""


class ApprovalExpired(Permanent):
    """Nobody approved the canary in time."""


class NotFound(Permanent):
    """A named job, spec or object does not exist."""


class ObjectDamaged(Permanent):
    """A stored object's bytes do not have the hash under which they were written."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason to refuse an input or a spec. `line` is 1-based; 0 means the file as a whole."""

    reason: str
    line: int = 0
    key: str = ""
    code: str = "invalid"

    def __str__(self) -> str:
        place = [f"line {self.line}"] if self.line else []
        if self.key:
            place.append(self.key)
        return ": ".join([*place, self.reason])


class BadInput(TallybatchError):
    """An input file or a spec is refused; `problems` names each bad line and its reason."""

    def __init__(self, what: str, problems: Sequence[Problem] = (), *, where: str = "", do: str = "") -> None:
        self.problems = tuple(problems)
        shown = "; ".join(str(problem) for problem in self.problems[:3])
        more = len(self.problems) - 3
        super().__init__(what, where=where, why=shown + (f"; and {more} more" if more > 0 else ""), do=do)
