"""The job report as data: one JSON document per job, for every final state. The page is made from it alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tallybatch.domain.certificate import total_money, total_tokens
from tallybatch.domain.closure import Closure, SubmissionEntry
from tallybatch.domain.errors import Problem
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.prices import usd
from tallybatch.domain.quality_gates import Judgement
from tallybatch.domain.quality_labels import Labels
from tallybatch.domain.rows import Job
from tallybatch.report.left_out import left_out
from tallybatch.report.meanings import ANOMALIES, FAILURES, REVIEWS
from tallybatch.report.models import answered_by
from tallybatch.report.next_steps import after_failure, after_reconciliation
from tallybatch.report.quality import comparison, quality_section

Report = dict[str, Any]

REPORT_VERSION = 1
FIRST_PROBLEMS = 100
"""How many bad lines a refusal shows; all of them are in bad_lines.jsonl."""

_ENDED = {
    "FAILED": "The job failed.",
    "CANCELLED": "The job was cancelled.",
    "EXPIRED": "The job's time was over before it could close.",
}


def final_counts(closure: Closure) -> dict[str, int]:
    """The counts of the final JSON of demo, follow and show."""
    return {
        "succeeded": closure.succeeded,
        "reused": closure.reused,
        "failed": closure.failed_total,
        "missing": closure.missing,
        "unknown": closure.unknown,
        "duplicate": closure.duplicate,
        "in_review": closure.in_review_total,
        "submissions": _handed_over(closure.submissions),
        "provider_jobs": _provider_jobs(closure.submissions),
    }


def job_report(
    job: Job,
    manifest: Manifest,
    closure: Closure,
    *,
    state: str,
    results_uri: str,
    parts: int,
    certificate_uri: str = "",
    judgement: Judgement | None = None,
    labels: Labels | None = None,
    previous: Mapping[str, Any] | None = None,
) -> Report:
    """Report of a job that was reconciled: closed (COMPLETED), stopped by a gate (FAILED), or not closed (PARTIAL,
    CANCELLED). Times are Unix seconds, tokens as the providers bill them, counts records; `results.records` is what
    `results.parts` objects hold together. `previous` is the report of the version before."""
    stopped = judgement.reason if judgement else ""
    nothing = "nothing new was published" if job.results_uri else "nothing was published"
    report = {
        **_head(job, state, _verdict(closure, state, stopped, nothing, published=bool(results_uri))),
        **_work(manifest),
        "at": closure.at,
        **_sets(closure),
        "results": {"uri": results_uri, "parts": parts, "records": closure.succeeded if results_uri else 0},
        "places": _places(job, manifest, closure, results_uri=results_uri, certificate_uri=certificate_uri),
        "next_steps": [
            *after_reconciliation(job, closure, state, stopped, results_uri=results_uri),
            *left_out(manifest),
        ],
    }
    if judgement:
        report["quality"] = quality_section(judgement, labels or {})
        if previous:
            report["quality"]["previous"] = comparison(report, previous)
    return report


def failure_report(
    job: Job, manifest: Manifest | None, closure: Closure | None, submissions: Sequence[SubmissionEntry]
) -> Report:
    """Report of a job that ended without closure: FAILED, CANCELLED or EXPIRED. `closure` is the last reconciliation
    there was, None if the job never came so far; `submissions` are all there are, those after it too."""
    if closure:
        closure = msgspec.structs.replace(closure, submissions=tuple(submissions))
    state = job.state.value
    return {
        **_head(job, state, job.reason or _ENDED.get(state, "The job ended without closure.")),
        **(_work(manifest) if manifest else _known_work(job)),
        "at": job.updated_at,
        **(_sets(closure) if closure else _no_sets(job.expected, submissions)),
        "places": _places(job, manifest, closure, results_uri=""),
        "next_steps": [
            *after_failure(job, submissions),
            *(left_out(manifest) if manifest else []),
        ],
    }


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
        **_head(job, job.state.value, f"Refused: {what.rstrip('.')}. Nothing was spent."),
        "source": {"uri": job.source_uri},
        "at": job.created_at,
        "counts": {"expected": 0, **job.counts},
        "refusal": {
            "what": what,
            "where": where,
            "bad_count": bad_count,
            "by_code": _largest_first(by_code),
            "first": [
                {"line": problem.line, "key": problem.key, "code": problem.code, "reason": problem.reason}
                for problem in problems[:FIRST_PROBLEMS]
            ],
            "bad_lines": bad_lines_uri,
        },
        "places": {"source": job.source_uri, "bad_lines": bad_lines_uri, **_reports(job)},
        "next_steps": [do] if do else ["Mend the lines named below and drop the file again."],
    }


def _head(job: Job, state: str, verdict: str) -> Report:
    return {
        "report_version": REPORT_VERSION,
        "job_key": job.job_key,
        "tenant": job.tenant,
        "spec": job.spec,
        "dataset_version": job.dataset_version,
        "state": state,
        "verdict": verdict,
        "created_at": job.created_at,
        "deadline_at": job.deadline_at,
    }


def _work(manifest: Manifest) -> Report:
    return {
        "source": manifest.source.model_dump(),
        "provider": manifest.provider,
        "endpoint": manifest.endpoint,
        "model": manifest.model_resolved,
        "model_alias": manifest.model_alias,
        "prompt_version": manifest.prompt_version,
        "schema_version": manifest.schema_version,
        "shards": len(manifest.shards),
        "owner": manifest.owner,
        "cost_center": manifest.cost_center,
    }


def _known_work(job: Job) -> Report:
    """What the job's row alone says, when there is no manifest."""
    return {
        "source": {"uri": job.source_uri},
        "provider": job.provider,
        "model": job.model_resolved,
        "shards": job.shard_count,
    }


