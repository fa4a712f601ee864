"""Drops a file into the inbox, and finds the job that the pipeline makes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from tallybatch.cli.files import require_file
from tallybatch.cli.output import note, stderr
from tallybatch.cli.predicting import predicted_job_key
from tallybatch.cli.specs import CheckedSpec
from tallybatch.cli.stack import Connection
from tallybatch.domain.errors import BadInput, NotFound, Problem
from tallybatch.domain.identity import refused_job_key
from tallybatch.domain.layout import INBOX, JobKeys, parse_inbox_key
from tallybatch.domain.lifecycle import JOB_REOPENABLE
from tallybatch.domain.lines import CHUNK_BYTES
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.rows import Job
from tallybatch.domain.spec import Spec
from tallybatch.steps.dropped_file import DRY_RUN, drop_version

SKEW_S = 5
"""How far the clocks of S3, the function and this machine may be apart."""
GRACE_S = 6
"""A new job appears before this, unless its file is large; after it, an older job of the same content counts, too."""
PREDICT_S = 20
"""After it the file is prepared here, too: the same records in other bytes are the job of the bytes that came first."""
GIVE_UP_S = 16 * 60
"""A function prepares for 15 minutes at most."""
_POLL_S = 0.5
_REMIND_S = 30


@dataclass(frozen=True, slots=True)
class Drop:
    """A local file that is in the inbox. `at` (Unix seconds) is when S3 had it; `sha256` is of its bytes as stored;
    `version` tells this drop from others of the same bytes."""

    file: Path
    key: str
    tenant: str
    dataset_version: str
    sha256: str
    at: float
    version: str
    spec: Spec
    spec_digest: str
    dry_run: bool = False

    @property
    def refused_job_key(self) -> str:
        return refused_job_key(
            tenant=self.tenant, source_key=self.key, source_sha256=self.sha256, spec_digest=self.spec_digest
        )


def require_records(file: Path) -> None:
    """Raises `NotFound` or `BadInput` for what cannot be a file of records, by its name."""
    require_file(file)
    if not file.name.endswith((".jsonl", ".jsonl.gz")):
        problem = Problem("the name must end in .jsonl or .jsonl.gz", code="wrong_suffix")
        do = "write one JSON object a line, and name the file so"
        raise BadInput("the file is refused", [problem], where=str(file), do=do)


def inbox_key(tenant: str, spec: str, dataset_version: str, file: Path) -> str:
    """Raises `BadInput` for a name, a tenant or a dataset version that the pipeline would refuse."""
    if "/" in dataset_version:
        problem = Problem(f"{dataset_version!r} has a slash, which separates the parts of a key", code="bad_name")
        raise BadInput("the name cannot be used", [problem], where="--dataset-version", do="leave the slash out")
    return parse_inbox_key(f"{INBOX}{tenant}/{spec}/{dataset_version}/{file.name}").key


def drop(
    connection: Connection, file: Path, found: CheckedSpec, tenant: str, dataset_version: str, *, dry_run: bool = False
) -> Drop:
    """Upload a file of any size; one of the same key is replaced."""
    key = inbox_key(tenant, found.spec.name, dataset_version, file)
    size = file.stat().st_size
    sha256 = _sha256(file)
    with _upload_bar(file.name, size) as moved:
        connection.upload(file, key, moved, DRY_RUN if dry_run else "")
    stored = connection.objects.head(key)
    at = stored.last_modified if stored and stored.last_modified else connection.clock.now()
    version = drop_version(stored) if stored else ""
    return Drop(file, key, tenant, dataset_version, sha256, at, version, found.spec, found.digest, dry_run)


def await_job(connection: Connection, dropped: Drop) -> Job:
    """The job of a dropped file, as soon as the ledger has it. Content that was dropped before has its job already.
    Raises `NotFound` if none appears while a function may still be at work."""
    began = connection.clock.now()
    search = _Search(connection, dropped)
    reminded = began
    while True:
        waited = connection.clock.now() - began
        if job := search.look(waited):
            return job
        if waited >= GIVE_UP_S:
            raise NotFound(
                "no job appeared for the file",
                where=connection.objects.uri(dropped.key),
                why="the function that prepares it has not answered",
                do="look at `tallybatch jobs`, at the log of BuildManifest and at its dead letter queue",
            )
        if connection.clock.now() - reminded >= _REMIND_S:
            reminded = connection.clock.now()
            note(f"the file is being prepared ({waited:.0f} s)")
        connection.sleep(_POLL_S)


@dataclass
class _Search:
    connection: Connection
    drop: Drop
    strangers: set[str] = field(default_factory=set)
    """Keys of jobs that are of other content: what a job was made from never changes."""

    predicted: str | None = None

    def look(self, waited_s: float) -> Job | None:
        ledger, drop = self.connection.ledger, self.drop
        refused = ledger.job(drop.refused_job_key)
        if refused and refused.drop == drop.version:  # an earlier drop may have been refused for what was mended since
            return refused
        if waited_s >= PREDICT_S and self.predicted is None:
            self.predicted = predicted_job_key(drop.file, drop.spec, drop.tenant, drop.dataset_version)
        if (
            self.predicted
            and (job := ledger.job(self.predicted))
            and self._is_meant(job)
            and self._is_ours(job, same_bytes=False)
            and not self._will_reopen(job)
        ):
            return job
        for job in ledger.jobs(tenant=drop.tenant, since=drop.at - SKEW_S if waited_s < GRACE_S else 0):
            if job.job_key in self.strangers or job.dataset_version != drop.dataset_version:
                continue
            if not self._is_meant(job):
                continue
            if self._is_ours(job):
                if self._will_reopen(job):
                    continue
                return job
            self.strangers.add(job.job_key)
        return None

    def _is_meant(self, job: Job) -> bool:
        """A job that was only tried dry waits for its file to arrive in earnest."""
        return self.drop.dry_run or not job.dry_run

    def _will_reopen(self, job: Job) -> bool:
        """A job that had ended before this drop goes on once the drop has arrived; its old end is not what became of
        it."""
        drop = self.drop
        return (
            job.state in JOB_REOPENABLE and job.drop != drop.version and job.updated_at < drop.at and not drop.dry_run
        )

    def _is_ours(self, job: Job, *, same_bytes: bool = True) -> bool:
        """The same bytes (or records) under the same configuration, whatever name they were first dropped under. (A
        job's manifest is there before its row.)"""
        try:
            stored = self.connection.objects.get(JobKeys(job.tenant, job.job_key).manifest)
        except NotFound:
            return False
        manifest = Manifest.model_validate_json(stored)
        spec = self.drop.spec
        return (
            manifest.spec == spec.name
            and manifest.purpose == spec.purpose
            and manifest.schema_version == spec.output.schema_version
            and (manifest.source.sha256 == self.drop.sha256 or not same_bytes)
            and manifest.model_resolved == spec.model_resolved
            and manifest.prompt_version == spec.prompt_version
            and manifest.generation_config_hash == spec.generation_config_hash
        )


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _upload_bar(name: str, size: int) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal; yields what is to be told how many bytes have gone."""
    console = stderr()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(40), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(f"uploading {name}", total=size)
        yield lambda moved: bars.advance(task, moved)
