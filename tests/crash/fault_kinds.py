"""What the lists of faults share: their two main kinds, and endings that many have."""

from __future__ import annotations

from typing import Any

from tests.support.fault_run import RECORDS, Ending, Fault

HOUR_S = 3600
SETTLED_S = 30 + 60 + 300
"""Until absence is proven: the last moment of a create, its timeout, and the settle window of the tests."""

ALL_MISSING = {"missing > succeeded": RECORDS}
UNTOUCHED = Ending()
ALL_LOST = Ending(told=ALL_MISSING, attempts=2, jobs=2, anomalies={"counts_disagree": 1})
"""The provider counts rows of which it leaves nothing."""
SAME_TOKEN = {"bedrock": UNTOUCHED}
"""Bedrock is sent the same token again, which makes the job or tells which one it is."""
HTTP = ("openai", "gemini")
"""Those whose result files come over HTTP, and are named in the job."""


def call(name: str, wrong: str, *rules: dict[str, Any], ending: Ending = UNTOUCHED, **more: Any) -> Fault:
    return Fault(name=name, wrong=wrong, scenario={"calls": list(rules)}, ending=ending, **more)


def job(
    name: str,
    wrong: str,
    *rules: dict[str, Any],
    ending: Ending = UNTOUCHED,
    keys: dict[str, Any] | None = None,
    **more: Any,
) -> Fault:
    return Fault(name=name, wrong=wrong, scenario={"jobs": list(rules), **(keys or {})}, ending=ending, **more)
