"""Monitor: fetch exactly the bytes received, every channel, for every terminal state."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import BinaryIO, cast

from msgspec.structs import replace

from tallybatch.contracts import ShardItem
from tallybatch.domain.errors import Conflict, NotFound, ResultsGone
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.rows import Submission
from tallybatch.ports import META, Clock, Ledger, Objects, ProviderApi
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.transitions import change_submission

PROVIDER_JOB = "provider_job.json"


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
    job = ports.provider.get(row.provider_job_id)
    gone = 0
    channels: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for channel, source in job.channels.items():
        key = context.keys.raw(
            item.attempt, row.submission_key, channel + (".json" if channel.startswith(META) else ".jsonl")
        )
        try:
            sizes[channel] = _fetch(source, key, context, ports)
        except ResultsGone:
            gone += 1
            continue
        channels[channel] = key
    _keep_job_record(job.raw, row, context, ports.objects)

    def collected(now: Submission) -> Submission | None:
        if now.state is not SubmissionState.TERMINAL:
            return None
        anomalies = {**now.anomalies, "results_gone": gone} if gone else now.anomalies
        return replace(
            now,
            state=SubmissionState.COLLECTED,
            channels=channels,
            progress=dict(job.counts),
            anomalies=anomalies,
            updated_at=ports.clock.now(),
        )

    change_submission(ports.ledger, item.job_key, item.attempt, item.shard_id, collected)
    return sizes


def _fetch(source: str, key: str, context: JobContext, ports: Ports) -> int:
    """Only a complete download is stored, so that what is there is all there was."""
    stored = ports.objects.head(key)
    if stored is not None:
        return stored.size
    with tempfile.TemporaryFile() as file:
        size = sum(file.write(chunk) for chunk in ports.provider.download(source))
        ports.objects.put_once(
            key, cast("BinaryIO", file), content_type="application/x-ndjson", retention=context.retention("raw")
        )
    return size


def _keep_job_record(raw: bytes, row: Submission, context: JobContext, objects: Objects) -> None:
    key = context.keys.raw(row.attempt, row.submission_key, PROVIDER_JOB)
    try:
        objects.put_once(key, raw or b"{}", content_type="application/json", retention=context.retention("raw"))
    except Conflict:
        return  # an earlier collection kept the provider's word as it was then
