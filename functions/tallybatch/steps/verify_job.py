"""Verify: prove a certificate again from the objects alone, without the ledger. Stops at the first difference."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from tallybatch.contracts import PublishItem
from tallybatch.domain.certificate import Certificate, SealedObject, from_bytes
from tallybatch.domain.closure import Sets, fold_shard
from tallybatch.domain.errors import NotFound, TallybatchError
from tallybatch.domain.identity import input_manifest_hash, sha256_hex
from tallybatch.domain.layout import JobKeys, ResultKeys
from tallybatch.domain.lines import CHUNK_BYTES
from tallybatch.domain.outcomes import OutcomeClass, RawRef
from tallybatch.domain.quality_labels import LabelTally
from tallybatch.ports import Objects
from tallybatch.steps.after_certificate import unexplained
from tallybatch.steps.certification import Certified, newest_certificate
from tallybatch.steps.current_results import entry_of
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.job_sets import attempt_rows, record_ids
from tallybatch.steps.outcome_files import read_outcomes
from tallybatch.steps.publish_shard import Part, result_lines
from tallybatch.steps.quality_gates import judgement, read_judgement


@dataclass(frozen=True, slots=True)
class Verification:
    """`difference` is "" when all is as certified; else it names the object and what is wrong with it."""

    checked_objects: int
    checked_records: int
    difference: str = ""
    gone_on: bool = False
    """The job has done more since the certificate was made. That is in no certificate yet, and the report has been
    written anew; all else that was certified is proven."""

    @property
    def ok(self) -> bool:
        return not self.difference


class _Difference(Exception):
    pass


def run(objects: Objects, keys: JobKeys) -> Verification:
    """Raises `NotFound` for a job without a certificate."""
    key, stored = newest_certificate(objects, keys)
    progress = _Progress()
    try:
        certificate = from_bytes(stored, where=objects.uri(key))
        _check_bytes(certificate, key, objects, keys, progress)
        context = load_job(objects, keys.tenant, keys.job_key)
        parts = _check_sets(certificate, context, objects, progress)
        _check_raw(certificate, objects)
        _check_current(Certified(key, certificate), parts, context, objects)
    except _Difference as found:
        return Verification(progress.objects, progress.records, str(found), progress.gone_on)
    except TallybatchError as error:
        return Verification(progress.objects, progress.records, str(error), progress.gone_on)
    return Verification(progress.objects, progress.records, gone_on=progress.gone_on)


@dataclass(slots=True)
class _Progress:
    objects: int = 1
    records: int = 0
    gone_on: bool = False


def _check_bytes(certificate: Certificate, key: str, objects: Objects, keys: JobKeys, progress: _Progress) -> None:
    """Every certified object has its hash, and nothing else lies under the job's prefix but what came later."""
    certified = {sealed.key for sealed in certificate.objects} | {key}
    there = {info.key for info in objects.list(keys.prefix)}
    if missing := sorted(certified - there):
        raise _Difference(f"{objects.uri(missing[0])} is certified and gone: deleted, or past its retention")
    extra = sorted(there - certified)
    if foreign := unexplained(extra, certificate, keys):
        raise _Difference(f"{objects.uri(foreign[0])} is there and not certified")
    progress.gone_on = bool(extra)
    written_anew = {keys.report_json, keys.report_html} if progress.gone_on else set()
    for sealed in (*certificate.objects, *certificate.results):
        if sealed.key not in written_anew:
            _check_object(sealed, objects)
            progress.objects += 1


def _check_object(sealed: SealedObject, objects: Objects) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        with objects.open(sealed.key) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except NotFound:
        raise _Difference(f"{objects.uri(sealed.key)} is certified and gone: deleted, or past its retention") from None
    if size != sealed.bytes:
        raise _Difference(f"{objects.uri(sealed.key)} has {size} bytes, certified are {sealed.bytes}")
    if digest.hexdigest() != sealed.sha256:
        raise _Difference(f"{objects.uri(sealed.key)} has SHA-256 {digest.hexdigest()}, certified is {sealed.sha256}")


