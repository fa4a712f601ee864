"""A job as the commands show it: the final JSON, and the same for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType

from tallybatch.cli.output import facts, state_text, table
from tallybatch.domain.billing import Money, money
from tallybatch.domain.lifecycle import JOB_FINAL
from tallybatch.domain.outcomes import ACCEPTED
from tallybatch.domain.prices import usd
from tallybatch.domain.rows import ON_DEMAND, Job, Submission

_FINAL_COUNTS = ("succeeded", "reused", "failed", "missing", "unknown", "duplicate", "in_review")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job's row and its submissions, as one look at the ledger gave them."""

    job: Job
    submissions: Sequence[Submission]
    queue_position: int | None = None
    """Of a job that waits for its turn or for quota; 1 is next."""
    waits_in_vain: str = ""
    """Why it cannot be let through under the limits as they are, and what to do."""

    @property
    def ended(self) -> bool:
        return self.job.dry_run or self.job.state in JOB_FINAL


def document(snapshot: Snapshot) -> dict[str, Any]:
    """The final JSON of demo, follow and show. Null is what is not known: counts before the sets were reconciled,
    money once something without a price was paid for. Dollars, exact, as text: what is booked so far."""
    job = snapshot.job
    counts = dict(job.counts) or _counted(snapshot)
    spent = spent_on(snapshot.submissions)
    return {
        "job_key": job.job_key,
        "state": job.state.value,
        **({"dry_run": True} if job.dry_run else {}),
        **({"queue_position": snapshot.queue_position} if snapshot.queue_position else {}),
        **({"waits_in_vain": snapshot.waits_in_vain} if snapshot.waits_in_vain else {}),
        "tenant": job.tenant,
        "spec": job.spec,
        "dataset_version": job.dataset_version,
        "attempts": job.attempt,
        "expected": job.expected,
        **{name: counts.get(name) for name in _FINAL_COUNTS},
        "submissions": counts.get("submissions", 0),
        "provider_jobs": counts.get("provider_jobs", 0),
        "cost_usd": usd(spent.known_cost),
        "waste_usd": usd(spent.known_waste),
        "certificate": job.certificate or None,
        "results_uri": job.results_uri or None,
        "report": job.report or None,
    }


def listing(job: Job, queue_position: int | None = None) -> dict[str, Any]:
    """One entry of `tallybatch jobs --json`. Times are ISO 8601, UTC."""
    return {
        "job_key": job.job_key,
        "state": job.state.value,
        "queue_position": queue_position,
        "tenant": job.tenant,
        "spec": job.spec,
        "dataset_version": job.dataset_version,
        "attempts": job.attempt,
        "expected": job.expected,
        "succeeded": job.counts.get("succeeded"),
        "failed": job.counts.get("failed"),
        "created_at": iso(job.created_at),
        "updated_at": iso(job.updated_at),
        "source_uri": job.source_uri,
        "reason": job.reason,
    }


def job_page(snapshot: Snapshot) -> RenderableType:
    """Everything about one job for a terminal."""
    job, shown = snapshot.job, document(snapshot)
    about: list[tuple[str, Any]] = [
        ("job", job.job_key),
        ("state", state_text(job.state.value)),
        ("queued", f"position {snapshot.queue_position}" if snapshot.queue_position else ""),
        ("waits in vain", snapshot.waits_in_vain),
        ("dry run", "yes: drop the file without it to start the job" if job.dry_run else ""),
        ("approval", _approval(job)),
        ("reason", job.reason),
        ("tenant / spec", f"{job.tenant} / {job.spec}"),
        ("dataset version", job.dataset_version),
        ("source", job.source_uri),
        ("model", f"{job.provider} {job.model_resolved}".strip()),
        ("created", iso(job.created_at)),
        ("updated", iso(job.updated_at)),
        ("attempts", job.attempt),
        ("records", _sentence(shown)),
        ("provider jobs", f"{shown['provider_jobs']} for {_submissions(shown['submissions'])}"),
        ("cost", _dollars(shown)),
        ("certificate", job.certificate),
        ("results", job.results_uri),
        ("report", job.report),
    ]
    parts: list[RenderableType] = [facts([(name, value) for name, value in about if value not in ("", None)])]
    if snapshot.submissions:
        columns = ("attempt", "shard", "state", "records", "outcomes", "provider job")
        rows = [
            (row.attempt, row.shard_id, row.state.value, row.input_records, _classes(row.counts), row.provider_job_id)
            for row in snapshot.submissions
        ]
        parts.append(table(columns, rows, title="\nsubmissions"))
    return Group(*parts)


def jobs_table(jobs: Sequence[Job], queued: Mapping[str, int]) -> RenderableType:
    columns = ("job", "state", "tenant", "spec", "dataset version", "records", "accepted", "failed", "created")
    return table(
        columns,
        [
            (
                job.job_key[:12],
                state_text(f"queued, position {queued[job.job_key]}" if job.job_key in queued else job.state.value),
                job.tenant,
                job.spec,
                job.dataset_version,
                job.expected,
                job.counts.get("succeeded"),
                job.counts.get("failed"),
                iso(job.created_at),
            )
            for job in jobs
        ],
    )


def accepted_so_far(submissions: Sequence[Submission]) -> int:
    """Records with an accepted answer; each is accepted in one submission only."""
    return sum(row.counts.get(name.value, 0) for row in submissions for name in ACCEPTED)


def provider_jobs(row: Submission) -> int:
    """How many jobs the provider was made to create for a submission."""
    bound = bool(row.provider_job_id) and row.lane != ON_DEMAND
    return bound + len(row.earlier_jobs) + len(row.ghosts)


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _counted(snapshot: Snapshot) -> dict[str, int]:
    """What the submissions alone tell of a job whose sets were not reconciled."""
    submissions = snapshot.submissions
    return {
        "succeeded": accepted_so_far(submissions),
        "reused": sum(row.counts.get("reused", 0) for row in submissions),
        "submissions": sum(1 for row in submissions if provider_jobs(row) or row.refusal or row.lane == ON_DEMAND),
        "provider_jobs": sum(provider_jobs(row) for row in submissions),
    }


def spent_on(submissions: Sequence[Submission]) -> Money:
    return money((row.attempt, row.costs, row.duplicate_cost_nano_usd, row.unpriced) for row in submissions)


def _submissions(count: int) -> str:
    return "1 submission" if count == 1 else f"{count:,} submissions"


def _dollars(shown: dict[str, Any]) -> str:
    if shown["cost_usd"] is None:
        return "unpriced"
    waste = f", {shown['waste_usd']} of it for no accepted answer" if shown["waste_usd"] != "0" else ""
    return f"{shown['cost_usd']} US dollars{waste}"


def _sentence(shown: dict[str, Any]) -> str:
    known = [f"{shown[name]} {name.replace('_', ' ')}" for name in _FINAL_COUNTS if shown[name]]
    return f"{shown['expected']} expected" + (": " + ", ".join(known) if known else "")


def _approval(job: Job) -> str:
    asked = job.approval
    if asked is None:
        return ""
    if asked.decision:
        return f"{asked.decision} by {asked.decided_by} at {iso(asked.decided_at)}"
    if job.state in JOB_FINAL:
        return f"expired at {iso(asked.expires_at)}"
    return f"waits for `tallybatch approve {job.job_key[:12]}` until {iso(asked.expires_at)}"


def _classes(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(counts).most_common())
