"""Unknown ids that a person has seen: an audited act per attempt, after which closure counts them no more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from tallybatch.domain.errors import Conflict
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lines import CHUNK_BYTES
from tallybatch.domain.rows import Submission
from tallybatch.ports import Objects


class Quarantined(msgspec.Struct, frozen=True):
    """The unknown lines of one submission: the object they lie in, and its SHA-256."""

    submission_key: str
    key: str
    sha256: str
    lines: int


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """Who has seen which unknown lines, and when (Unix seconds)."""

    by: str
    at: float
    attempt: int
    lines: int
    quarantined: tuple[Quarantined, ...]


def acknowledged_ids(objects: Objects, keys: JobKeys, *, before: int) -> dict[str, int]:
    """Unknown lines that were acknowledged in the attempts before this one, by submission_key."""
    counts: dict[str, int] = {}
    for attempt in range(1, before):
        if objects.head(keys.acknowledgement(attempt)) is not None:
            counts |= {one.submission_key: one.lines for one in _read(objects, keys, attempt).quarantined}
    return counts


def acknowledge(
    by: str, at: float, attempt: int, rows: Iterable[Submission], objects: Objects, keys: JobKeys, *, retention: str
) -> Acknowledgement | None:
    """Write down that the unknown lines of these submissions were seen. The first act of an attempt stands and is
    returned, whoever repeats it; None if there is nothing to acknowledge."""
    if objects.head(keys.acknowledgement(attempt)) is None:
        known = acknowledged_ids(objects, keys, before=attempt)
        found = tuple(
            _quarantined(row, objects, keys)
            for row in rows
            if row.anomalies.get("unknown") and row.submission_key not in known
        )
        if not found:
            return None
        made = Acknowledgement(by=by, at=at, attempt=attempt, lines=sum(one.lines for one in found), quarantined=found)
        body = msgspec.json.format(msgspec.json.encode(made), indent=1)
        with suppress(Conflict):
            objects.put_once(keys.acknowledgement(attempt), body, content_type="application/json", retention=retention)
    return _read(objects, keys, attempt)


def _read(objects: Objects, keys: JobKeys, attempt: int) -> Acknowledgement:
    return msgspec.json.decode(objects.get(keys.acknowledgement(attempt)), type=Acknowledgement)


def _quarantined(row: Submission, objects: Objects, keys: JobKeys) -> Quarantined:
    """Raises `NotFound` when the lines are gone: nobody can have seen them."""
    key = keys.unknown_ids(row.submission_key)
    digest = hashlib.sha256()
    with objects.open(key) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return Quarantined(row.submission_key, key, digest.hexdigest(), row.anomalies["unknown"])
