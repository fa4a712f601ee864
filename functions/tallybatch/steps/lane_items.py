"""Which lane each shard of an attempt takes; shards of the on-demand lane are cut into small ones, for concurrency."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tallybatch.contracts import ShardItem
from tallybatch.domain import lanes
from tallybatch.domain.closure import HELD, Closure, OpenRecord
from tallybatch.domain.records import decode_record, encode_record
from tallybatch.domain.rows import ON_DEMAND
from tallybatch.domain.shards import ShardLimits, ShardWriter, read_zstd_lines
from tallybatch.ports import Objects
from tallybatch.steps.job_context import JobContext

_NO_BYTE_LIMIT = 1 << 60
_open_record = msgspec.json.Decoder(OpenRecord).decode


def in_lanes(
    items: Sequence[ShardItem],
    context: JobContext,
    objects: Objects,
    *,
    attempt: int,
    now: float,
    deadline_at: float,
    min_records: Mapping[str, int],
    before: Closure | None,
) -> list[ShardItem]:
    """The same records in the same order. `min_records`: records that a job must have, by provider; `before`: the
    closure of the attempt before. A shard that is resumed from an earlier attempt stays in its lane."""
    spec = context.spec
    rescue_at = lanes.rescue_at(spec, deadline_at)
    can_grow = before is None or not _only_too_few(before, objects)
    placed: list[ShardItem] = []
    for item in items:
        told = item.model_copy(update={"rescue_at": rescue_at, "can_grow": can_grow})
        least = min_records.get(item.provider, 1)
        lane = lanes.lane_for(spec, records=item.record_count, least=least, rescue=0 < rescue_at <= now)
        if item.attempt == attempt and lane == ON_DEMAND:
            placed += _pieces(told.model_copy(update={"lane": lane}), context, objects)
        else:
            placed.append(told)
    return placed


def _only_too_few(before: Closure, objects: Objects) -> bool:
    """Whether all that is open was kept for being too few, or is held for the canary: then nothing is on its way that
    could join it, for what is held goes out by itself once the canary is through."""
    if before.unsettled:
        return False
    with objects.open(before.open_key) as stream:
        return all(_open_record(line).reason in (lanes.TOO_FEW, HELD) for line in read_zstd_lines(stream))


def _pieces(item: ShardItem, context: JobContext, objects: Objects) -> Iterator[ShardItem]:
    """A shard cut into shards of a few records, each of which names the manifest's shard it is from."""
    with tempfile.TemporaryDirectory(prefix="tallybatch-") as folder:
        writer = ShardWriter(Path(folder), ShardLimits(lanes.PIECE_RECORDS, _NO_BYTE_LIMIT))
        with objects.open(context.keys.shard(item.shard_sha256)) as stream:
            for line in read_zstd_lines(stream):
                record = decode_record(line)
                parent = record.parent_shard_id or item.shard_id
                writer.add(encode_record(replace(record, parent_shard_id=parent)), 0)
        for number, piece in enumerate(writer.close()):
            with piece.path.open("rb") as body:
                objects.put_once(context.keys.shard(piece.sha256), body, retention=context.retention("working"))
            yield item.model_copy(
                update={
                    "shard_id": f"{item.shard_id}-d{number:04d}",
                    "shard_sha256": piece.sha256,
                    "record_count": piece.record_count,
                }
            )
