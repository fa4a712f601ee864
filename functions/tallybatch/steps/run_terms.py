"""What a run of a job is judged by: its spec and its golden labels, kept with the job before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable

from tallybatch.domain.errors import BadInput, NotFound, Problem
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.layout import JobKeys, golden_key, spec_key
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.quality_golden import MAX_GOLDEN_BYTES, labels_to_bytes, read_golden
from tallybatch.domain.records import decode_record
from tallybatch.domain.shards import ShardFile, read_zstd_lines
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_file import parse_spec
from tallybatch.ports import Objects
from tallybatch.steps.job_context import retention


def pin_spec(spec: Spec, spec_bytes: bytes, keys: JobKeys, objects: Objects) -> None:
    """Keep the spec of a run that is not the job's first one. Raises `BadInput` if it would check records by other
    rules: a job's records are all judged alike."""
    first_bytes = objects.get(keys.spec)
    if first_bytes == spec_bytes:
        return
    first = parse_spec(first_bytes, file=keys.spec).quality
    problems = [
        Problem(f"the job began with other {name}, and each of its answers is judged by these", key=f"quality.{name}")
        for name in ("rules", "quotes")
        if getattr(first, name) != getattr(spec.quality, name)
    ]
    if problems:
        raise BadInput(
            "the checks of records were changed",
            problems,
            where=spec_key(keys.tenant, spec.name),
            do="drop the file under another dataset version: accepted answers that pass the new checks are reused, "
            "and not paid again",
        )
    key = keys.spec_of_run(sha256_hex(spec_bytes))
    objects.put_once(key, spec_bytes, content_type="application/yaml", retention=retention(spec, "results"))


def pin_golden(spec: Spec, shards: Iterable[ShardFile], keys: JobKeys, objects: Objects) -> str:
    """Keep the labels of a run, and return their SHA-256; "" for a spec without a golden file. Raises `BadInput` for a
    file that is missing or malformed, or that has no label for any of these records."""
    golden = spec.quality.golden
    if golden is None:
        return ""
    source = golden_key(keys.tenant, golden.file)
    labels = read_golden(_read(source, objects), golden, key=spec.input.key, where=source)
    if not any(key in labels for shard in shards for key in _business_keys(shard)):
        reason = f"none of its {len(labels):,} labelled keys is in the file"
        raise BadInput(
            "the golden file cannot be used",
            [Problem(reason, key="quality.golden.file", code="golden_foreign")],
            where=source,
            do="label records of the file, or take quality.golden out of the spec; nothing was spent",
        )
    data = labels_to_bytes(labels)
    sha256 = sha256_hex(data)
    objects.put_once(
        keys.golden(sha256), data, content_type="application/x-ndjson", retention=retention(spec, "results")
    )
    return sha256


def _read(key: str, objects: Objects) -> bytes:
    info = objects.head(key)
    reason = f"there is no {key}" if info is None else ""
    if info is not None and info.size > MAX_GOLDEN_BYTES:
        reason = f"it has {info.size:,} bytes; at most {MAX_GOLDEN_BYTES:,} are allowed"
    if not reason:
        try:
            return objects.get(key)
        except NotFound:
            reason = f"there is no {key}"
    raise BadInput(
        "the golden file cannot be used",
        [Problem(reason, key="quality.golden.file", code="golden_missing")],
        where=key,
        do=f"put the labelled records at {key}, then drop the file again; nothing was spent",
    )


def _business_keys(shard: ShardFile) -> Iterable[str]:
    with shard.path.open("rb") as stream:
        for line in read_zstd_lines(stream):
            yield decode_record(line).business_key


def require_same_use(manifest: Manifest, keys: JobKeys, objects: Objects) -> Manifest:
    """The job's manifest as it is stored. What a job is for is no part of its key, so a file for another spec, purpose
    or form of answer may meet it: it must not be told that its answers are there."""
    stored = Manifest.model_validate_json(objects.get(keys.manifest))
    for name in ("spec", "purpose", "schema_version"):
        ours, theirs = getattr(manifest, name), getattr(stored, name)
        if ours != theirs:
            reason = (
                f"this content is job {keys.job_key[:12]} already, for {name} {theirs!r}; this file is for {ours!r}"
            )
            raise BadInput(
                "the dataset version is taken",
                [Problem(reason, key="dataset_version", code="job_taken")],
                where=manifest.source.key,
                do="drop the file under another dataset version; nothing was spent",
            )
    return stored
