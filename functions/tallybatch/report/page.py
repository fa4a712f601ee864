"""The job report as a page: one HTML file without script or outside reference, made from the report's data alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from minijinja import Environment

from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.outcomes import ACCEPTED
from tallybatch.report import charts, words
from tallybatch.report.meanings import ANOMALIES, FAILURES, REVIEWS
from tallybatch.report.models import models_view
from tallybatch.report.page_money import money_view, tokens_view
from tallybatch.report.page_quality import quality_view

MOST_ROWS = 500
"""Submissions in the table; the page of the largest job stays under 3 MB."""
FOLD_ROWS = 20
MOST_ATTEMPTS = 20
_TEMPLATES = ("page.html", "macros.html", "quality.html", "money.html", "page.css")
_ACCEPTED = frozenset(outcome.value for outcome in ACCEPTED)
_TONES = {"COMPLETED": "good", "PARTIAL": "warn", "CANCELLED": "warn"}
_STATE_WORDS = {
    "COMPLETED": "Completed",
    "PARTIAL": "Partial: not closed",
    "FAILED": "Failed",
    "CANCELLED": "Cancelled",
    "EXPIRED": "Expired",
}
_PLACE_WORDS = {
    "results": "Results",
    "certificate": "Certificate",
    "report_json": "This report as JSON",
    "report": "This page",
    "closure": "Closure: the sets behind these numbers",
    "open_records": "Records that are still open",
    "unknown_ids": "Unknown ids, with their lines",
    "manifest": "Manifest",
    "spec": "Spec as it was",
    "source": "Source file",
    "bad_lines": "Every bad line",
}


def render(report: dict[str, Any]) -> bytes:
    """UTF-8 HTML. The same report always gives the same bytes. `report` is what `build` makes, or that read back from
    report.json; parts that it does not have are left out of the page."""
    return _environment().render_template("page.html", **_view(report)).encode()


@cache
def _environment() -> Environment:
    here = files(__package__)
    return Environment(
        templates={name: (here / name).read_text(encoding="utf-8") for name in _TEMPLATES},
        undefined_behavior="strict",
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _view(report: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the template shows, as text."""
    submissions = report.get("submissions") or []
    attempts = report.get("attempts") or []
    return {
        "title": " · ".join(
            filter(None, (words.text(report.get(name)) for name in ("state", "spec", "dataset_version")))
        ),
        "name": words.text(report.get("spec")),
        "dataset_version": words.text(report.get("dataset_version")),
        "job_key": words.text(report.get("job_key")),
        "report_version": words.text(report.get("report_version")),
        "glance": _glance(report),
        "banner": _banner(report),
        "proof": _proof(report),
        "next_steps": [_step(step) for step in report.get("next_steps") or []],
        "refusal": _refusal(report),
        "funnel": _funnel(report),
        "quality": quality_view(report),
        "attempts": _attempts(attempts),
        "models": models_view(report.get("answered_by") or []),
        "timeline": charts.timeline(submissions, report.get("at") or 0),
        "unsent": words.number(sum(not entry.get("submitted_at") for entry in submissions)) if submissions else "0",
        "failures": _failures(report),
        "reviews": _reviews(report),
        "anomalies": _anomalies(report),
        "money": money_view(report.get("money") or {}),
        "tokens": tokens_view(report.get("tokens") or {}),
        "submissions": _submissions(submissions),
        "facts": _facts(report),
        "places": [
            (_PLACE_WORDS.get(name, words.text(name)), words.text(uri))
            for name, uri in (report.get("places") or {}).items()
        ],
    }


def _glance(report: Mapping[str, Any]) -> list[str]:
    """The line under the name: what ran where, how often and how long."""
    counts = report.get("counts") or {}
    began, ended = report.get("created_at") or 0, report.get("at") or 0
    told = [words.text(report.get(name)) for name in ("tenant", "provider", "model")]
    told.append(_many(len(report.get("attempts") or ()), "attempt"))
    told.append(_many(counts.get("submissions", 0), "submission"))
    told.append(_many(counts.get("provider_jobs", 0), "provider job"))
    if began and ended > began:
        told.append(f"took {words.duration(ended - began)}")
    return [item for item in told if item]


