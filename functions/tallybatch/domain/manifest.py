"""The manifest: what is submitted, by whom, with what, in which shards, under which hashes. Written once."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

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
    """`sha256` over the normalised lines; `bytes` of the request lines it becomes."""

    shard_id: str
    sha256: str
    record_count: int
    bytes: int
    estimated_tokens: int


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
    postprocessing_version: str = POSTPROCESSING_VERSION
    spec_digest: str
    retention: dict[str, str]
    owner: str
    cost_center: str
    limits: dict[str, Any]
    created_at: float
    created_by: str

    def to_bytes(self) -> bytes:
        return self.model_dump_json(indent=2).encode() + b"\n"