def _check_sets(certificate: Certificate, context: JobContext, objects: Objects, progress: _Progress) -> list[Part]:
    """The counts and the published parts, which are returned, follow from the shards and the outcomes."""
    manifest, keys = context.manifest, context.keys
    if sha256_hex(objects.get(keys.manifest)) != certificate.manifest_sha256:
        raise _Difference(f"{objects.uri(keys.manifest)} is not the certified manifest")
    if input_manifest_hash(shard.sha256 for shard in manifest.shards) != certificate.input_manifest_hash:
        raise _Difference(f"{objects.uri(keys.manifest)} lists other shards than were certified")
    rows = [
        attempt_rows(objects, keys, number, certificate.submissions) for number in range(1, certificate.attempts + 1)
    ]
    overdue = certificate.overdue or certificate.closed
    sets = Sets()
    published = iter(certificate.results)
    parts: list[Part] = []
    for shard in manifest.shards:
        ids = record_ids(objects, keys, shard.sha256)
        sources = fold_shard(sets, shard.shard_id, ids, rows, context.retry_policy, overdue=overdue).sources
        progress.records += len(ids)
        item = PublishItem(
            tenant=keys.tenant,
            job_key=keys.job_key,
            attempt=certificate.attempts,
            shard_id=shard.shard_id,
            outcomes=sources,
        )
        lines = list(result_lines(item, context, LabelTally(None), objects))
        if lines:
            parts.append(_check_part(lines, next(published, None), shard.shard_id, context, objects))
    counted = (
        sets.expected,
        sets.succeeded,
        sets.reused,
        dict(sets.failed),
        dict(sets.in_review),
        sets.missing,
        sets.duplicate,
        sets.open,
    )
    certified = (
        certificate.expected,
        certificate.succeeded,
        certificate.reused,
        certificate.failed,
        certificate.in_review,
        certificate.missing,
        certificate.duplicate,
        certificate.open,
    )
    whole = not (sets.open or sets.in_review or sets.missing or sets.duplicate or certificate.unknown)
    if counted != certified or sets.unknown or (certificate.closed and not whole):
        raise _Difference(f"{keys.certificate}: the outcomes give {counted}, certified are {certified}")
    if (surplus := next(published, None)) is not None:
        raise _Difference(f"{objects.uri(surplus.key)} is certified, and the outcomes give no such part")
    if certificate.closed:
        _check_gates(certificate, context, objects)
    return parts


def _check_part(
    lines: Sequence[bytes], sealed: SealedObject | None, shard_id: str, context: JobContext, objects: Objects
) -> Part:
    """Of a compressed part what is in it is compared: another zlib may pack the same lines into other bytes."""
    keys = ResultKeys(context.keys.tenant, context.manifest.spec, context.manifest.dataset_version)
    gzipped = context.spec.output.compression == "gzip"
    if sealed is None or sealed.key != keys.part(sealed.sha256, gzipped=gzipped):
        raise _Difference(f"{context.keys.certificate}: the outcomes give other result parts than were certified")
    expected = b"".join(lines)
    same = gzip.decompress(objects.get(sealed.key)) == expected if gzipped else sha256_hex(expected) == sealed.sha256
    if not same:
        raise _Difference(f"{objects.uri(sealed.key)} holds other rows than the outcomes give")
    return Part(shard_id, sealed.key, sealed.sha256, sealed.bytes, len(lines))


