"""Discover: one job per object version that no earlier run has taken, up to a ceiling.

An object becomes a job by a server-side copy into the inbox, so that a backfill and a drop go the same way. The copy
is made before the version is remembered: after a crash between the two the next run copies it again, which gives the
same job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tallybatch.contracts import BackfillReply, BackfillRequest
from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.identity import digest
from tallybatch.domain.layout import INBOX, parse_inbox_key
from tallybatch.ports import Clock, Ledger, ObjectInfo, Objects

_SUFFIXES = (".jsonl", ".jsonl.gz")
_OWN_PREFIXES = (INBOX, "jobs/", "results/", "quarantine/", "review/", "specs/", "provider/", "deletions/", "prices/")
_TAKEN = "BACKFILL"
_PLACEHOLDERS = {"{yyyy}": "%Y", "{mm}": "%m", "{dd}": "%d"}


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    source: Callable[[str], Objects]
    """Another bucket, by its name."""
    ledger: Ledger
    clock: Clock


def run(request: BackfillRequest, ports: Ports) -> BackfillReply:
    """Raises `BadInput` for a prefix, a time or a dataset version that cannot be used."""
    own = request.source_bucket in ("", ports.objects.bucket)
    source = ports.objects if own else ports.source(request.source_bucket)
    days_by_prefix = {_fill(request.prefix, day): day for day in reversed(_days(request, ports.clock))}
    if own and any(map(_holds_ours, days_by_prefix)):
        reason = "it holds what the pipeline itself writes; objects for a backfill need a prefix of their own"
        raise BadInput("the backfill's prefix is refused", [Problem(reason, key="prefix")], where=request.prefix)
    started: list[str] = []
    seen = over_ceiling = 0
    dated = all(name in request.dataset_version for name in _PLACEHOLDERS if name in request.prefix)
    for prefix, day in days_by_prefix.items():
        folder = _folder(prefix if dated else request.prefix.partition("{")[0])
        dataset_version = _fill(request.dataset_version, day)
        for found in _files(source, prefix):
            taken = digest(request.tenant, request.spec, source.bucket, found.key, found.version_id or found.etag)
            if ports.ledger.pinned(_TAKEN, taken):
                seen += 1
            elif len(started) >= request.max_objects:
                over_ceiling += 1
            else:
                inbox_key = (
                    f"{INBOX}{request.tenant}/{request.spec}/{dataset_version}/{_name(found.key.removeprefix(folder))}"
                )
                parse_inbox_key(inbox_key)
                ports.objects.copy(source.bucket, found.key, inbox_key, version_id=found.version_id)
                ports.ledger.pin(_TAKEN, taken, inbox_key)
                started.append(inbox_key)
    return BackfillReply(started=started, seen=seen, over_ceiling=over_ceiling, prefixes=list(days_by_prefix))


def _files(source: Objects, prefix: str) -> Iterator[ObjectInfo]:
    """Files below a prefix, with the version that is current now."""
    for listed in source.list(prefix):
        if listed.key.endswith(_SUFFIXES):
            info = source.head(listed.key)
            if info is not None:
                yield info


def _holds_ours(prefix: str) -> bool:
    return any(prefix.startswith(ours) or ours.startswith(prefix) for ours in _OWN_PREFIXES)


def _folder(prefix: str) -> str:
    """What all files have in common of which the dataset version tells, so that their names need not."""
    return prefix[: prefix.rfind("/") + 1]


def _name(path: str) -> str:
    """A path as one name. No two paths have the same: one file would take the other's place in the results."""
    name = path.replace("/", "__")
    if "__" not in path:
        return name
    end = next(suffix for suffix in reversed(_SUFFIXES) if name.endswith(suffix))
    return f"{name.removesuffix(end)}__{digest(path)[:12]}{end}"


def _days(request: BackfillRequest, clock: Clock) -> list[datetime]:
    """The run's day and those before it, newest first, UTC."""
    if not request.time:
        run_at = datetime.fromtimestamp(clock.now(), UTC)
    else:
        try:
            run_at = datetime.fromisoformat(request.time)
        except ValueError:
            raise _bad_time(f"{request.time!r} is not an ISO 8601 time") from None
    try:
        run_at = run_at.astimezone(UTC) if run_at.tzinfo else run_at.replace(tzinfo=UTC)
        return [run_at - timedelta(days=back) for back in range(request.days_back + 1)]
    except OverflowError:
        raise _bad_time(f"{request.days_back} days before {request.time!r} there is no date") from None


def _bad_time(reason: str) -> BadInput:
    return BadInput("the backfill's time is refused", [Problem(reason, key="time")], where="time")


def _fill(template: str, day: datetime) -> str:
    filled = template
    for placeholder, code in _PLACEHOLDERS.items():
        filled = filled.replace(placeholder, day.strftime(code))
    if "{" in filled:
        problem = Problem(f"unknown placeholder in {template!r}; there are {{yyyy}}, {{mm}} and {{dd}}", key="prefix")
        raise BadInput("the backfill's template is refused", [problem], where=template)
    return filled
