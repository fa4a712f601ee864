"""The report's quality section: gates, golden records, labels, and the same figures of the version before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from tallybatch.domain.quality_gates import Judgement
from tallybatch.domain.quality_labels import Labels, worth_showing

Section = dict[str, Any]


def quality_section(judgement: Judgement, labels: Labels) -> Section:
    """Shares are 0 to 1, null of nothing; `gates` are all, those that pass too."""
    golden = judgement.golden
    section: Section = {
        "gates": [{**msgspec.to_builtins(gate), "share": _share(gate.count, gate.total)} for gate in judgement.gates],
        "labels": worth_showing(labels),
    }
    if golden is not None:
        section["golden"] = {**msgspec.to_builtins(golden), "accuracy": _share(golden.right, golden.labelled)}
    return section


def comparison(report: Mapping[str, Any], previous: Mapping[str, Any]) -> Section:
    """How a job compares with the one published before it under the same spec; each figure as `before` and `now`."""
    figures: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "acceptance": _acceptance,
        "tokens_per_accepted": _tokens_per_accepted,
        "cost_per_accepted_usd": _cost_per_accepted,
        "accuracy": lambda one: ((one.get("quality") or {}).get("golden") or {}).get("accuracy"),
    }
    compared = {name: {"before": figure(previous), "now": figure(report)} for name, figure in figures.items()}
    return {
        "job_key": previous.get("job_key"),
        "dataset_version": previous.get("dataset_version"),
        "figures": {name: pair for name, pair in compared.items() if pair["before"] is not None},
        "labels": (previous.get("quality") or {}).get("labels") or {},
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _accepted(report: Mapping[str, Any]) -> int:
    return int((report.get("counts") or {}).get("succeeded") or 0)


def _acceptance(report: Mapping[str, Any]) -> float | None:
    return _share(_accepted(report), int((report.get("counts") or {}).get("expected") or 0))


def _tokens_per_accepted(report: Mapping[str, Any]) -> float | None:
    """Of answers that were asked for in this job; reused ones cost nothing."""
    tokens = report.get("tokens") or {}
    bought = _accepted(report) - int((report.get("counts") or {}).get("reused") or 0)
    total = int(tokens.get("input", 0)) + int(tokens.get("output", 0))
    return round(total / bought, 2) if bought > 0 else None


def _cost_per_accepted(report: Mapping[str, Any]) -> str | None:
    """As a decimal text in US dollars; null while the job's cost is unknown or nothing was accepted."""
    accepted = _accepted(report)
    try:
        cost = Decimal(str(report["cost_usd"]))
    except (KeyError, InvalidOperation):
        return None
    return f"{cost / accepted:.9f}" if accepted else None
