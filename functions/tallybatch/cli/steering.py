"""`tallybatch resume`, `acknowledge` and `publish --partial`: what a person asks of a job that has ended."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.text import Text

from tallybatch.cli import output
from tallybatch.cli.finding import find_job
from tallybatch.cli.following import follow as follow_job
from tallybatch.cli.jobs import show_end
from tallybatch.cli.options import AsJson, By, EndpointUrl, Follow, JobRef, StackName, connected, person
from tallybatch.cli.stack import RESUME_JOB, Connection
from tallybatch.contracts import ResumeReply, ResumeRequest

Action = Literal["resume", "acknowledge", "publish_partial"]


def resume(
    ctx: typer.Context,
    job: JobRef,
    by: By = "",
    with_follow: Follow = False,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Go on with a job that ended PARTIAL, FAILED, CANCELLED or EXPIRED, without dropping its file again. Accepted
    answers are kept; only what is open is paid.

    Example: `tallybatch resume 1f3a9c --follow`
    """
    _ask(connected(ctx, stack, endpoint_url), job, "resume", by, with_follow=with_follow, as_json=as_json)


def acknowledge(
    ctx: typer.Context,
    job: JobRef,
    by: By = "",
    with_follow: Follow = False,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Put on record that you have seen the result lines with unknown ids in quarantine/. They count no more, and the
    job closes if nothing else keeps it open.

    Example: `tallybatch acknowledge 1f3a9c --by ada`
    """
    _ask(connected(ctx, stack, endpoint_url), job, "acknowledge", by, with_follow=with_follow, as_json=as_json)


def publish(
    ctx: typer.Context,
    job: JobRef,
    partial: Annotated[bool, typer.Option("--partial", help="Publish what there is, marked as a part.")] = False,
    by: By = "",
    with_follow: Follow = False,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Publish what a job has accepted although its sets do not close. current.json and the certificate say that it is a
    part, and who asked; completing the job replaces it. A job that closes is published without being asked.

    Example: `tallybatch publish 1f3a9c --partial --by ada`
    """
    if not partial:
        raise typer.BadParameter("only --partial is yours to ask for: a job that closes publishes by itself")
    _ask(connected(ctx, stack, endpoint_url), job, "publish_partial", by, with_follow=with_follow, as_json=as_json)


def _ask(connection: Connection, ref: str, action: Action, by: str, *, with_follow: bool, as_json: bool) -> None:
    job = find_job(connection, ref)
    request = ResumeRequest(job_key=job.job_key, action=action, by=person(by))
    reply = ResumeReply.model_validate(connection.invoke(RESUME_JOB, request.model_dump()))
    if with_follow and reply.started:
        output.note(what_follows(reply, action))
        show_end(follow_job(connection, job.job_key), as_json=as_json)
        return
    facts = output.facts(
        [("job", reply.job_key), ("state", output.state_text(reply.state)), ("attempt", reply.attempt)]
    )
    output.answer(reply.model_dump(), as_json=as_json, human=Group(facts, Text("\n" + what_follows(reply, action))))


def what_follows(reply: ResumeReply, action: Action) -> str:
    """One sentence for whoever has just asked."""
    watch = f"Watch it: tallybatch follow {reply.job_key[:12]}"
    seen = f"{reply.acknowledged} unknown lines are acknowledged by {reply.by}. " if reply.acknowledged else ""
    if reply.started:
        what = "What was accepted is published as a part" if action == "publish_partial" else "The job goes on"
        return f"{seen}{what}. {watch}"
    if reply.left:
        left = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in reply.left.items())
        following = "review list" if set(reply.left) == {"in_review"} else "resume"
        return f"{seen}The job stays {reply.state}: {left}. Go on with: tallybatch {following} {reply.job_key[:12]}"
    if reply.stopped:
        return f"The job's execution was stopped. Go on with: tallybatch resume {reply.job_key[:12]}"
    if reply.at_work:
        end = ", and will end CANCELLED: ask again then" if reply.cancelling else ""
        return f"Nothing was changed: the job is at work ({reply.state}){end}. {watch}"
    return seen or "There are no unknown ids to acknowledge."