def _sets(closure: Closure) -> Report:
    return {
        "counts": {"expected": closure.expected, **final_counts(closure)},
        "closed": closure.closed,
        "open": closure.open,
        "waiting": closure.waiting,
        "unsettled": closure.unsettled,
        "failed_by_class": [
            {"class": name, "records": count, "meaning": FAILURES.get(name, "")}
            for name, count in _largest_first(closure.failed).items()
        ],
        "in_review_by_class": [
            {"class": name, "records": count, "meaning": REVIEWS.get(name, "")}
            for name, count in _largest_first(closure.in_review).items()
        ],
        **_sent(closure.submissions, accepted=closure.succeeded - closure.reused),
    }


def _sent(submissions: Sequence[SubmissionEntry], *, accepted: int) -> Report:
    """What went out, and what it cost. `accepted` are answers that were paid for."""
    return {
        "attempts": _attempts(submissions),
        "answered_by": answered_by(submissions),
        "submissions": [msgspec.to_builtins(entry) for entry in submissions],
        "anomalies": [
            {"anomaly": name, "count": count, "meaning": ANOMALIES.get(name, "")}
            for name, count in _largest_first(_sum(entry.anomalies for entry in submissions)).items()
        ],
        "tokens": total_tokens(submissions),
        "money": _money(submissions, accepted),
    }


def _money(submissions: Sequence[SubmissionEntry], accepted: int) -> Report:
    """Dollars, exact, as text; null where something that was paid for has no price."""
    spent = total_money(submissions)
    each = None if spent.unpriced or not accepted else usd(round(spent.cost / accepted))
    return {
        "cost_usd": usd(spent.known_cost),
        "waste_usd": usd(spent.known_waste),
        "cost_per_accepted_usd": each,
        "unpriced": spent.unpriced,
        "lines": [{"line": name, "cost_usd": usd(cost)} for name, cost in spent.lines.items() if cost],
    }


def _no_sets(expected: int, submissions: Sequence[SubmissionEntry]) -> Report:
    accepted = sum(entry.counts.get(OutcomeClass.SUCCEEDED.value, 0) for entry in submissions)
    sent = _sent(submissions, accepted=accepted)
    counts = {"submissions": _handed_over(submissions), "provider_jobs": _provider_jobs(submissions)}
    return {
        "counts": {"expected": expected, **(counts if submissions else {})},
        "closed": False,
        "failed_by_class": [],
        "in_review_by_class": [],
        **(sent if submissions else {**sent, "money": {}}),
    }


