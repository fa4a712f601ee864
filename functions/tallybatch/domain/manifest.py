"""The manifest: what is submitted, by whom, with what, in which shards, under which hashes. Written once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from tallybatch.domain import identity
from tallybatch.domain.layout import InboxKey
from tallybatch.domain.prices import Price
from tallybatch.domain.shards import ShardFile
from tallybatch.domain.spec import Spec

MANIFEST_VERSION = 1
POSTPROCESSING_VERSION = "1"
"""Raise it when the way from a raw answer to a published row changes."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class SourceSnapshot(_Frozen):
    """The dropped object, as it was read. Size in bytes as stored; `sha256` over those bytes."""

    bucket: str
    key: str
    version_id: str
    size: int
    sha256: str
    lines: int
    quarantined_lines: int = 0


class ShardEntry(_Frozen):
    """`sha256` over the normalised lines; `bytes` of the request lines it becomes, and of the largest of these."""

    shard_id: str
    sha256: str
    record_count: int
    bytes: int
    largest_bytes: int = 0
    estimated_tokens: int


class TargetEntry(_Frozen):
    """A provider and model that records fall back to."""

    provider: str
    endpoint: str
    model_alias: str
    model_resolved: str


class Manifest(_Frozen):
    """No secret and no prompt text: digests only."""

    manifest_version: int = MANIFEST_VERSION
    job_key: str
    tenant: str
    spec: str
    dataset_version: str
    purpose: str
    data_class: str
    provider: str
    endpoint: str
    model_alias: str
    model_resolved: str
    fallback: tuple[TargetEntry, ...] = ()
    prompt_version: str
    prompt_digest: str
    system_digest: str
    tool_schema_digest: str
    generation_config_hash: str
    model_config_version: str
    schema_version: str
    schema_digest: str
    source: SourceSnapshot
    input_manifest_hash: str
    expected_record_count: int
    shards: tuple[ShardEntry, ...]
    canary_records: int = 0
    """How many records are tried before the rest; 0 is none."""
    postprocessing_version: str = POSTPROCESSING_VERSION
    spec_digest: str
    golden_sha256: str = ""
    """Of the labels by which the first run is judged, "" without a golden file; they are kept with the job."""
    retention: dict[str, str]
    owner: str
    cost_center: str
    limits: dict[str, Any]
    prices: tuple[Price, ...] = ()
    """Of every model and lane that the job may use, as they were known when it began; it is booked at these."""
    created_at: float
    created_by: str

    def to_bytes(self) -> bytes:
        return self.model_dump_json(indent=2).encode() + b"\n"


def describe(
    spec: Spec,
    place: InboxKey,
    source: SourceSnapshot,
    shards: Sequence[ShardFile],
    *,
    prices: Sequence[Price] = (),
    spec_digest: str,
    golden_sha256: str = "",
    created_at: float,
    created_by: str,
    canary_records: int = 0,
) -> Manifest:
    """The manifest of a prepared file; its job_key follows from all that shapes an answer."""
    input_hash = identity.input_manifest_hash(shard.sha256 for shard in shards)
    job_key = identity.job_key(
        tenant=place.tenant,
        dataset_version=place.dataset_version,
        input_manifest_hash=input_hash,
        model_resolved=spec.model_resolved,
        prompt_version=spec.prompt_version,
        generation_config_hash=spec.generation_config_hash,
    )
    entries = tuple(
        ShardEntry(
            shard_id=shard.shard_id,
            sha256=shard.sha256,
            record_count=shard.record_count,
            bytes=shard.request_bytes,
            largest_bytes=shard.largest_bytes,
            estimated_tokens=shard.estimated_tokens,
        )
        for shard in shards
    )
    return Manifest(
        job_key=job_key,
        tenant=place.tenant,
        spec=place.spec,
        dataset_version=place.dataset_version,
        purpose=spec.purpose,
        data_class=spec.input.data_class,
        provider=spec.provider,
        endpoint=spec.endpoint,
        model_alias=spec.model,
        model_resolved=spec.model_resolved,
        fallback=tuple(
            TargetEntry(
                provider=there.provider,
                endpoint=there.endpoint,
                model_alias=there.model,
                model_resolved=there.model_resolved,
            )
            for there in spec.targets[1:]
        ),
        prompt_version=spec.prompt_version,
        prompt_digest=spec.prompt_content_digest,
        system_digest=spec.system_digest,
        tool_schema_digest=spec.tool_schema_digest,
        generation_config_hash=spec.generation_config_hash,
        model_config_version=spec.model_config_version,
        schema_version=spec.output.schema_version,
        schema_digest=spec.schema_digest,
        source=source,
        input_manifest_hash=input_hash,
        expected_record_count=sum(shard.record_count for shard in shards),
        shards=entries,
        canary_records=canary_records,
        spec_digest=spec_digest,
        golden_sha256=golden_sha256,
        retention={kind: f"{span.days}d" for kind, span in spec.retention},
        owner=spec.owner.submitted_by,
        cost_center=spec.owner.cost_center,
        limits=spec.limits.model_dump(mode="json"),
        prices=tuple(prices),
        created_at=created_at,
        created_by=created_by,
    )
