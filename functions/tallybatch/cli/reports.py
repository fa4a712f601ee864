"""The job report: read it, show its essence, open its page."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path
from typing import Any

import msgspec

from tallybatch.cli.output import note
from tallybatch.cli.stack import Connection
from tallybatch.domain.errors import NotFound
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.rows import Job


def read_report(connection: Connection, job: Job) -> dict[str, Any]:
    """report.json. Raises `NotFound` for a job that has none yet."""
    try:
        found: dict[str, Any] = msgspec.json.decode(connection.objects.get(_keys(job).report_json))
    except NotFound:
        raise NotFound(
            "the job has no report yet",
            where=f"job {job.job_key}",
            why=stands(job),
            do=what_then(job),
        ) from None
    return found


def stands(job: Job) -> str:
    """How it is with a job that lacks what was asked for."""
    state = "a dry run" if job.dry_run else job.state.value
    return f"it is {state}" + (f": {job.reason}" if job.reason else "")


def what_then(job: Job | None) -> str:
    """Nothing works on a dry run, so there is no end of it to wait for."""
    if job is not None and job.dry_run:
        return "drop the file in earnest; what it would take is in plan.json: tallybatch submit FILE --spec S --dry-run"
    return "wait for its end with `tallybatch follow`"


def open_page(connection: Connection, job: Job) -> Path:
    """Store the page on this machine and open it in a browser."""
    page = connection.objects.get(_keys(job).report_html)
    folder = Path(tempfile.gettempdir()) / "tallybatch-reports"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{job.job_key}.html"
    path.write_bytes(page)
    if not webbrowser.open(path.as_uri()):
        note("no browser could be opened")
    return path


def _keys(job: Job) -> JobKeys:
    return JobKeys(job.tenant, job.job_key)
