"""From what a user types to a job: a key or a prefix of it, by the ledger or, without it, by the objects."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from tallybatch.cli.errors import Ambiguous
from tallybatch.cli.output import note
from tallybatch.cli.stack import Connection
from tallybatch.domain.errors import NotFound, TallybatchError
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.rows import Job

_CANDIDATES = 6


def find_job(connection: Connection, ref: str) -> Job:
    """Raises `Ambiguous` for a prefix of several jobs, `NotFound` for one of none."""
    found = connection.ledger.jobs_with_prefix(ref, limit=_CANDIDATES) if ref else ()
    if len(found) > 1:
        raise Ambiguous(ref, [job.job_key for job in found])
    if not found:
        raise _unknown(ref, connection)
    return found[0]


def find_job_keys(connection: Connection, ref: str) -> JobKeys:
    """Where the objects of a job are. Asks the ledger first; works without it if the job has a certificate."""
    try:
        found = find_job(connection, ref)
    except NotFound:
        return _find_certificate(connection, ref)
    except Ambiguous:
        raise
    except (TallybatchError, ClientError, BotoCoreError) as error:
        note(f"the ledger does not answer ({error}): looking for the job among the objects")
        return _find_certificate(connection, ref)
    return JobKeys(found.tenant, found.job_key)


def _find_certificate(connection: Connection, ref: str) -> JobKeys:
    """By `jobs/<tenant>/<job_key>/certificate.json`, or that of a part; reads the list of all objects under jobs/."""
    found: dict[str, JobKeys] = {}
    for info in connection.objects.list("jobs/"):
        parts = info.key.split("/")
        certified = len(parts) > 3 and parts[3] in ("certificate.json", "certificates")
        if certified and ref and parts[2].startswith(ref):
            found[parts[2]] = JobKeys(parts[1], parts[2])
            if parts[2] == ref:
                return found[ref]
    if len(found) > 1:
        raise Ambiguous(ref, sorted(found)[:_CANDIDATES])
    if not found:
        raise _unknown(ref, connection)
    return next(iter(found.values()))


def _unknown(ref: str, connection: Connection) -> NotFound:
    return NotFound(f"there is no job {ref!r}", where=str(connection.place), do="list them with `tallybatch jobs`")
