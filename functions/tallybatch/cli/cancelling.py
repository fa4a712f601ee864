"""`tallybatch cancel`: ask for a job's end, and say what follows from it."""

from __future__ import annotations

import typer
from rich.console import Group
from rich.text import Text

from tallybatch.cli import output
from tallybatch.cli.errors import ExitCode
from tallybatch.cli.finding import find_job
from tallybatch.cli.following import follow as follow_job
from tallybatch.cli.following import look
from tallybatch.cli.options import AsJson, EndpointUrl, Follow, JobRef, StackName, connected
from tallybatch.cli.view import Snapshot, document, iso, job_page
from tallybatch.domain.lifecycle import JOB_FINAL, JobState, SubmissionState
from tallybatch.steps import answer_approval, cancel_job

_AS_ASKED = frozenset({JobState.CANCELLED, JobState.COMPLETED})
"""It may complete all the same, if every answer was in before it was asked."""
_OUT = frozenset({SubmissionState.SUBMITTED, SubmissionState.RUNNING})


def cancel(
    ctx: typer.Context,
    job: JobRef,
    with_follow: Follow = False,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Cancel a job: nothing more is submitted, what is out is cancelled at its provider, and what was answered by then
    is accepted. The same file, dropped again, pays only for the rest.

    Example: `tallybatch cancel 1f3a9c --follow`
    """
    connection = connected(ctx, stack, endpoint_url)
    row = cancel_job.run(find_job(connection, job).job_key, connection.ledger, connection.clock)
    job_key = row.job_key
    if row.state not in JOB_FINAL:
        answer_approval.wake(row, connection.tokens)
    snapshot = look(connection, job_key)
    if with_follow and not snapshot.ended:
        output.note(what_follows(snapshot))
        snapshot = follow_job(connection, job_key)
    asked_at = snapshot.job.cancel_requested_at
    told = {**document(snapshot), "cancel_requested_at": iso(asked_at) if asked_at else None}
    human = Group(job_page(snapshot), Text("\n" + what_follows(snapshot)))
    output.answer(told, as_json=as_json, human=human)
    if with_follow and snapshot.job.state not in _AS_ASKED:
        raise typer.Exit(ExitCode.NOT_COMPLETED)


def what_follows(snapshot: Snapshot) -> str:
    """One sentence for whoever has just asked for a job's end."""
    job = snapshot.job
    if job.state is JobState.CANCELLED:
        return "Cancelled. Drop the file again to pay only for the records without an answer."
    if job.dry_run:
        return "Nothing to cancel: it was a dry run."
    if snapshot.ended:
        return f"Nothing to cancel: the job has ended {job.state.value}."
    out = sum(row.state in _OUT for row in snapshot.submissions)
    what = f"{out} at the provider will be cancelled and harvested" if out else "nothing is at the provider"
    return f"Asked to cancel; {what}. Watch it: tallybatch follow {job.job_key[:12]}"
