"""Prepare: no shard of a file falls below what its provider takes in one job, where that can be avoided."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tallybatch.domain.records import decode_record
from tallybatch.domain.shard_tail import even_tail
from tallybatch.domain.shards import ShardFile
from tallybatch.domain.spec import MIN_RECORDS, Spec
from tallybatch.ports import Formats
from tallybatch.steps.rendering import Requests


def evened(shards: Sequence[ShardFile], spec: Spec, folder: Path, formats: Formats) -> list[ShardFile]:
    """A file's shards, none of which is below the usual minimum of its provider if that can be avoided. The account's
    own minimum, a setting, must not change a job's key."""
    requests = Requests(spec, formats)
    return even_tail(
        shards,
        folder,
        least=MIN_RECORDS.get(spec.provider, 1) if spec.lane == "batch" else 1,
        max_bytes=spec.shards.max_bytes,
        measure=lambda line: len(requests.line(decode_record(line))),
    )