def _many(count: int, thing: str) -> str:
    return f"{words.number(count)} {thing}{'' if count == 1 else 's'}" if count else ""


def _banner(report: Mapping[str, Any]) -> dict[str, str]:
    state = words.text(report.get("state"))
    counts = report.get("counts") or {}
    tone = _TONES.get(state, "bad")
    if state == JobState.COMPLETED and counts.get("expected") and not counts.get("succeeded"):
        tone = "warn"  # every record failed: closed, and nothing to be glad of
    word = "Refused" if report.get("refusal") else _STATE_WORDS.get(state, state)
    return {"tone": tone, "state": state, "word": word, "verdict": words.text(report.get("verdict"))}


def _step(step: Any) -> list[dict[str, Any]]:
    """A step in pieces: what stands between backticks is a command."""
    pieces = words.text(step).split("`")
    return [{"text": piece, "command": number % 2 == 1} for number, piece in enumerate(pieces) if piece]


def _proof(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """The closure as a sum with its checks; None for a job that was never reconciled."""
    counts = report.get("counts") or {}
    if report.get("refusal") or "succeeded" not in counts:
        return None
    gaps = {
        "missing": counts.get("missing", 0),
        "unknown": counts.get("unknown", 0),
        "duplicate": counts.get("duplicate", 0),
        "open": report.get("open", 0),
        "in review": counts.get("in_review", 0),
    }
    expected, accepted, failed = counts["expected"], counts["succeeded"], counts.get("failed", 0)
    closed = expected == accepted + failed and not any(gaps.values())
    heading = "Every record is accounted for" if closed else "The sets do not close"
    return {
        "heading": "The sets close" if closed and report.get("state") == JobState.COMPLETED else heading,
        "expected": words.number(expected),
        "accepted": words.number(accepted),
        "accepted_share": words.share(accepted, expected),
        "reused": words.number(counts["reused"]) if counts.get("reused") else "",
        "failed": words.number(failed),
        "failed_any": failed > 0,
        "failed_share": words.share(failed, expected),
        "equal": expected == accepted + failed,
        "gaps": [{"name": name, "count": words.number(count), "none": not count} for name, count in gaps.items()],
    }


def _refusal(report: Mapping[str, Any]) -> dict[str, Any] | None:
    refusal = report.get("refusal")
    if not refusal:
        return None
    first = [
        {
            "line": words.number(problem["line"]) if problem.get("line") else "whole file",
            "key": words.text(problem.get("key")),
            "code": words.text(problem.get("code")),
            "reason": words.text(problem.get("reason")),
        }
        for problem in refusal.get("first") or []
    ]
    by_code = refusal.get("by_code") or {}
    most = max(by_code.values(), default=0)
    return {
        "what": words.text(refusal.get("what")),
        "where": words.text(refusal.get("where")),
        "bad_count": words.number(refusal.get("bad_count", 0)),
        "by_code": [
            {"code": words.text(code), "count": words.number(count), "width": f"{count * 100 / most:.2f}"}
            for code, count in by_code.items()
        ],
        "first": first,
        "shown": words.number(len(first)),
        "fold": len(first) > FOLD_ROWS,
        "bad_lines": words.text(refusal.get("bad_lines")),
    }


def _funnel(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Expected, handed over, accepted, published, failed: all bars on one scale."""
    counts = report.get("counts") or {}
    expected = counts.get("expected", 0)
    if report.get("refusal") or not expected or "succeeded" not in counts:
        return []
    sends = [attempt.get("records", 0) for attempt in report.get("attempts") or []]
    first, again = sum(sends[:1]), sum(sends[1:])
    reused, accepted = counts.get("reused", 0), counts["succeeded"]
    published = (report.get("results") or {}).get("records", 0)
    failed = {row["class"]: row["records"] for row in report.get("failed_by_class") or []}
    scale = max(expected, first + again)
    rows = [_stage("Expected", expected, "records in the manifest", [("f-expected", expected)], scale)]
    if reused:
        rows.append(_stage("Reused", reused, "answered before, not paid again", [("o-reused", reused)], scale))
    note = f"{words.number(first)} in the first attempt, {words.number(again)} later" if again else "to the provider"
    rows.append(_stage("Handed over", first + again, note, [("f-sent", first), ("f-again", again)], scale))
    parts = [("o-succeeded", accepted - reused), ("o-reused", reused)]
    note = f"{words.share(accepted, expected)} of expected"
    rows.append(_stage("Accepted", accepted, note, parts, scale))
    note = f"{words.share(published, expected)} of expected" if published else "nothing"
    rows.append(_stage("Published", published, note, [("f-published", published)], scale))
    note = ", ".join(f"{words.number(count)} {words.text(name)}" for name, count in failed.items()) or "none"
    parts = [(charts.outcome_css(name), count) for name, count in failed.items()]
    rows.append(_stage("Failed", sum(failed.values()), note, parts, scale))
    return rows


def _stage(name: str, count: int, note: str, parts: Sequence[tuple[str, int]], scale: int) -> dict[str, Any]:
    x, spans = 0.0, []
    for css, part in parts:
        if part > 0:
            width = max(0.35, part * 100 / scale)
            spans.append({"css": css, "x": f"{x:.3f}", "width": f"{width:.3f}"})
            x += width
    return {"name": name, "count": words.number(count), "note": note, "spans": spans}


def _attempts(attempts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """At most `MOST_ATTEMPTS`: the first half and the last, since what changed is seen there."""
    if not attempts:
        return None
    half = MOST_ATTEMPTS // 2
    shown = attempts if len(attempts) <= MOST_ATTEMPTS else [*attempts[:half], *attempts[-half:]]
    rows = []
    for attempt in shown:
        outcomes = attempt.get("outcomes") or {}
        began, ended = attempt.get("began_at", 0), attempt.get("ended_at", 0)
        rows.append(
            {
                "number": words.number(attempt.get("attempt")),
                "submissions": words.number(attempt.get("submissions", 0)),
                "records": words.number(attempt.get("records", 0)),
                "total": words.number(sum(outcomes.values())),
                "parts": charts.stacked(outcomes),
                "tokens_in": words.number((attempt.get("tokens") or {}).get("input", 0)),
                "tokens_out": words.number((attempt.get("tokens") or {}).get("output", 0)),
                "began": words.moment(began),
                "ended": words.moment(ended),
                "took": words.duration(ended - began) if began and ended else "",
            }
        )
    return {"rows": rows, "more": words.number(len(attempts) - len(shown)) if len(attempts) > len(shown) else ""}


def _failures(report: Mapping[str, Any]) -> list[dict[str, str]]:
    return _classes(report.get("failed_by_class") or [], FAILURES)


def _reviews(report: Mapping[str, Any]) -> list[dict[str, str]]:
    return _classes(report.get("in_review_by_class") or [], REVIEWS)


def _classes(rows: Sequence[Mapping[str, Any]], meanings: Mapping[str, str]) -> list[dict[str, str]]:
    total = sum(row["records"] for row in rows)
    return [
        {
            "css": charts.outcome_css(row["class"]),
            "name": words.text(row["class"]),
            "count": words.number(row["records"]),
            "share": words.share(row["records"], total),
            "meaning": words.text(row.get("meaning") or meanings.get(row["class"], "")),
        }
        for row in rows
    ]


def _anomalies(report: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {
            "css": "",
            "name": words.text(row["anomaly"]),
            "count": words.number(row["count"]),
            "share": "",
            "meaning": words.text(row.get("meaning") or ANOMALIES.get(row["anomaly"], "")),
        }
        for row in report.get("anomalies") or []
    ]


def _submissions(submissions: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    if not submissions:
        return None
    shown = _worth_showing(submissions)
    return {
        "rows": [_submission(entry) for entry in shown],
        "total": words.number(len(submissions)),
        "shown": words.number(len(shown)),
        "more": words.number(len(submissions) - len(shown)) if len(shown) < len(submissions) else "",
        "fold": len(shown) > FOLD_ROWS,
    }


def _worth_showing(submissions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """All, or when there are too many those with something to tell first; in their own order in any case."""
    ranked = sorted(range(len(submissions)), key=lambda place: (-_oddness(submissions[place]), place))
    return [submissions[place] for place in sorted(ranked[:MOST_ROWS])]


def _oddness(entry: Mapping[str, Any]) -> int:
    if entry.get("refusal") or entry.get("state") != SubmissionState.RECONCILED:
        return 3
    if entry.get("anomalies") or entry.get("generation", 1) > 1 or len(entry.get("provider_jobs") or ()) > 1:
        return 2
    return int(any(count and name not in _ACCEPTED for name, count in (entry.get("counts") or {}).items()))


def _submission(entry: Mapping[str, Any]) -> dict[str, Any]:
    began, ended = entry.get("submitted_at", 0), entry.get("terminal_at", 0)
    tokens = entry.get("tokens") or {}
    return {
        "attempt": words.number(entry.get("attempt")),
        "shard": words.text(entry.get("shard_id")),
        "state": words.text(entry.get("state")),
        "settled": entry.get("state") == SubmissionState.RECONCILED,
        "jobs": [words.text(job) for job in entry.get("provider_jobs") or ()],
        "generation": words.number(entry.get("generation", 1)),
        "records": words.number(entry.get("records", 0)),
        "outcomes": [
            {"css": charts.outcome_css(name), "name": words.text(name), "count": words.number(count)}
            for name, count in charts.ordered(entry.get("counts") or {})
        ],
        "tokens_in": words.number(tokens.get("input", 0)),
        "tokens_out": words.number(tokens.get("output", 0)),
        "began": words.moment(began),
        "took": words.duration(ended - began) if began and ended else "",
        "refusal": words.text(entry.get("refusal")),
        "anomalies": ", ".join(
            f"{words.number(count)} {words.text(name)}" for name, count in (entry.get("anomalies") or {}).items()
        ),
    }


def _facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the job was: only what the report knows."""
    source = report.get("source") or {}
    counts = report.get("counts") or {}
    began, ended = report.get("created_at") or 0, report.get("at") or 0
    alias = words.text(report.get("model_alias"))
    model = words.text(report.get("model"))
    facts = [
        ("Tenant", words.text(report.get("tenant"))),
        ("Provider", " ".join(filter(None, (words.text(report.get("provider")), words.text(report.get("endpoint")))))),
        ("Model", f"{model} (asked for as {alias})" if alias and alias != model else model),
        ("Prompt version", words.text(report.get("prompt_version"))),
        ("Schema version", words.text(report.get("schema_version"))),
        ("Shards", words.number(report.get("shards") or "")),
        ("Submissions", words.number(counts.get("submissions", ""))),
        ("Provider jobs", words.number(counts.get("provider_jobs", ""))),
        ("Parts published", words.number((report.get("results") or {}).get("parts") or "")),
        ("Created", words.moment(began)),
        ("Ended", words.moment(ended) if ended != began else ""),
        ("Took", words.duration(ended - began) if began and ended > began else ""),
        ("Deadline", words.moment(report.get("deadline_at"))),
        ("Source", words.text(source.get("uri") or source.get("key"))),
        ("Source size", _source_size(source)),
        ("Source SHA-256", words.text(source.get("sha256"))),
        ("Source version", words.text(source.get("version_id"))),
        ("Owner", words.text(report.get("owner"))),
        ("Cost center", words.text(report.get("cost_center"))),
    ]
    return [(name, value) for name, value in facts if value]


def _source_size(source: Mapping[str, Any]) -> str:
    lines = f"{words.number(source['lines'])} lines" if source.get("lines") else ""
    bad = f"{words.number(source['quarantined_lines'])} quarantined" if source.get("quarantined_lines") else ""
    return ", ".join(filter(None, (lines, words.size(source.get("size")), bad)))
