"""The streams over which a job's sets are closed: the manifest's record ids and each attempt's outcome lines, in order.

Both ReconcileJob, which decides, and verify, which proves, fold the same streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tallybatch.contracts import ShardItem
from tallybatch.domain.closure import AttemptRows, Row, SubmissionEntry, decode_row
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.outcomes import NOTHING_USED, OutcomeClass, Used
from tallybatch.domain.shards import read_zstd_lines
from tallybatch.ports import Objects
from tallybatch.steps.outcome_files import outcome_lines


class _Member(msgspec.Struct):
    """What a shard line says of its record; decoding skips the rest."""

    record_id: str
    tries: int = 0
    parent_shard_id: str = ""
    used: Used = NOTHING_USED
    output_cap: int = 0


_decode_member = msgspec.json.Decoder(_Member).decode
_decode_items = msgspec.json.Decoder(list[dict[str, str | int | bool]]).decode


def record_ids(objects: Objects, keys: JobKeys, shard_sha256: str) -> list[str]:
    return [member.record_id for member in _members(objects, keys, shard_sha256)]


def _members(objects: Objects, keys: JobKeys, shard_sha256: str) -> Iterator[_Member]:
    with objects.open(keys.shard(shard_sha256)) as stream:
        for line in read_zstd_lines(stream):
            yield _decode_member(line)


def was_planned(objects: Objects, keys: JobKeys, *, before: int) -> bool:
    """Whether an attempt before this one got as far as a list of shards."""
    return any(objects.head(keys.items(attempt)) is not None for attempt in range(1, before))


def attempt_items(objects: Objects, keys: JobKeys, attempt: int) -> list[ShardItem]:
    """The shards that were new in an attempt, in order; those resumed from earlier ones are theirs. None if the
    attempt ended before it was planned."""
    if objects.head(keys.items(attempt)) is None:
        return []
    items = [ShardItem.model_validate(item) for item in _decode_items(objects.get(keys.items(attempt)))]
    return [item for item in items if item.attempt == attempt]


def attempt_rows(objects: Objects, keys: JobKeys, attempt: int, submissions: Sequence[SubmissionEntry]) -> AttemptRows:
    """A row for every record of the attempt. A shard that was never submitted is missing, and that was no try; one that
    was submitted and lost before it was reconciled is unsettled. The shards of each target are in the manifest's order
    by themselves."""
    entries = {entry.shard_id: entry for entry in submissions if entry.attempt == attempt}
    targets: dict[tuple[str, str], list[ShardItem]] = {}
    for item in attempt_items(objects, keys, attempt):
        targets.setdefault((item.provider, item.model), []).append(item)

    def rows(items: Sequence[ShardItem]) -> Iterator[tuple[str, Row]]:
        for item in items:
            entry = entries.get(item.shard_id)
            if entry is not None and entry.outcomes:
                for line in outcome_lines(objects, entry.outcomes):
                    yield entry.outcomes, decode_row(line)
                continue
            lost = OutcomeClass.MISSING if entry is None else OutcomeClass.UNSETTLED
            for member in _members(objects, keys, item.shard_sha256):
                shard_id = member.parent_shard_id or item.shard_id
                tries, used, cap = member.tries + (entry is not None), member.used, member.output_cap
                yield "", Row(member.record_id, shard_id, lost, tries, "lost_shard", used=used, output_cap=cap)

    return AttemptRows(*map(rows, targets.values()))
