"""Monitor: fetch exactly the bytes received, every channel, for every terminal state."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import IO, BinaryIO, cast

from msgspec.structs import replace

from tallybatch.contracts import ShardItem
from tallybatch.domain.billing import tokens_of
from tallybatch.domain.errors import Conflict, LedgerBusy, NotFound, ProviderUnavailable, ResultsGone
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.lines import BOM, CHUNK_BYTES, newline_split
from tallybatch.domain.outcomes import Usage
from tallybatch.domain.rows import Submission
from tallybatch.domain.submitting import SEARCH_MARGIN_S, bind, generation_key
from tallybatch.domain.tally import total_usage
from tallybatch.ports import META, TERMINAL_STATES, Clock, Ledger, Objects, ProviderApi, ProviderJob, ProviderState
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.submit_shard import place_of
from tallybatch.steps.transitions import change_submission

PROVIDER_JOB = "provider_job.json"
GHOST = "ghost-"
"""Begins the names of the channels of duplicate provider jobs."""
_GHOST_DIGITS = 16
GONE_GRACE_S = 60
"""So soon after its end no results are believed to be gone: a file may be named before it can be read, and to take it
for gone pays for all its records again."""


@dataclass(frozen=True, slots=True)
class Ports:
    objects: Objects
    ledger: Ledger
    provider: ProviderApi
    clock: Clock


def run(item: ShardItem, ports: Ports) -> dict[str, int]:
    """Returns the bytes fetched per channel. Fetching again changes nothing."""
    row = ports.ledger.submission(item.job_key, item.attempt, item.shard_id)
    if row is None or not row.provider_job_id:
        raise NotFound("no provider job is bound to this submission", where=f"{item.job_key} {item.shard_id}")
    context = load_job(ports.objects, item.tenant, item.job_key)
    row = _with_older_ghosts(row, ports)
    job = _bound(row, ports)
    harvest = _Harvest(row, context, ports)
    harvest.take(job, "")
    ghost_usage = [harvest.take(_ended(ghost, ports), ghost_prefix(ghost)) for ghost in row.ghosts]
    _keep_job_record(job.raw, row, context, ports.objects)

    def collected(now: Submission) -> Submission | None:
        if now.state is not SubmissionState.TERMINAL:
            return None
        if now.ghosts != row.ghosts:
            raise LedgerBusy("a duplicate job turned up during the collection", where=place_of(row), do="collect again")
        anomalies = dict(now.anomalies)
        if harvest.mended:
            anomalies["fetched_again"] = harvest.mended
        if harvest.gone:
            anomalies["results_gone"] = harvest.gone
        if row.ghosts:
            anomalies["duplicate_submission"] = len(row.ghosts)
        return replace(
            now,
            state=SubmissionState.COLLECTED,
            channels=harvest.channels,
            progress=dict(job.counts),
            provider_tokens=tokens_of(job.usage) if job.usage is not None else {},
            unread_jobs=harvest.unread_jobs,
            ghost_tokens=tokens_of(total_usage(list(filter(None, ghost_usage)))) if any(ghost_usage) else {},
            anomalies=anomalies,
            updated_at=ports.clock.now(),
        )

    change_submission(ports.ledger, item.job_key, item.attempt, item.shard_id, collected)
    return harvest.sizes


def ghost_prefix(provider_job_id: str) -> str:
    """Begins the names of one duplicate's channels. A digest, for some ids (ARNs) would be folders in a key."""
    return f"{GHOST}{sha256_hex(provider_job_id.encode())[:_GHOST_DIGITS]}-"


