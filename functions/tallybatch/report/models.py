"""Which model answered what: the section of the report, as data and as the page shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tallybatch.domain.closure import SubmissionEntry
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.review import PEOPLE
from tallybatch.report import words


def answered_by(submissions: Iterable[SubmissionEntry]) -> list[dict[str, Any]]:
    """One row for each provider and model that records went to, in the order of their turn. `records` counts a record
    as often as it was sent; `accepted` are answers that came back there, `reused` those that an earlier job had from
    any model of the spec. Answers that people gave are none of these."""
    targets: dict[tuple[str, str], list[SubmissionEntry]] = {}
    for entry in submissions:
        if entry.provider != PEOPLE:
            targets.setdefault((entry.provider, entry.model), []).append(entry)
    rows = []
    for (provider, model), entries in targets.items():
        outcomes, tokens = Counter[str](), Counter[str]()
        for entry in entries:
            outcomes.update(entry.counts)
            tokens.update(entry.tokens)
        rows.append(
            {
                "provider": provider,
                "model": model,
                "records": sum(entry.records for entry in entries if entry.handed_over),
                "accepted": outcomes[OutcomeClass.SUCCEEDED.value],
                "reused": outcomes[OutcomeClass.REUSED.value],
                "tokens": dict(tokens),
            }
        )
    return rows


def models_view(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The rows as text; of a job with one model the rest of the page says it."""
    if len(rows) < 2:
        return []
    return [
        {
            "name": f"{words.text(row.get('provider'))} {words.text(row.get('model'))}",
            "records": words.number(row.get("records", 0)),
            "accepted": words.number(row.get("accepted", 0)),
            "reused": words.number(row.get("reused", 0)),
            "tokens_in": words.number((row.get("tokens") or {}).get("input", 0)),
            "tokens_out": words.number((row.get("tokens") or {}).get("output", 0)),
        }
        for row in rows
    ]
