"""`tallybatch review list`, `export` and `resolve`: the human queue, JSONL in and out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from tallybatch.cli import output
from tallybatch.cli.errors import ExitCode
from tallybatch.cli.files import read_file
from tallybatch.cli.finding import find_job
from tallybatch.cli.following import follow as follow_job
from tallybatch.cli.jobs import show_end
from tallybatch.cli.options import AsJson, By, EndpointUrl, Follow, JobRef, StackName, connected, person
from tallybatch.cli.reports import stands, what_then
from tallybatch.cli.stack import RESOLVE_REVIEW, Connection
from tallybatch.cli.view import iso
from tallybatch.contracts import ReviewReply, ReviewRequest
from tallybatch.domain.errors import NotFound
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JOB_FINAL
from tallybatch.domain.review import decode_entry
from tallybatch.domain.rows import Job
from tallybatch.steps.review_decisions import standing_decisions
from tallybatch.steps.review_queue import queue_lines

_SHOWN = 20

app = typer.Typer(
    no_args_is_help=True,
    help="Records that people decide about: list, export, resolve.\n\n"
    "Example: `tallybatch review export 1f3a9c --out queue.jsonl`",
)


@app.command("list")
def list_(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(metavar="[JOB]", help="A job_key or a prefix; without it, all jobs.")] = "",
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """List the jobs with records that wait for people, or one job's records: which, and why.

    Example: `tallybatch review list 1f3a9c`
    """
    connection = connected(ctx, stack, endpoint_url)
    if not job:
        waiting = [_summary(found) for found in connection.ledger.jobs() if _waits(found)]
        columns = ("job", "state", "tenant", "spec", "in review", "sampled")
        rows = [tuple(str(row[name])[:12] if name == "job_key" else row[name] for name in row) for row in waiting]
        if not waiting:
            output.note("no record waits for people")
        output.answer(waiting, as_json=as_json, human=output.table(columns, rows))
        return
    found = find_job(connection, job)
    entries = [decode_entry(line) for line in _waiting_lines(found, connection)]
    document = {
        **_summary(found),
        "by_why": dict(sorted(Counter(entry.why for entry in entries).items())),
        "records": [
            {"record_id": entry.record_id, "business_key": entry.business_key, "why": entry.why} for entry in entries
        ],
    }
    output.answer(document, as_json=as_json, human=_page(document))


@app.command()
def export(
    ctx: typer.Context,
    job: JobRef,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", dir_okay=False, help="JSONL file to write.")],
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Write a job's queue as JSONL: each record with its input and all that came back for it. Fill in "decision"
    (accept with "output", reject with "reason", or requeue) and hand it in with `review resolve`.

    Example: `tallybatch review export 1f3a9c --out queue.jsonl`
    """
    connection = connected(ctx, stack, endpoint_url)
    found = find_job(connection, job)
    records = 0
    with out.open("wb") as file:
        for line in _waiting_lines(found, connection):
            file.write(line + b"\n")
            records += 1
    document = {"job_key": found.job_key, "records": records, "out": str(out)}
    output.answer(document, as_json=as_json, human=output.facts(list(document.items())))


@app.command()
def resolve(
    ctx: typer.Context,
    job: JobRef,
    decisions: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL: one decision a line.")],
    by: By = "",
    with_follow: Follow = False,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Hand in decisions: `{"business_key" or "record_id", "decision": "accept", "output": …}`, `"reject"` with a
    `"reason"`, or `"requeue"` for one more try. The job goes on at once, and closes with the last of them. Exit code 1
    if somebody else had decided otherwise about a record before.

    Example: `tallybatch review resolve 1f3a9c queue.jsonl --by ada`
    """
    connection = connected(ctx, stack, endpoint_url)
    found = find_job(connection, job)
    data = read_file(decisions)
    key = JobKeys(found.tenant, found.job_key).review_handed_in(hashlib.sha256(data).hexdigest())
    connection.objects.put_once(key, data, content_type="application/x-ndjson", retention="results")
    request = ReviewRequest(job_key=found.job_key, decisions_key=key, by=person(by))
    reply = ReviewReply.model_validate(connection.invoke(RESOLVE_REVIEW, request.model_dump()))
    for one in reply.already:
        output.note(f"{one['business_key']}: decided before, {one['decision']} by {one['by']} at {iso(one['at'])}")
    if reply.repeated:
        output.note("this file was handed in before; nothing was changed. To decide the same once more, add a reason")
    if with_follow and reply.applied:
        show_end(follow_job(connection, found.job_key), as_json=as_json)
        return
    output.answer(reply.model_dump(), as_json=as_json, human=_told(reply))
    if reply.already:
        raise typer.Exit(ExitCode.NOT_COMPLETED)


def _waits(job: Job) -> bool:
    return bool(job.counts.get("in_review") or job.sampled)


def _summary(job: Job) -> dict[str, Any]:
    return {
        "job_key": job.job_key,
        "state": job.state.value,
        "tenant": job.tenant,
        "spec": job.spec,
        "in_review": job.counts.get("in_review", 0),
        "sampled": job.sampled,
    }


def _waiting_lines(job: Job, connection: Connection) -> Iterator[bytes]:
    """The queue as it is stored, without what is decided. Raises `NotFound` while the job is at work: its queue is that
    of its end."""
    if job.state not in JOB_FINAL:
        raise NotFound(
            "the job has no review queue yet: it is written at the end",
            why=stands(job),
            where=f"job {job.job_key}",
            do=what_then(job),
        )
    keys = JobKeys(job.tenant, job.job_key)
    decided = standing_decisions(connection.ledger.submissions(job.job_key), keys, connection.objects)
    for line in queue_lines(job, keys, connection.objects):
        entry = decode_entry(line)
        if not entry.accepted_in or entry.record_id not in decided:
            yield line


def _page(document: dict[str, Any]) -> RenderableType:
    names = ("job_key", "state", "in_review", "sampled")
    shown = [(row["business_key"], row["why"], row["record_id"]) for row in islice(document["records"], _SHOWN)]
    parts: list[RenderableType] = [
        output.facts([*((name, document[name]) for name in names), *document["by_why"].items()]),
        output.table(("business key", "why", "record_id"), shown, title="\nrecords"),
    ]
    more = len(document["records"]) - len(shown)
    if more > 0:
        parts.append(f"and {more} more: see --json, or `review export`")
    return Group(*parts)


def _told(reply: ReviewReply) -> RenderableType:
    return output.facts(
        [
            ("job", reply.job_key),
            ("state", output.state_text(reply.state)),
            ("decided by", reply.by),
            *reply.applied.items(),
            ("decided before", len(reply.already)),
            ("without a decision", reply.undecided),
        ]
    )
