"""The job report as data: one JSON document per job, for every final state. The page is made from it alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tallybatch.domain.certificate import total_tokens
from tallybatch.domain.closure import Closure, SubmissionEntry
from tallybatch.domain.errors import Problem
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.rows import Job

Report = dict[str, Any]

_FAILURE_HELP = {
    "permanent": "the request itself is wrong; see the code of each record in the outcomes",
    "refused": "the model or a filter declined to answer",
    "retryable": "still failing after the last attempt; raise retry.max_attempts or run the job later",
    "expired": "the provider's window ended first",
    "cancelled": "cancelled at the provider",
    "truncated": "the answer was cut off; raise generation.max_output_tokens",
    "unqualified": "the answer broke the output schema in every attempt",
    "missing": "the provider returned nothing for it in every attempt",
    "conflict": "answered more than once with different content",
    "waiting": "another job had the record in flight until the deadline",
}


def final_counts(closure: Closure) -> dict[str, int]:
    """The counts of the final JSON of demo, follow and show."""
    handed_over = [entry for entry in closure.submissions if entry.provider_jobs or entry.refusal]
    return {
        "succeeded": closure.succeeded,
        "reused": closure.reused,
        "failed": closure.failed_total,
        "missing": closure.missing,
        "unknown": closure.unknown,
        "duplicate": closure.duplicate,
        "in_review": 0,
        "submissions": len(handed_over),
        "provider_jobs": sum(len(entry.provider_jobs) for entry in closure.submissions),
    }


def job_report(job: Job, manifest: Manifest, closure: Closure, *, state: str, results_uri: str, parts: int) -> Report:
    """Report of a job that was reconciled: closed (COMPLETED) or not (PARTIAL)."""
    return {
        **_head(job, state, _verdict(closure, state)),
        "source": manifest.source.model_dump(),
        "provider": manifest.provider,
        "model": manifest.model_resolved,
        "prompt_version": manifest.prompt_version,
        "schema_version": manifest.schema_version,
        "at": closure.at,
        "counts": {"expected": closure.expected, **final_counts(closure)},
        "open": closure.open,
        "failed_by_class": [
            {"class": name, "records": count, "meaning": _FAILURE_HELP.get(name, "")}
            for name, count in sorted(closure.failed.items(), key=lambda pair: -pair[1])
        ],
        "attempts": _attempts(closure),
        "submissions": [msgspec.to_builtins(entry) for entry in closure.submissions],
        "anomalies": _sum(entry.anomalies for entry in closure.submissions),
        "tokens": total_tokens(closure),
        "results": {"uri": results_uri, "parts": parts},
        "next_steps": _next_steps(closure, state),
    }


def failure_report(job: Job, manifest: Manifest | None, closure: Closure | None) -> Report:
    """Report of a job that ended without closure: FAILED, CANCELLED or EXPIRED."""
    report: Report = {
        **_head(job, job.state.value, job.reason or "The job failed."),
        "provider": job.provider,
        "model": job.model_resolved,
        "at": job.updated_at,
        "counts": {"expected": job.expected, **(final_counts(closure) if closure else {})},
        "attempts": _attempts(closure) if closure else [],
        "submissions": [msgspec.to_builtins(entry) for entry in closure.submissions] if closure else [],
        "tokens": total_tokens(closure) if closure else {},
        "next_steps": [
            "Mend the cause named above.",
            "Drop the file again: accepted answers are reused, not paid again.",
        ],
    }
    if manifest:
        report["source"] = manifest.source.model_dump()
    return report


def refusal_report(
    job: Job,
    *,
    what: str,
    where: str,
    do: str,
    bad_count: int,
    by_code: dict[str, int],
    problems: Sequence[Problem],
    bad_lines_uri: str,
) -> Report:
    """Report of input that was refused: nothing was spent."""
    return {
        **_head(job, job.state.value, f"Refused: {what}. Nothing was spent."),
        "source": {"uri": job.source_uri},
        "at": job.created_at,
        "counts": {"expected": 0, **job.counts},
        "refusal": {
            "what": what,
            "where": where,
            "bad_count": bad_count,
            "by_code": by_code,
            "first": [
                {"line": problem.line, "key": problem.key, "code": problem.code, "reason": problem.reason}
                for problem in problems[:100]
            ],
            "bad_lines": bad_lines_uri,
        },
        "next_steps": [do] if do else [],
    }


def _head(job: Job, state: str, verdict: str) -> Report:
    return {
        "report_version": 1,
        "job_key": job.job_key,
        "tenant": job.tenant,
        "spec": job.spec,
        "dataset_version": job.dataset_version,
        "state": state,
        "verdict": verdict,
    }


def _verdict(closure: Closure, state: str) -> str:
    if state == "COMPLETED":
        failed = f", {closure.failed_total} failed and are named" if closure.failed_total else ""
        return f"Closed: {closure.succeeded} of {closure.expected} records have exactly one accepted answer{failed}."
    gaps = {
        "missing": closure.missing,
        "unknown": closure.unknown,
        "duplicate": closure.duplicate,
        "open": closure.open,
    }
    named = ", ".join(f"{count} {name}" for name, count in gaps.items() if count)
    return f"Not closed, so nothing was published: {named}."


def _attempts(closure: Closure) -> list[Report]:
    numbers = sorted({entry.attempt for entry in closure.submissions})
    rows = []
    for number in numbers:
        entries: list[SubmissionEntry] = [entry for entry in closure.submissions if entry.attempt == number]
        rows.append(
            {
                "attempt": number,
                "submissions": len(entries),
                "records": sum(entry.records for entry in entries),
                "outcomes": _sum(entry.counts for entry in entries),
                "tokens": _sum(entry.tokens for entry in entries),
                "began_at": min((entry.submitted_at for entry in entries if entry.submitted_at), default=0),
                "ended_at": max((entry.terminal_at for entry in entries), default=0),
            }
        )
    return rows


def _sum(counts: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))


def _next_steps(closure: Closure, state: str) -> list[str]:
    steps = []
    if state != "COMPLETED" and closure.unknown:
        steps.append("Look at the unknown ids in quarantine/; the job stays PARTIAL until they are acknowledged.")
    if state != "COMPLETED" and closure.open:
        steps.append("The deadline passed while records were still out; drop the file again to go on from here.")
    if closure.failed_total:
        steps.append("Failed records are named with their reasons in the outcome objects of each submission.")
    return steps
