"""A job's certificates: the first, those that replace it after people withdrew an answer, and those of a part.

The first that closes is certificate.json. All others lie in certificates/, by the attempt after which they were made.
Each is written once; the one of the latest attempt counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from tallybatch.domain.certificate import Certificate, SealedObject, from_bytes, to_bytes, total_money, total_tokens
from tallybatch.domain.closure import Closure
from tallybatch.domain.errors import Conflict, NotFound
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.prices import usd
from tallybatch.ports import Objects
from tallybatch.steps.job_context import JobContext
from tallybatch.steps.publish_shard import Part

_PARALLEL_HEADS = 16


class _Attempts(msgspec.Struct):
    attempts: int


@dataclass(frozen=True, slots=True)
class Certified:
    key: str
    certificate: Certificate


def newest_certificate(objects: Objects, keys: JobKeys) -> tuple[str, bytes]:
    """Key and bytes of the certificate that counts. Raises `NotFound` for a job without one."""
    later = max((keys.attempt_certified(info.key) for info in objects.list(keys.later_certificates)), default=0)
    first = objects.get(keys.certificate) if objects.head(keys.certificate) is not None else None
    if not later:
        return keys.certificate, first if first is not None else objects.get(keys.certificate)
    if first is not None and _attempts(first) >= later:
        return keys.certificate, first
    return keys.later_certificate(later), objects.get(keys.later_certificate(later))


def attempts_certified(objects: Objects, keys: JobKeys) -> int:
    """How many attempts the certificate that counts is of; 0 if there is none."""
    try:
        return _attempts(newest_certificate(objects, keys)[1])
    except NotFound:
        return 0


def certificate_key(objects: Objects, keys: JobKeys, closure: Closure) -> str:
    """Where the certificate of this closure is, or goes."""
    if not closure.closed:
        return keys.later_certificate(closure.attempt)
    if objects.head(keys.certificate) is None or _attempts(objects.get(keys.certificate)) == closure.attempt:
        return keys.certificate
    return keys.later_certificate(closure.attempt)


def _attempts(data: bytes) -> int:
    """Zero for a certificate that cannot be read: whoever reads it whole says so."""
    try:
        return msgspec.json.decode(data, type=_Attempts).attempts
    except msgspec.DecodeError:
        return 0


def certify(
    closure: Closure, parts: Sequence[Part], context: JobContext, objects: Objects, *, requested_by: str = ""
) -> Certified:
    """The certificate of a closure, made now if it is not there. `requested_by`: who asked to publish a part."""
    key = certificate_key(objects, context.keys, closure)
    if objects.head(key) is None:
        manifest = context.manifest
        certificate = Certificate(
            job_key=manifest.job_key,
            tenant=manifest.tenant,
            spec=manifest.spec,
            dataset_version=manifest.dataset_version,
            manifest_sha256=sha256_hex(objects.get(context.keys.manifest)),
            input_manifest_hash=manifest.input_manifest_hash,
            expected=closure.expected,
            succeeded=closure.succeeded,
            reused=closure.reused,
            failed=closure.failed,
            in_review=closure.in_review,
            missing=closure.missing,
            unknown=closure.unknown,
            duplicate=closure.duplicate,
            closed=closure.closed,
            partial=not closure.closed,
            requested_by=requested_by,
            open=closure.open,
            overdue=closure.overdue,
            acknowledged=closure.acknowledged,
            replaces=_replaced(objects, context.keys),
            attempts=closure.attempt,
            submissions=closure.submissions,
            tokens=total_tokens(closure.submissions),
            cost_usd=usd(total_money(closure.submissions).known_cost),
            closed_at=closure.at,
            objects=tuple(_sealed(objects, (info.key for info in objects.list(context.keys.prefix)))),
            results=tuple(SealedObject(part.key, part.bytes, part.sha256) for part in parts),
        )
        with suppress(Conflict):
            objects.put_once(
                key, to_bytes(certificate), content_type="application/json", retention=context.retention("results")
            )
    return Certified(key, from_bytes(objects.get(key), where=objects.uri(key)))


def _replaced(objects: Objects, keys: JobKeys) -> str:
    try:
        return sha256_hex(newest_certificate(objects, keys)[1])
    except NotFound:
        return ""


def _sealed(objects: Objects, keys: Iterable[str]) -> Iterable[SealedObject]:
    """Hashes as they were computed when each object was written; read back only where that is unknown."""

    def seal(key: str) -> SealedObject:
        info = objects.head(key)
        if info is not None and info.sha256:
            return SealedObject(key, info.size, info.sha256)
        body = objects.get(key)
        return SealedObject(key, len(body), sha256_hex(body))

    with ThreadPoolExecutor(_PARALLEL_HEADS) as pool:
        yield from pool.map(seal, keys)