def _verdict(closure: Closure, state: str, stopped: str, nothing: str, *, published: bool) -> str:
    if stopped:
        return f"Stopped by a gate, so {nothing}: {stopped}."
    if state == JobState.COMPLETED.value:
        reused = f", {closure.reused:,} of them reused" if closure.reused else ""
        failed = f"; {closure.failed_total:,} failed and are named" if closure.failed_total else ""
        accepted = f"{closure.succeeded:,} of {closure.expected:,} records have exactly one accepted answer"
        return f"Closed: {accepted}{reused}{failed}."
    gaps = {
        "missing": closure.missing,
        "unknown": closure.unknown,
        "duplicate": closure.duplicate,
        "still open": closure.open,
        "waiting for people": closure.in_review_total,
    }
    named = ", ".join(f"{count:,} {name}" for name, count in gaps.items() if count)
    sums = f"{closure.expected:,} expected, {closure.succeeded:,} accepted, {closure.failed_total:,} failed"
    why = "Cancelled" if state == JobState.CANCELLED.value else "Not closed"
    if published:
        return f"{why}; the {closure.succeeded:,} accepted records are published as a part, as asked: {named or sums}."
    return f"{why}, so {nothing}: {named or sums}."


def _provider_jobs(submissions: Iterable[SubmissionEntry]) -> int:
    return sum(len(entry.provider_jobs) for entry in submissions)


def _attempts(submissions: Sequence[SubmissionEntry]) -> list[Report]:
    """One row per attempt. `records` were in submissions that the provider took; `outcomes` are of all records of the
    attempt, reused and waiting ones too. Times are Unix seconds, 0 when nothing was submitted or has ended."""
    rows = []
    for number in sorted({entry.attempt for entry in submissions}):
        entries = [entry for entry in submissions if entry.attempt == number]
        rows.append(
            {
                "attempt": number,
                "shards": len(entries),
                "submissions": _handed_over(entries),
                "records": sum(entry.records for entry in entries if entry.handed_over),
                "outcomes": _sum(entry.counts for entry in entries),
                "tokens": _sum(entry.tokens for entry in entries),
                "began_at": min((entry.submitted_at for entry in entries if entry.submitted_at), default=0),
                "ended_at": max((entry.terminal_at for entry in entries), default=0),
            }
        )
    return rows


def _handed_over(entries: Iterable[SubmissionEntry]) -> int:
    """Submissions that went to a provider, whether it took them or not; shards with nothing left to ask are none."""
    return sum(bool(entry.handed_over or entry.refusal) for entry in entries)


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))


def _largest_first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _root(job: Job) -> str:
    """`s3://bucket/` of the inbox, which is the pipeline's own; "" leaves bare keys."""
    scheme, _, rest = job.source_uri.partition("://")
    return f"{scheme}://{rest.split('/')[0]}/" if rest else ""


def _reports(job: Job) -> dict[str, str]:
    keys, root = JobKeys(job.tenant, job.job_key), _root(job)
    return {"report_json": root + keys.report_json, "report": root + keys.report_html}


def _places(
    job: Job, manifest: Manifest | None, closure: Closure | None, *, results_uri: str, certificate_uri: str = ""
) -> dict[str, str]:
    """URIs of what belongs to the job, only of what is there."""
    keys, root = JobKeys(job.tenant, job.job_key), _root(job)
    proof = certificate_uri or root + keys.certificate
    places = {"results": results_uri, "certificate": proof} if results_uri else {}
    places |= _reports(job)
    if closure:
        places["closure"] = root + keys.closure(closure.attempt)
        if closure.open > closure.unsettled:
            places["open_records"] = root + closure.open_key
        if closure.review_key:
            places["review_records"] = root + closure.review_key
        if any(entry.anomalies.get("unknown") for entry in closure.submissions):
            places["unknown_ids"] = root + keys.unknown_ids("").removesuffix("unknown-.jsonl")
    if manifest:
        places |= {"manifest": root + keys.manifest, "spec": root + keys.spec}
        if manifest.source.quarantined_lines:
            places["bad_lines"] = root + keys.bad_lines()
    places["source"] = job.source_uri
    return {name: uri for name, uri in places.items() if uri}
