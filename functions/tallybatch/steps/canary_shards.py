"""Prepare: the canary's own shards, and the waves in which a job's shards follow it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from tallybatch.contracts import JobInput, ShardItem
from tallybatch.domain.canary import GROWTH, Sampler, StratumShare, is_broken, stratum_of, wave_end
from tallybatch.domain.errors import RolloutStopped
from tallybatch.domain.outcomes import ACCEPTED, OutcomeClass
from tallybatch.domain.records import decode_record, encode_record
from tallybatch.domain.rows import Job
from tallybatch.domain.shards import read_zstd_lines
from tallybatch.ports import Ledger, Objects
from tallybatch.steps.job_context import JobContext
from tallybatch.steps.rendering import Requests

CANARY = "canary"
"""Prefix of the canary's shard ids."""
_JUDGED = tuple(
    outcome.value
    for outcome in (
        OutcomeClass.PERMANENT,
        OutcomeClass.REFUSED,
        OutcomeClass.TRUNCATED,
        OutcomeClass.UNQUALIFIED,
        OutcomeClass.CONFLICT,
    )
)
"""Classes of records that were answered, and not as they should be."""
_ACCEPTED = tuple(outcome.value for outcome in ACCEPTED)


def sample(context: JobContext, objects: Objects) -> tuple[frozenset[str], tuple[StratumShare, ...]]:
    """The record ids of the canary, from all shards of the manifest; the same whenever it is asked."""
    sampler = Sampler(context.manifest.canary_records)
    names = context.spec.canary.strata if context.spec.canary else ()
    for shard in context.manifest.shards:
        with objects.open(context.keys.shard(shard.sha256)) as stream:
            for line in read_zstd_lines(stream):
                record = decode_record(line)
                sampler.add(stratum_of(bytes(record.input), names), record.record_id)
    return sampler.chosen()


def canary_lines(
    context: JobContext, attempt: int, requests: Requests, objects: Objects
) -> Iterator[tuple[bytes, int]]:
    """Shard lines of the canary with the sizes of their requests, in the manifest's order; leaves `sample.json`."""
    chosen, strata = sample(context, objects)
    body = msgspec.json.format(msgspec.json.encode(strata), indent=1)
    key, kept = context.keys.sample(attempt), context.retention("results")
    objects.put_once(key, body, content_type="application/json", retention=kept)
    for shard in context.manifest.shards:
        with objects.open(context.keys.shard(shard.sha256)) as stream:
            for line in read_zstd_lines(stream):
                record = decode_record(line)
                if record.record_id in chosen:
                    tried = replace(
                        record,
                        attempt=attempt,
                        parent_job_key=context.manifest.job_key,
                        parent_shard_id=shard.shard_id,
                        retry_reason=CANARY,
                    )
                    yield encode_record(tried), len(requests.line(record))


def wave(
    request: JobInput,
    items_key: str,
    items: Sequence[ShardItem],
    context: JobContext,
    job: Job,
    *,
    objects: Objects,
    ledger: Ledger,
) -> tuple[str, int, int]:
    """The list of the shards to run now, how many they are, and where the next wave begins (0: all are under way).

    After a canary one shard goes first, then ever more. Raises `RolloutStopped` where what went before was answered and
    mostly not accepted."""
    count, begin = len(items), request.next_shard
    if begin:
        _stop_if_broken(items[:begin], request.attempt, ledger)
    elif (
        context.in_canary(job, request.attempt) or not context.has_canary or count < 2 or _has_run(request, job, ledger)
    ):
        return items_key, count, 0
    end = wave_end(begin, request.wave, count, context.spec.shards.max_parallel)
    if (begin, end) == (0, count):
        return items_key, count, 0
    key = context.keys.wave_items(request.attempt, begin, end)
    body = msgspec.json.encode([item.model_dump() for item in items[begin:end]])
    objects.put_once(key, body, content_type="application/json", retention=context.retention("results"))
    return key, end - begin, end if end < count else 0


def next_wave(size: int) -> int:
    return size * GROWTH


def _has_run(request: JobInput, job: Job, ledger: Ledger) -> bool:
    """Whether an earlier attempt after the canary has had answers accepted: then what is left is no experiment."""
    rows = (row for row in ledger.submissions(job.job_key) if job.released < row.attempt < request.attempt)
    return any(row.counts.get(name) for row in rows for name in _ACCEPTED)


def _stop_if_broken(items: Sequence[ShardItem], attempt: int, ledger: Ledger) -> None:
    counts: Counter[str] = Counter()
    for item in items:
        row = ledger.submission(item.job_key, item.attempt, item.shard_id)
        counts.update(row.counts if row else {})
    if is_broken(counts, _JUDGED, _ACCEPTED):
        accepted = sum(counts[name] for name in _ACCEPTED)
        told = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        raise RolloutStopped(
            f"the first {len(items)} of the job's shards had {accepted} of {counts.total()} records accepted",
            where=f"job {items[0].job_key} attempt {attempt}",
            why=told,
            do="look at their outcomes, mend the spec under a new prompt version, and drop the file again",
        )
