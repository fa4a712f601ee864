"""The lines of a shard's raw objects, each with the place of its bytes, put into its tally."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256

from tallybatch.domain.lines import BLOCK_BYTES, newline_split
from tallybatch.domain.outcomes import RawRef
from tallybatch.domain.tally import ShardTally
from tallybatch.ports import Objects, ProviderFormat


def read_channel(key: str, tally: ShardTally, provider_format: ProviderFormat, objects: Objects) -> Iterator[bytes]:
    """Add every line of a raw object to the tally; yields lines with unknown ids. Blank lines say nothing."""
    uri, parse, add = objects.uri(key), provider_format.parse, tally.add
    offset = 0
    with objects.open(key) as stream:
        for line in newline_split(iter(lambda: stream.read(BLOCK_BYTES), b"")):
            try:
                result = parse(line)
            except ValueError:
                if line.strip():
                    tally.anomalies["unparsable"] += 1
            else:
                if not add(result, RawRef(uri, offset, len(line), sha256(line).hexdigest())):
                    yield line
            offset += len(line) + 1


def read_ghost(
    provider_job_id: str, key: str, tally: ShardTally, provider_format: ProviderFormat, objects: Objects
) -> None:
    """Add what a duplicate provider job answered. A line that cannot be read tells nothing of its bill."""
    uri, offset = objects.uri(key), 0
    with objects.open(key) as stream:
        for line in newline_split(iter(lambda: stream.read(BLOCK_BYTES), b"")):
            with suppress(ValueError):
                result = provider_format.parse(line)
                tally.add_ghost(result, RawRef(uri, offset, len(line), sha256(line).hexdigest()), provider_job_id)
            offset += len(line) + 1