def _check_current(certified: Certified, parts: Sequence[Part], context: JobContext, objects: Objects) -> None:
    """Readers find what was certified, or the results of another job: one for a newer state of the same file."""
    manifest = context.manifest
    where = ResultKeys(manifest.tenant, manifest.spec, manifest.dataset_version).current
    if objects.head(where) is None:
        raise _Difference(f"{objects.uri(where)} is gone: readers find no results")
    try:
        sources = msgspec.json.decode(objects.get(where), type=dict[str, Any])["sources"]
        others = [key for key, there in sources.items() if there["job_key"] == manifest.job_key]
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):
        raise _Difference(f"{objects.uri(where)} does not say what there is of {manifest.source.key}") from None
    for key in dict.fromkeys([manifest.source.key, *others]):
        _check_entry(sources, key, where, certified, parts, context, objects)


def _check_entry(
    sources: dict[str, Any],
    key: str,
    where: str,
    certified: Certified,
    parts: Sequence[Part],
    context: JobContext,
    objects: Objects,
) -> None:
    manifest = context.manifest
    try:
        there = sources[key]
        job_key, named, dropped_at = str(there["job_key"]), str(there["certificate"]), there["dropped_at"]
    except (KeyError, TypeError):
        raise _Difference(f"{objects.uri(where)} does not say what there is of {key}") from None
    if job_key != manifest.job_key:
        if not named.startswith(objects.uri(JobKeys(manifest.tenant, job_key).prefix)):
            raise _Difference(f"{objects.uri(where)} names job {job_key} and the certificate of another one, {named}")
        return
    if named != objects.uri(certified.key):
        raise _Difference(f"{objects.uri(where)} names {named}; the newest certificate is {certified.key}")
    if there != entry_of(certified, parts, context, objects, dropped_at=dropped_at):
        raise _Difference(f"{objects.uri(where)} says something else of job {job_key} than its certificate")


def _check_gates(certificate: Certificate, context: JobContext, objects: Objects) -> None:
    """The judgement follows from the outcomes and the terms it names, and it lets the job pass."""
    stored = read_judgement(context, certificate.attempts, objects)
    again = judgement(
        context,
        objects,
        attempt=certificate.attempts,
        expected=certificate.expected,
        succeeded=certificate.succeeded,
        submissions=certificate.submissions,
        spec_digest=stored.spec_digest,
        golden_sha256=stored.golden.sha256 if stored.golden else "",
    )
    if again != stored or not stored.passed:
        where = objects.uri(context.keys.judgement(certificate.attempts))
        raise _Difference(f"{where}: the outcomes give another judgement, or one that stops the job")


def _check_raw(certificate: Certificate, objects: Objects) -> None:
    """Each outcome's raw reference points at bytes of the provider with the hash it names."""
    for entry in certificate.submissions:
        if not entry.outcomes:
            continue
        references: dict[str, list[RawRef]] = {}
        for outcome in read_outcomes(objects, entry.outcomes):
            if outcome.raw is not None and outcome.outcome is not OutcomeClass.REUSED:
                references.setdefault(outcome.raw.uri, []).append(outcome.raw)
        for uri, wanted in references.items():
            for reference, line in _slices(objects, uri, sorted(wanted, key=lambda one: one.offset)):
                if sha256_hex(line) != reference.sha256:
                    raise _Difference(f"{uri}: the line at byte {reference.offset} is not the one that was accepted")


def _slices(objects: Objects, uri: str, wanted: list[RawRef]) -> Iterator[tuple[RawRef, bytes]]:
    """The bytes of each reference, read in one pass; references are sorted and do not overlap."""
    for before, after in pairwise(wanted):
        if before.offset + before.length > after.offset:
            raise _Difference(f"{uri}: two outcomes point at the same bytes, at {after.offset}")
    with objects.open(uri.removeprefix(objects.uri(""))) as stream:
        position = 0
        for reference in wanted:
            while position < reference.offset:
                position += len(stream.read(min(CHUNK_BYTES, reference.offset - position))) or _cut_short(uri)
            line = stream.read(reference.length)
            position += len(line)
            yield reference, line


def _cut_short(uri: str) -> int:
    raise _Difference(f"{uri} is shorter than the outcomes say")
