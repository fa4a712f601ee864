"""The last shard of a file: what is too small for a provider's job takes records from the shard before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tallybatch.domain.shards import ShardFile, ShardLimits, ShardWriter, read_zstd_lines


def even_tail(
    shards: Sequence[ShardFile], folder: Path, *, least: int, max_bytes: int, measure: Callable[[bytes], int]
) -> list[ShardFile]:
    """The same records in the same order, with the last two shards halved if the last has fewer than `least`. They stay
    as they are where both together are too few for two, or where half of them would be too many bytes. `measure` gives
    the bytes of the request of a shard line."""
    if len(shards) < 2 or shards[-1].record_count >= least:
        return list(shards)
    records = shards[-2].record_count + shards[-1].record_count
    if records < 2 * least:
        return list(shards)
    tail = folder / "tail"
    tail.mkdir()
    writer = ShardWriter(tail, ShardLimits(-(-records // 2), max_bytes))
    for shard in shards[-2:]:
        with shard.path.open("rb") as stream:
            for line in read_zstd_lines(stream):
                writer.add(line, measure(line))
    halves = writer.close()
    if len(halves) != 2:
        return list(shards)
    first = len(shards) - 2
    named = (replace(half, shard_id=f"{first + n:05d}-{half.sha256[:8]}") for n, half in enumerate(halves))
    return [*shards[:-2], *named]
