"""`tallybatch approve`: let a job go on after its canary, or say no."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from tallybatch.cli import output
from tallybatch.cli.errors import ExitCode
from tallybatch.cli.finding import find_job
from tallybatch.cli.following import follow as follow_job
from tallybatch.cli.following import look
from tallybatch.cli.options import AsJson, EndpointUrl, Follow, JobRef, StackName, connected
from tallybatch.cli.stack import Connection
from tallybatch.cli.view import document, iso, job_page
from tallybatch.domain.errors import NotFound
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Approval, Job
from tallybatch.steps import answer_approval


def approve(
    ctx: typer.Context,
    job: JobRef,
    with_reject: Annotated[bool, typer.Option("--reject", help="Say no: the job ends CANCELLED.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit.")] = "",
    with_follow: Follow = False,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Let a job go on whose canary has passed and whose spec says `approval: manual`, or reject it. Who decided, and
    when, is kept with the job. Deciding the same twice changes nothing.

    Example: `tallybatch approve 1f3a9c --reason "labels look right"`
    """
    connection = connected(ctx, stack, endpoint_url)
    ports = answer_approval.Ports(connection.objects, connection.ledger, connection.tokens, connection.clock)
    job_key = find_job(connection, job).job_key
    row = answer_approval.run(job_key, approve=not with_reject, who=connection.who(), reason=reason, ports=ports)
    assert row.approval is not None  # noqa: S101 - the step has just returned it
    canary = _canary(connection, row, row.approval)
    output.note(_sentence(row.approval, canary))
    snapshot = follow_job(connection, job_key) if with_follow else look(connection, job_key)
    told = {**document(snapshot), "approval": decided(row.approval), "canary": canary}
    output.answer(told, as_json=as_json, human=Group(job_page(snapshot), Text("\n" + _sentence(row.approval, canary))))
    wanted = JobState.CANCELLED if with_reject else JobState.COMPLETED
    if with_follow and snapshot.job.state is not wanted:
        raise typer.Exit(ExitCode.NOT_COMPLETED)


def decided(approval: Approval) -> dict[str, Any]:
    """As shown; never with its token. Times are ISO 8601, UTC."""
    return {
        "attempt": approval.attempt,
        "asked_at": iso(approval.asked_at),
        "expires_at": iso(approval.expires_at),
        "decision": approval.decision or None,
        "decided_at": iso(approval.decided_at) if approval.decided_at else None,
        "decided_by": approval.decided_by or None,
        "reason": approval.reason or None,
    }


def _canary(connection: Connection, job: Job, approval: Approval) -> dict[str, Any] | None:
    try:
        stored = connection.objects.get(JobKeys(job.tenant, job.job_key).canary(approval.attempt))
    except NotFound:
        return None
    told: dict[str, Any] = json.loads(stored)
    return told


def _sentence(approval: Approval, canary: dict[str, Any] | None) -> str:
    figures = f": {canary['why']}" if canary else ""
    return f"The canary was {approval.decision} by {approval.decided_by} at {iso(approval.decided_at)}{figures}"
