"""The lines of a shard's raw objects, each with the place of its bytes, put into its tally."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.lines import CHUNK_BYTES, newline_split
from tallybatch.domain.outcomes import RawRef
from tallybatch.domain.tally import ShardTally
from tallybatch.ports import Objects, ProviderFormat


def read_channel(key: str, tally: ShardTally, provider_format: ProviderFormat, objects: Objects) -> Iterator[bytes]:
    """Add every line of a raw object to the tally; yields lines with unknown ids. Blank lines say nothing."""
    uri, parse, add = objects.uri(key), provider_format.parse, tally.add
    for offset, line in _lines(key, objects):
        try:
            result = parse(line)
        except ValueError:
            if line.strip():
                tally.anomalies["unparsable"] += 1
        else:
            if not add(result, RawRef(uri, offset, len(line), sha256_hex(line))):
                yield line


def read_ghost(
    provider_job_id: str, key: str, tally: ShardTally, provider_format: ProviderFormat, objects: Objects
) -> None:
    """Add what a duplicate provider job answered. A line that cannot be read tells nothing of its bill."""
    uri = objects.uri(key)
    for offset, line in _lines(key, objects):
        with suppress(ValueError):
            result = provider_format.parse(line)
            tally.add_ghost(result, RawRef(uri, offset, len(line), sha256_hex(line)), provider_job_id)


def _lines(key: str, objects: Objects) -> Iterator[tuple[int, bytes]]:
    """Byte offset and bytes of each line of a raw object."""
    offset = 0
    with objects.open(key) as stream:
        for line in newline_split(iter(lambda: stream.read(CHUNK_BYTES), b"")):
            yield offset, line
            offset += len(line) + 1
