"""`tallybatch demo`: the embedded default in one go, from nothing to a verified certificate.

Each run is a tenant of its own, so that no answer is reused and every run shows all the work.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from infra.local import stack
from infra.local.simulator.client import SimulatorControl
from tallybatch.cli import output
from tallybatch.cli.dropping import await_job, drop
from tallybatch.cli.errors import ExitCode
from tallybatch.cli.following import follow
from tallybatch.cli.options import AsJson
from tallybatch.cli.specs import load_spec, push_spec
from tallybatch.cli.stack import Connection, Place, connect_to
from tallybatch.cli.view import Snapshot, document, job_page
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.outcomes import ACCEPTED
from tallybatch.steps import verify_job
from tallybatch.steps.verify_job import Verification

FOLDER = Path(__file__).parent / "demo"
FILMS = FOLDER / "movies.jsonl"
SPEC = FOLDER / "film-genre.yaml"


def demo(
    records: Annotated[
        int, typer.Option("--records", min=1, metavar="N", help="How many of the 3,201 films to send.")
    ] = 3201,
    scenario: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="The simulator's answers and faults: a built-in name or a file.")
    ] = "demo",
    state_dir: Annotated[
        Path, typer.Option("--state-dir", help="Where the local stack keeps its state.", show_default=False)
    ] = stack.STATE_DIR,
    as_json: AsJson = False,
) -> None:
    """Start the local stack, drop a file of real films into its bucket, follow the job to its certificate, and prove
    that. Needs no AWS account and no key; the provider is simulated, with faults on purpose.

    Example: `tallybatch demo --records 3201`
    """
    status = stack.up(state_dir, scenario=scenario, report=output.note)
    assert status.endpoint_url and status.stack and status.simulator_url  # noqa: S101 - `up` says that they are there
    simulator = SimulatorControl(status.simulator_url)
    simulator.set_scenario(scenario)
    before = simulator.journal()
    connection = connect_to(Place(status.stack, status.endpoint_url, status.region))
    ended = _run(connection, records)
    verification = _verified(connection, ended)
    told = Told.of(before, simulator.journal(), ended)
    human = Group(job_page(ended), _story(told, verification, ended))
    output.answer(document(ended), as_json=as_json, human=human)
    if ended.job.state is not JobState.COMPLETED or verification is None or not verification.ok:
        raise typer.Exit(ExitCode.NOT_COMPLETED)


def films(count: int, to: Path) -> Path:
    """The first `count` films, as a file of their own."""
    with FILMS.open("rb") as lines:
        chosen = list(islice(lines, count))
    if len(chosen) < count:
        raise typer.BadParameter(f"there are {len(chosen)} films only", param_hint="--records")
    to.write_bytes(b"".join(chosen))
    return to


def _run(connection: Connection, records: int) -> Snapshot:
    now = datetime.now(UTC)
    tenant = f"demo-{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03}"
    spec = load_spec(SPEC)
    with tempfile.TemporaryDirectory(prefix="tallybatch-demo-") as folder:
        file = films(records, Path(folder) / "movies.jsonl")
        push_spec(connection.objects, tenant, spec)
        dropped = drop(connection, file, spec, tenant, f"{now:%Y-%m-%d}")
        output.note(f"dropped {records} films at {connection.objects.uri(dropped.key)}")
        job = await_job(connection, dropped)
    output.note(f"job {job.job_key}")
    return follow(connection, job.job_key)


def _verified(connection: Connection, ended: Snapshot) -> Verification | None:
    """None for a job without a certificate."""
    if not ended.job.certificate:
        return None
    output.note("verifying the certificate from the objects alone")
    found = verify_job.run(connection.objects, JobKeys(ended.job.tenant, ended.job.job_key))
    if not found.ok:
        output.note(f"not as certified: {found.difference}")
    return found


@dataclass(frozen=True, slots=True)
class Told:
    """What the provider's side says of this run: the journal of the simulator, for the job's submissions."""

    provider_jobs: int
    most_per_submission: int
    faults: Mapping[str, int]
    """By kind, injected while the run lasted."""

    @classmethod
    def of(cls, before: Mapping[str, Any], after: Mapping[str, Any], ended: Snapshot) -> Told:
        markers = {row.submission_key for row in ended.submissions}
        jobs = [count for marker, count in after["jobs_per_marker"].items() if marker in markers]
        faults = Counter(after["faults"])
        faults.subtract(before["faults"])
        return cls(sum(jobs), max(jobs, default=0), {kind: count for kind, count in faults.items() if count > 0})


def _fault(kind: str) -> str:
    """`openai.create.lost_reply` in words."""
    *where, what = kind.split(".")
    return " ".join([*where[1:], what.replace("_", " ")])


def _story(told: Told, verification: Verification | None, ended: Snapshot) -> Group:
    """What went wrong on purpose, and what came of it."""
    job = ended.job
    accepted, failed = job.counts.get("succeeded", 0), job.counts.get("failed", 0)
    faults = [f"{count} {_fault(kind)}" for kind, count in sorted(told.faults.items())]
    lost = Counter[str]()
    for row in ended.submissions:
        lost.update({kind: count for kind, count in row.counts.items() if kind not in ACCEPTED})
    faults += [f"{count} records {kind}" for kind, count in lost.most_common()]
    rows: list[tuple[str, Any]] = [
        ("went wrong on purpose", ", ".join(faults) or "nothing"),
        (
            "paid for",
            f"{told.provider_jobs} provider jobs, at most {told.most_per_submission} per submission",
        ),
        ("came back", f"{accepted} of {job.expected} with one accepted answer each, {failed} failed and named"),
    ]
    if verification is not None:
        proof = f"{verification.checked_objects} objects and {verification.checked_records} records checked"
        rows.append(("proof", proof if verification.ok else f"NOT as certified: {verification.difference}"))
    rows.append(("look", f"tallybatch report {job.job_key[:12]} --open"))
    return Group(Text(""), output.facts(rows))