class _Harvest:
    """Raw objects by channel, and what could not be had any more."""

    def __init__(self, row: Submission, context: JobContext, ports: Ports) -> None:
        self._row, self._context, self._ports = row, context, ports
        self.channels: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.gone = 0
        self.unread_jobs = 0
        """Those that may have billed, and neither told how much nor left all their results."""
        self.mended = 0
        """Objects that were damaged when they were fetched first, and less so the second time."""

    def take(self, job: ProviderJob, prefix: str) -> Usage | None:
        """Returns the tokens that the provider itself counts for the job."""
        row, gone_before = self._row, self.gone
        for channel, source in job.channels.items():
            name = prefix + channel
            suffix = ".json" if channel.startswith(META) else ".jsonl"
            key = self._context.keys.raw(row.attempt, row.submission_key, name + suffix)
            try:
                self.sizes[name] = self._fetch(source, key, lines=not channel.startswith(META))
            except ResultsGone as gone:
                if self._ports.clock.now() < row.terminal_at + GONE_GRACE_S:
                    raise ProviderUnavailable(
                        "the results cannot be read yet",
                        where=f"provider job {job.id}",
                        why=str(gone),
                        do="read them again",
                    ) from None
                self.gone += 1
            else:
                self.channels[name] = key
        records = any(not channel.startswith(META) for channel in job.channels)
        lost = job.state is ProviderState.GONE or self.gone > gone_before
        if job.usage is None and (lost or (job.state is ProviderState.DONE and not records)):
            self.unread_jobs += 1
        return job.usage

    def _fetch(self, source: str, key: str, *, lines: bool) -> int:
        """Only a complete download is stored, so that what is there is all there was. One with lines that cannot be
        results is fetched once more, and the better of the two is kept: what still cannot be read is missing, and its
        records are paid for again."""
        ports, context = self._ports, self._context
        stored = ports.objects.head(key)
        if stored is not None:
            return stored.size
        with tempfile.TemporaryFile() as first, tempfile.TemporaryFile() as second:
            file, size = first, _download(source, first, ports)
            if lines and (bad := _bad_lines(first)):
                again = _download_again(source, second, ports)
                if again and _bad_lines(second) < bad:
                    file, size = second, again
                    self.mended += 1
            ports.objects.put_once(
                key, cast("BinaryIO", file), content_type="application/x-ndjson", retention=context.retention("raw")
            )
        return size


def _download(source: str, file: IO[bytes], ports: Ports) -> int:
    return sum(file.write(chunk) for chunk in ports.provider.download(source))


def _download_again(source: str, file: IO[bytes], ports: Ports) -> int:
    """0 if there is nothing more to be had."""
    try:
        return _download(source, file, ports)
    except ResultsGone:
        return 0


def _bad_lines(file: IO[bytes]) -> int:
    """Lines that are no JSON object by their first and last byte: enough to tell damage, not worth a parser's time."""
    file.seek(0)
    chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
    lines = (line.removeprefix(BOM).strip() for line in newline_split(chunks))
    return sum(bool(line) and not (line.startswith(b"{") and line.endswith(b"}")) for line in lines)


def _with_older_ghosts(row: Submission, ports: Ports) -> Submission:
    """Look once more for jobs of generations whose create was never answered: one that shows up late is paid for."""
    known = {row.provider_job_id, *row.earlier_jobs, *row.ghosts}
    late: list[str] = []
    for generation in range(1, row.generation):
        found = ports.provider.find(generation_key(row, generation), since=row.first_claimed_at - SEARCH_MARGIN_S)
        late += [job.id for job in found.jobs if job.id not in known]
    if not late:
        return row
    for ghost in late:
        ports.provider.cancel(ghost)
    now = ports.clock.now()
    return change_submission(
        ports.ledger,
        row.job_key,
        row.attempt,
        row.shard_id,
        lambda current: bind(current, late[0], now, ghosts=tuple(late[1:])),
    )


def _bound(row: Submission, ports: Ports) -> ProviderJob:
    """Raises `ProviderUnavailable` for a job that was told to have ended and is not now: its results are not named yet,
    and to believe that it has none pays for all its records again."""
    job = ports.provider.get(row.provider_job_id)
    if job.state not in TERMINAL_STATES:
        raise ProviderUnavailable(
            "the provider job had ended, and is at work again",
            where=f"provider job {job.id}",
            why=f"its state is {job.raw_state or job.state.value} now and was {row.provider_state}",
            do="collect again",
        )
    return job


def _ended(ghost: str, ports: Ports) -> ProviderJob:
    """Raises `ProviderUnavailable` while a cancelled ghost has not ended: what it finished by then is billed."""
    job = ports.provider.get(ghost)
    if job.state not in TERMINAL_STATES:
        if job.state is not ProviderState.CANCELLING:
            ports.provider.cancel(ghost)
        raise ProviderUnavailable("a cancelled duplicate job has not ended yet", where=f"provider job {ghost}")
    return job


def _keep_job_record(raw: bytes, row: Submission, context: JobContext, objects: Objects) -> None:
    key = context.keys.raw(row.attempt, row.submission_key, PROVIDER_JOB)
    try:
        objects.put_once(key, raw or b"{}", content_type="application/json", retention=context.retention("raw"))
    except Conflict:
        return  # an earlier collection kept the provider's word as it was then
