"""`tallybatch submit`: a file into the inbox, and the job that comes of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tallybatch.cli import output
from tallybatch.cli.dropping import Drop, await_job, drop, inbox_key, require_records
from tallybatch.cli.errors import ExitCode
from tallybatch.cli.following import follow
from tallybatch.cli.jobs import show_end
from tallybatch.cli.options import AsJson, EndpointUrl, Follow, StackName, Tenant, connected
from tallybatch.cli.planning import plan_facts
from tallybatch.cli.reports import read_report
from tallybatch.cli.specs import CheckedSpec, load_spec, push_spec, pushed_spec, require_name
from tallybatch.cli.stack import Connection
from tallybatch.domain.errors import BadInput, NotFound, Problem
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.rows import Job

_SETTLE_TRIES = 40
"""Half seconds that a dry run may take from its row to VALIDATED."""


def submit(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Records, one JSON object a line: .jsonl or .jsonl.gz.")],
    spec: Annotated[
        str,
        typer.Option("--spec", metavar="NAME|FILE", help="A pushed spec's name, or a YAML file that is pushed first."),
    ],
    tenant: Tenant = "default",
    dataset_version: Annotated[
        str,
        typer.Option(
            metavar="VERSION", show_default="today's date, UTC", help="The name of this state of the source data."
        ),
    ] = "",
    with_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Prepare and validate only: what the job would take. Spends nothing.")
    ] = False,
    with_follow: Follow = False,
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Upload a file to the inbox and name its job. The same content under the same spec is the same job: it is never
    paid twice. Exit code 3 if the file is refused; then every bad line is named and nothing was spent.

    Example: `tallybatch submit films.jsonl --spec film-genre.yaml --follow`
    """
    version = dataset_version or datetime.now(UTC).strftime("%Y-%m-%d")
    require_records(file)
    require_name(tenant, "--tenant")
    local = load_spec(Path(spec)) if _is_path(spec) else None
    inbox_key(tenant, local.spec.name if local else spec, version, file)
    connection = connected(ctx, stack, endpoint_url)
    output.note(f"to {connection.place}")
    found = _stored_spec(connection, tenant, spec, local)
    began = connection.clock.now()
    dropped = drop(connection, file, found, tenant, version, dry_run=with_dry_run)
    output.note(f"dropped at {connection.objects.uri(dropped.key)}")
    job = await_job(connection, dropped)
    _stop_if_refused(connection, dropped, job, file)
    _tell_bad_lines(connection, job)
    if job.state is JobState.COMPLETED and job.updated_at <= began:
        output.note("this content has completed under this spec before: nothing is sent or paid again")
    if with_dry_run:
        _show_plan(connection, job, as_json=as_json)
        return
    if with_follow:
        show_end(follow(connection, job.job_key), as_json=as_json)
        return
    document = {
        "job_key": job.job_key,
        "state": job.state.value,
        "source_uri": connection.objects.uri(dropped.key),
        "bucket": connection.objects.bucket,
    }
    output.answer(document, as_json=as_json, human=output.facts(list(document.items())))
    if job.state is JobState.FAILED:
        output.note(f"the job failed: {job.reason}")
        raise typer.Exit(ExitCode.NOT_COMPLETED)


def _show_plan(connection: Connection, job: Job, *, as_json: bool) -> None:
    """A file that is a job already needs no plan: dropped again, it would cost nothing, or what is still open."""
    plan: dict[str, Any] | None = None
    for _ in range(_SETTLE_TRIES):
        if job.state is not JobState.CREATED:
            break
        connection.sleep(0.5)
        job = connection.ledger.job(job.job_key) or job
    if job.dry_run:
        plan = json.loads(connection.objects.get(JobKeys(job.tenant, job.job_key).plan))
    else:
        output.note(f"this file is a job already, {job.state.value}: nothing was prepared or changed")
    told = {"job_key": job.job_key, "state": job.state.value, "dry_run": job.dry_run, "plan": plan}
    rows = [("job", job.job_key), ("state", output.state_text(job.state.value)), ("dry run", job.dry_run)]
    if plan is not None:
        rows += plan_facts(plan, without_bad_lines=bool(plan["quarantined_lines"]))
    output.answer(told, as_json=as_json, human=output.facts(rows))


def _tell_bad_lines(connection: Connection, job: Job) -> None:
    """With `on_bad_line: quarantine` they stay behind while the rest goes on, which nobody may have to find out."""
    keys = JobKeys(job.tenant, job.job_key)
    try:
        manifest = Manifest.model_validate_json(connection.objects.get(keys.manifest))
    except NotFound:
        return
    if left := manifest.source.quarantined_lines:
        lines = "1 bad line stays" if left == 1 else f"{left:,} bad lines stay"
        output.note(f"{lines} behind, named with reasons in {connection.objects.uri(keys.bad_lines())}")


def _is_path(spec: str) -> bool:
    return spec.endswith((".yaml", ".yml")) or "/" in spec or "\\" in spec


def _stored_spec(connection: Connection, tenant: str, name: str, local: CheckedSpec | None) -> CheckedSpec:
    if local is None:
        return pushed_spec(connection.objects, tenant, name)
    if push_spec(connection.objects, tenant, local):
        output.note(f"pushed spec {local.spec.name} for tenant {tenant}")
    return local


def _stop_if_refused(connection: Connection, dropped: Drop, job: Job, file: Path) -> None:
    """Raises `BadInput` with the bad lines that the report lists."""
    if job.job_key != dropped.refused_job_key:
        return
    read = read_report(connection, job)
    refusal = read["refusal"]
    problems = [Problem(p["reason"], p["line"], p["key"], p["code"]) for p in refusal["first"]]
    rest = refusal["bad_count"] - len(problems)
    steps = [*read["next_steps"], f"the report is at {job.report}"]
    if rest > 0:
        steps.insert(0, f"{rest} more bad lines are in {refusal['bad_lines']}")
    where = str(file) if refusal["where"] == dropped.key else refusal["where"]
    raise BadInput(refusal["what"], problems, where=where, do="; ".join(step.rstrip(".") for step in steps))
