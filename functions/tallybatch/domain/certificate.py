"""The certificate: the hashed statement that a job's sets close, over every object that belongs to it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tallybatch.domain.billing import Money, money
from tallybatch.domain.closure import SubmissionEntry
from tallybatch.domain.errors import ObjectDamaged
from tallybatch.domain.identity import sha256_hex

VERSION = 1


class SealedObject(msgspec.Struct, frozen=True):
    """An object by its key; size and SHA-256 of its bytes as stored."""

    key: str
    bytes: int
    sha256: str


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """`sha256` is over this document without that field. Counts are records, `tokens` as billed, times Unix seconds;
    `cost_usd` is null while answers without a price are in it."""

    certificate_version: int = VERSION
    job_key: str
    tenant: str
    spec: str
    dataset_version: str
    manifest_sha256: str
    input_manifest_hash: str
    expected: int
    succeeded: int
    reused: int
    failed: dict[str, int]
    in_review: dict[str, int]
    missing: int
    unknown: int
    duplicate: int
    closed: bool = True
    partial: bool = False
    """What is published is not all there will be: somebody asked for what was accepted so far."""
    requested_by: str = ""
    """Who asked for that."""
    open: int = 0
    overdue: bool = False
    """Of a part: whether the deadline had passed when the sets were counted."""
    acknowledged: int = 0
    """Result lines with unknown ids that somebody has seen."""
    replaces: str = ""
    """SHA-256 of the certificate that counted before this one, "" for the first."""
    attempts: int
    submissions: tuple[SubmissionEntry, ...]
    tokens: dict[str, int]
    cost_usd: str | None
    closed_at: float
    objects: tuple[SealedObject, ...]
    """Every object under the job's prefix but the certificate itself."""
    results: tuple[SealedObject, ...]
    """The published parts, in the order of the manifest's shards."""
    sha256: str = ""


def to_bytes(certificate: Certificate) -> bytes:
    """Sealed with its own hash; the same certificate always gives the same bytes."""
    return _render(msgspec.structs.replace(certificate, sha256=_own_hash(certificate)))


def from_bytes(data: bytes, *, where: str) -> Certificate:
    """Raises `ObjectDamaged` unless the bytes are exactly those of a sealed certificate."""
    try:
        certificate = msgspec.json.decode(data, type=Certificate)
    except msgspec.DecodeError:
        raise ObjectDamaged("the certificate cannot be read", where=where) from None
    if certificate.sha256 != _own_hash(certificate) or data != _render(certificate):
        raise ObjectDamaged("the certificate does not have its own hash", where=where)
    return certificate


def _own_hash(certificate: Certificate) -> str:
    return sha256_hex(_render(msgspec.structs.replace(certificate, sha256="")))


def _render(certificate: Certificate) -> bytes:
    return msgspec.json.format(msgspec.json.encode(certificate), indent=1) + b"\n"


def total_money(submissions: Iterable[SubmissionEntry]) -> Money:
    """What all submissions and their ghosts cost."""
    return money((entry.attempt, entry.costs, entry.duplicate_cost_nano_usd, entry.unpriced) for entry in submissions)


def total_tokens(submissions: Iterable[SubmissionEntry]) -> dict[str, int]:
    """Tokens over all submissions and their ghosts, as the providers bill them."""
    total: dict[str, int] = {}
    for entry in submissions:
        for tokens in (entry.tokens, entry.duplicate_tokens):
            for kind, count in tokens.items():
                total[kind] = total.get(kind, 0) + count
    return total
