"""What to do next: the steps that a report names, for each way in which a job can end."""

from __future__ import annotations

from collections.abc import Iterable

from tallybatch.domain.closure import Closure, SubmissionEntry
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job

_WORTH_ANOTHER_RUN = ("retryable", "expired", "cancelled", "missing", "waiting")
_SHORT_KEY = 12
_MEND = {
    "FAILED": "Mend the cause named above.",
    "EXPIRED": "Answer in time, or give it more: raise canary.approval_timeout or limits.deadline in the spec.",
}
_LOWER_GATE = (
    "If the gate asks too much, change `quality` in the spec and drop the file again: accepted answers are kept, and "
    "nothing is paid again."
)
_AGAIN = "Drop the file again: the same job goes on with what is open. Accepted answers are reused, not paid again."


def after_failure(job: Job, submissions: Iterable[SubmissionEntry]) -> list[str]:
    """Of a job that ended without closure."""
    state = job.state.value
    return [
        *_published_before(job, results_uri=""),
        *([_MEND[state]] if state in _MEND else []),
        *_wait_for_provider(submissions),
        _AGAIN,
    ]


def after_reconciliation(job: Job, closure: Closure, state: str, stopped: str, *, results_uri: str) -> list[str]:
    """Of a job whose sets were closed, or told what is missing."""
    short = job.job_key[:_SHORT_KEY]
    steps = _published_before(job, results_uri=results_uri)
    if stopped:
        if closure.succeeded:
            steps.append(_LOWER_GATE)
    elif state == JobState.COMPLETED.value:
        steps.append(f"Fetch the answers: `tallybatch results {short} --out DIR`")
        steps.append(f"Prove them from the stored objects alone: `tallybatch verify {short}`")
    else:
        if closure.unknown:
            steps.append(
                "Look at the unknown ids in quarantine/; the job stays PARTIAL until they are acknowledged: "
                f"`tallybatch acknowledge {short}`."
            )
        steps += _wait_for_provider(closure.submissions)
        cancelled = state == JobState.CANCELLED.value
        if cancelled:
            steps.append(_AGAIN)
        elif closure.open:
            steps.append(f"The deadline leaves no time for what is open. {_AGAIN}")
        if closure.in_review and not cancelled:
            steps.append(
                f"{_waiting(closure.in_review_total)} for people (`review.classes`); the job stays PARTIAL until each "
                f"is decided: `tallybatch review export {short} --out FILE`, then "
                f"`tallybatch review resolve {short} FILE`."
            )
        if closure.succeeded and not results_uri:
            steps.append(f"Publish what was accepted so far, marked as a part: `tallybatch publish {short} --partial`")
        if (closure.missing and not cancelled) or closure.duplicate:
            steps.append("Compare closure.json with the outcome objects it names: records are lost or counted twice.")
    if closure.failed_total:
        steps.append(
            "Failed records are named with their reasons in the outcome objects of each submission; for one of them: "
            f"`tallybatch explain {short} RECORD`."
        )
    again = sum(closure.failed.get(name, 0) for name in _WORTH_ANOTHER_RUN)
    if again and stopped and closure.overdue:
        steps.append(f"The deadline left no time for another attempt. {_AGAIN}")
    elif again and (stopped or state == JobState.COMPLETED.value):
        steps.append(
            f"{again:,} of the failed may succeed another time: drop the file under another dataset version. "
            "Accepted answers are reused, not paid again."
        )
    return steps


def _waiting(records: int) -> str:
    return "1 record waits" if records == 1 else f"{records:,} records wait"


def _published_before(job: Job, *, results_uri: str) -> list[str]:
    """Of a job that was published, went on, and did not complete: its publication is not taken back."""
    if results_uri or not job.results_uri:
        return []
    had = "Readers still have what an earlier run of the job published, with every answer that people have withdrawn"
    return [f"{had} since ({job.results_uri}); it is replaced when the job completes."]


def _wait_for_provider(submissions: Iterable[SubmissionEntry]) -> list[str]:
    """A later job takes over records whose job has ended: while they are at the provider, that would pay twice."""
    out = sum(entry.records for entry in submissions if entry.handed_over and not entry.terminal_at)
    if not out:
        return []
    there = f"Provider jobs with {out:,} records are still out. The same file, dropped again, reads their answers"
    return [f"{there}; under another dataset version, before they have ended, these records would be paid twice."]
