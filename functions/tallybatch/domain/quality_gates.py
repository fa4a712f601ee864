"""Gates: what must hold of a closed job before anything of it is published."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from tallybatch.domain.quality_golden import GoldenFigures
from tallybatch.domain.spec_quality import Quality

ANY_ACCEPTED = "any_accepted"
MIN_ACCEPTANCE = "min_acceptance"
MIN_ACCURACY = "min_accuracy"


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """`count` of `total` records, which must be a share of at least `asked`."""

    name: str
    asked: float
    count: int
    total: int
    passed: bool
    reason: str = ""
    """Why it stops the job, with the figures; "" if it does not."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the gates say of a closed job after an attempt, and by which terms. Written once, under the attempt."""

    job_key: str
    attempt: int
    spec_digest: str
    """SHA-256 of the spec whose gates these are: the one that was there when the run began."""
    golden: GoldenFigures | None
    gates: tuple[Gate, ...]

    @property
    def passed(self) -> bool:
        return all(gate.passed for gate in self.gates)

    @property
    def reason(self) -> str:
        """ "" for a job that may be published."""
        return "; ".join(gate.reason for gate in self.gates if not gate.passed)


def judge(quality: Quality, *, expected: int, succeeded: int, golden: GoldenFigures | None) -> tuple[Gate, ...]:
    """Every gate, those that pass too. A job without a single accepted answer never passes."""
    any_reason = "" if succeeded or not expected else f"none of {expected:,} records was accepted"
    gates = [
        Gate(name=ANY_ACCEPTED, asked=0, count=succeeded, total=expected, passed=not any_reason, reason=any_reason)
    ]
    if quality.min_acceptance is not None:
        told = f"accepted {_figure(succeeded, expected)}"
        gates.append(_gate(MIN_ACCEPTANCE, quality.min_acceptance, succeeded, expected, told))
    if quality.golden is not None and golden is not None:
        told = f"right on {_figure(golden.right, golden.labelled, 'labelled records')}"
        gates.append(_gate(MIN_ACCURACY, quality.golden.min_accuracy, golden.right, golden.labelled, told))
    return tuple(gates)


def _gate(name: str, asked: float, count: int, total: int, told: str) -> Gate:
    """Compared exactly: 7 of 100 are enough for 0.07. Nothing to count is not enough for anything."""
    passed = total > 0 and Fraction(count, total) >= Fraction(str(asked))
    reason = "" if passed else f"{told}, and {name} asks for {_percent(Fraction(str(asked)))}"
    return Gate(name=name, asked=asked, count=count, total=total, passed=passed, reason=reason)


def _figure(count: int, total: int, what: str = "records") -> str:
    share = f" ({_percent(Fraction(count, total))})" if total else ""
    return f"{count:,} of {total:,} {what}{share}"


def _percent(share: Fraction) -> str:
    """With as many places as keep a share below its gate from looking like it; never rounded up."""
    hundredths = share * 10_000
    shown = f"{int(hundredths) / 100:.2f}".rstrip("0").rstrip(".")
    return f"{shown} %"
