"""`tallybatch results` and `verify`: fetch what a certificate names, and prove the certificate."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from tallybatch.cli import output
from tallybatch.cli.errors import ExitCode
from tallybatch.cli.finding import find_job_keys
from tallybatch.cli.options import AsJson, EndpointUrl, JobRef, StackName, connected
from tallybatch.cli.reports import stands, what_then
from tallybatch.cli.stack import Connection
from tallybatch.domain.certificate import Certificate, from_bytes
from tallybatch.domain.errors import NotClosed, NotFound, ObjectDamaged
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lines import CHUNK_BYTES
from tallybatch.steps import verify_job
from tallybatch.steps.certification import newest_certificate


def results(
    ctx: typer.Context,
    job: JobRef,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", file_okay=False, help="Folder to write to; is made.")],
    stack: StackName = "",
    endpoint_url: EndpointUrl = "",
    as_json: AsJson = False,
) -> None:
    """Download a job's accepted records as results.jsonl (.gz if the spec compresses), with certificate.json. Each part
    is checked against the hash in the certificate. A job without one has no results: exit code 1.

    Example: `tallybatch results 1f3a9c --out films`
    """
    connection = connected(ctx, stack, endpoint_url)
    keys = find_job_keys(connection, job)
    certificate, stored = _certificate(connection, keys)
    if certificate.partial:
        asked = f"{certificate.succeeded} of {certificate.expected} records, as {certificate.requested_by} asked"
        output.note(f"this is a part: {asked}")
    out.mkdir(parents=True, exist_ok=True)
    path, size = _write_parts(connection, certificate, out)
    (out / "certificate.json").write_bytes(stored)
    document = {
        "job_key": keys.job_key,
        "records": certificate.succeeded,
        "partial": certificate.partial,
        "bytes": size,
        "results": str(path),
        "certificate": str(out / "certificate.json"),
    }
    output.answer(document, as_json=as_json, human=output.facts(list(document.items())))


def verify(
    ctx: typer.Context, job: JobRef, stack: StackName = "", endpoint_url: EndpointUrl = "", as_json: AsJson = False
) -> None:
    """Prove a job's certificate from the objects alone: every hash, every count, every published record. Exit code 1
    at the first difference. Of a job that has gone on since, what its certificate covers is proven.

    Example: `tallybatch verify 1f3a9c`
    """
    connection = connected(ctx, stack, endpoint_url)
    keys = find_job_keys(connection, job)
    _certificate_or_refuse(connection, keys)
    found = verify_job.run(connection.objects, keys)
    document = {
        "job_key": keys.job_key,
        "ok": found.ok,
        "checked_objects": found.checked_objects,
        "checked_records": found.checked_records,
        "difference": found.difference or None,
        "gone_on": found.gone_on,
    }
    output.answer(document, as_json=as_json, human=output.facts(list(document.items())))
    if found.gone_on:
        output.note("the job has gone on since it was certified; what came later is in no certificate yet")
    if not found.ok:
        output.note(f"the job is not as certified: {found.difference}")
        raise typer.Exit(ExitCode.NOT_COMPLETED)


def _certificate(connection: Connection, keys: JobKeys) -> tuple[Certificate, bytes]:
    key, stored = _certificate_or_refuse(connection, keys)
    return from_bytes(stored, where=connection.objects.uri(key)), stored


def _certificate_or_refuse(connection: Connection, keys: JobKeys) -> tuple[str, bytes]:
    """Key and bytes of the one that counts. Raises `NotClosed` for a job without one, and says how it stands."""
    try:
        return newest_certificate(connection.objects, keys)
    except NotFound:
        job = connection.ledger.job(keys.job_key)
        if job and job.certificate:
            raise ObjectDamaged(
                "the job's certificate is gone",
                where=job.certificate,
                do="restore the object's earlier version; the bucket keeps it for a while",
            ) from None
        raise NotClosed(
            "the job has no certificate, so it has no results",
            where=f"job {keys.job_key}",
            why=stands(job) if job else "",
            do=f"read its report: {job.report}" if job and job.report else what_then(job),
        ) from None


def _write_parts(connection: Connection, certificate: Certificate, out: Path) -> tuple[Path, int]:
    """All parts in the order of the manifest, in one file that appears when it is whole. gzip parts one after another
    are a gzip file. Raises `ObjectDamaged` for a part that has another hash than was certified."""
    gzipped = any(part.key.endswith(".gz") for part in certificate.results)
    path = out / ("results.jsonl.gz" if gzipped else "results.jsonl")
    unfinished = path.with_name(path.name + ".part")
    size = 0
    try:
        with unfinished.open("wb") as file:
            for part in certificate.results:
                digest = hashlib.sha256()
                with connection.objects.open(part.key) as stream:
                    while chunk := stream.read(CHUNK_BYTES):
                        digest.update(chunk)
                        size += file.write(chunk)
                if digest.hexdigest() != part.sha256:
                    raise ObjectDamaged(
                        f"its SHA-256 is {digest.hexdigest()}, certified is {part.sha256}",
                        where=connection.objects.uri(part.key),
                        do="restore the object's earlier version; the bucket keeps it for a while",
                    )
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path, size
