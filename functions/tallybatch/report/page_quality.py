"""The page's view of the quality section: everything the template shows, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallybatch.report import words

_GATES = {
    "any_accepted": "Any answer accepted at all",
    "min_acceptance": "Share of records accepted",
    "min_accuracy": "Share of labelled records that are right",
}
_FIGURES = {
    "acceptance": "Accepted",
    "accuracy": "Right on labelled records",
    "tokens_per_accepted": "Tokens for an accepted answer",
    "cost_per_accepted_usd": "US dollars for an accepted answer",
}
_SHARES = ("acceptance", "accuracy")


def quality_view(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """None for a report without the section, and for one that has nothing to show."""
    section = report.get("quality")
    if not section:
        return None
    view = {
        "gates": [_gate(gate) for gate in section.get("gates") or []],
        "golden": _golden(section.get("golden")),
        "previous": _previous(section.get("previous")),
        "labels": _labels(section),
    }
    return view if any(view.values()) else None


def _gate(gate: Mapping[str, Any]) -> dict[str, Any]:
    name, asked = words.text(gate.get("name")), gate.get("asked") or 0
    return {
        "name": _GATES.get(name, name),
        "asked": f"at least {_percent(asked)}" if asked else "at least one",
        "count": f"{words.number(gate.get('count', 0))} of {words.number(gate.get('total', 0))}",
        "share": words.share(gate.get("count", 0), gate.get("total", 0)),
        "passed": bool(gate.get("passed")),
    }


def _percent(share: float) -> str:
    return f"{share * 100:.4f}".rstrip("0").rstrip(".") + " %"


def _golden(golden: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not golden:
        return None
    labels, answers, matrix = golden["labels"], golden["answers"], golden["matrix"]
    rows = []
    for label, counts in zip(labels, matrix, strict=True):
        total, most = sum(counts), max(counts, default=0)
        cells = [
            {
                "count": words.number(count) if count else "",
                "css": _cell(count, answer == label),
                "strength": f"{count / most:.2f}" if most else "0",
            }
            for answer, count in zip(answers, counts, strict=True)
        ]
        right = next((count for answer, count in zip(answers, counts, strict=True) if answer == label), 0)
        rows.append({"label": words.text(label), "cells": cells, "share": words.share(right, total)})
    return {
        "field": words.text(golden.get("field")),
        "accuracy": words.share(golden["right"], golden["labelled"]),
        "right": words.number(golden["right"]),
        "labelled": words.number(golden["labelled"]),
        "unanswered": words.number(golden["labelled"] - golden["answered"]),
        "answers": [words.text(answer) for answer in answers],
        "rows": rows,
        "sha256": words.text(golden.get("sha256")),
    }


def _cell(count: int, on_diagonal: bool) -> str:
    if not count:
        return ""
    return "right" if on_diagonal else "wrong"


def _previous(previous: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not previous:
        return None
    return {
        "job_key": words.text(previous.get("job_key")),
        "dataset_version": words.text(previous.get("dataset_version")),
        "rows": [
            {"name": _FIGURES.get(name, words.text(name)), "before": _figure(name, pair["before"]),
             "now": _figure(name, pair["now"])}
            for name, pair in (previous.get("figures") or {}).items()
        ],
    }  # fmt: skip


def _figure(name: str, value: Any) -> str:
    if value is None:
        return "\N{EN DASH}"
    return _percent(value) if name in _SHARES else words.number(value) or words.text(value)


def _labels(section: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Per field its values with their shares, beside the shares of the version before where it has the field."""
    before = (section.get("previous") or {}).get("labels") or {}
    return [
        _field(name, counts, before.get(name) or {}) for name, counts in (section.get("labels") or {}).items() if counts
    ]


def _field(name: str, counts: Mapping[str, int], before: Mapping[str, int]) -> dict[str, Any]:
    total, earlier = sum(counts.values()), sum(before.values())
    values = [*counts, *(value for value in before if value not in counts)]
    return {
        "name": words.text(name),
        "compared": bool(before),
        "rows": [
            {
                "value": words.text(value),
                "count": words.number(counts.get(value, 0)),
                "share": words.share(counts.get(value, 0), total),
                "before": words.share(before.get(value, 0), earlier),
                "width": f"{counts.get(value, 0) * 100 / total:.2f}",
            }
            for value in values
        ],
    }
