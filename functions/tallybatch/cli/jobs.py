"""`tallybatch jobs`, `show`, `follow` and `report`: what runs, and how it ended."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from tallybatch.cli import output
from tallybatch.cli.errors import ExitCode
from tallybatch.cli.finding import find_job
from tallybatch.cli.following import follow as follow_job
from tallybatch.cli.following import look
from tallybatch.cli.options import AsJson, EndpointUrl, JobRef, Since, StackName, connected, moment_of
from tallybatch.cli.queueing import turns
from tallybatch.cli.reports import open_page, read_report
from tallybatch.cli.view import Snapshot, document, job_page, jobs_table, listing
from tallybatch.domain.lifecycle import JobState


def jobs(
    ctx: typer.Context,
    state: Annotated[
        list[JobState] | None, typer.Option("--state", case_sensitive=False, help="Only these; may be repeated.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", metavar="TENANT", help="Only this tenant's.")] = "",
    since: Since = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 100,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first.

    Example: `tallybatch jobs --state FAILED --since 24h`
    """
    begin = moment_of(since)
    connection = connected(ctx, stack, endpoint_url)
    found = connection.ledger.jobs(tenant=tenant, since=begin)
    wanted = (job for job in found if not state or job.state in state)
    shown = list(islice(wanted, limit))
    if next(wanted, None) is not None:
        output.note(f"only the newest {limit} are shown; see --limit")
    if not shown:
        output.note("no job fits" if state or tenant or since else "there are no jobs yet: drop a file with `submit`")
    queued = {job_key: turn.position for job_key, turn in turns(shown, connection.ledger).items()}
    told = [listing(job, queued.get(job.job_key)) for job in shown]
    output.answer(told, as_json=as_json, human=jobs_table(shown, queued))


def show(
    ctx: typer.Context, job: JobRef, stack: StackName = "", endpoint_url: EndpointUrl = "", as_json: AsJson = False
) -> None:
    """Show one job as it is now.

    Example: `tallybatch show 1f3a9c`
    """
    connection = connected(ctx, stack, endpoint_url)
    snapshot = look(connection, find_job(connection, job).job_key)
    output.answer(document(snapshot), as_json=as_json, human=job_page(snapshot))


def follow(
    ctx: typer.Context, job: JobRef, stack: StackName = "", endpoint_url: EndpointUrl = "", as_json: AsJson = False
) -> None:
    """Watch a job until it ends. Exit code 0 if it completed, 1 otherwise. Ctrl-C ends the watching, not the job.

    Example: `tallybatch follow 1f3a9c --json`
    """
    connection = connected(ctx, stack, endpoint_url)
    show_end(follow_job(connection, find_job(connection, job).job_key), as_json=as_json)


def report(
    ctx: typer.Context,
    job: JobRef,
    with_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Print a job's report: the verdict, what failed and why, what to do next. With --json all of report.json.

    Example: `tallybatch report 1f3a9c --open`
    """
    connection = connected(ctx, stack, endpoint_url)
    found = find_job(connection, job)
    read = read_report(connection, found)
    if with_browser:
        output.note(f"opened {open_page(connection, found)}")
    output.answer(read, as_json=as_json, human=_report_page(read, found.report))


def show_end(snapshot: Snapshot, *, as_json: bool) -> None:
    """Print how a job ended, and end with the exit code of that."""
    output.answer(document(snapshot), as_json=as_json, human=job_page(snapshot))
    if snapshot.job.state is not JobState.COMPLETED:
        raise typer.Exit(ExitCode.NOT_COMPLETED)


def _report_page(read: dict[str, Any], uri: str) -> Group:
    facts: list[tuple[str, Any]] = [
        ("job", read["job_key"]),
        ("state", output.state_text(read["state"])),
        ("verdict", read["verdict"]),
        *((name, count) for name, count in read.get("counts", {}).items()),
        *((f"{name} tokens", count) for name, count in read.get("tokens", {}).items()),
        *_bill(read.get("money") or {}),
        *(("failed", f"{row['records']} {row['class']}: {row['meaning']}") for row in read.get("failed_by_class", ())),
        *(
            ("review", f"{row['records']} {row['class']}: {row['meaning']}")
            for row in read.get("in_review_by_class", ())
        ),
        *(("anomaly", f"{row['count']} {row['anomaly']}: {row['meaning']}") for row in read.get("anomalies", ())),
        *(("next", step) for step in read.get("next_steps", ())),
        ("page", uri),
    ]
    bad = read.get("refusal", {}).get("first", ())
    lines = [Text(f"  line {row['line']}: {row['reason']}" if row["line"] else f"  {row['reason']}") for row in bad]
    return Group(output.facts(facts), *lines)


def _bill(money: dict[str, Any]) -> list[tuple[str, Any]]:
    """None of it for a job of which nothing was sent."""
    if "cost_usd" not in money:
        return []
    cost = money["cost_usd"]
    told = f"unknown: {money['unpriced']} executions have no price" if cost is None else f"{cost} US dollars"
    lines = [(row["line"].replace("_", " "), f"{row['cost_usd']} US dollars") for row in money.get("lines", ())]
    return [("cost", told), *(lines if len(lines) > 1 else [])]
