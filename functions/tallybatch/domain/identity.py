"""Identity: every key in the system is SHA-256 over a canonical JSON array of strings (RFC 8785).

Bare concatenation would let `("ab", "c")` and `("a", "bc")` collide; an array of JSON strings cannot.
Nothing here depends on a line number, a clock or a random value.
"""

from __future__ import annotations

import hashlib
from binascii import hexlify
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

RECORD_ID_HEX = 32
"""Length of a record_id on the wire: accepted as an id by each provider (`[A-Za-z0-9]`, at most 36 characters)."""

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def canonical(parts: Iterable[str]) -> bytes:
    """The RFC 8785 form of a JSON array of strings, UTF-8."""
    return _encode(list(parts))


def digest(*parts: str) -> str:
    """SHA-256, 64 hex characters, over the canonical array of `parts`."""
    return hashlib.sha256(canonical(parts)).hexdigest()


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def settings_digest(value: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON value with sorted keys, so that the order in which settings are written is nothing."""
    return hashlib.sha256(_encode_sorted(value)).hexdigest()


def input_manifest_hash(shard_hashes: Iterable[str]) -> str:
    """Over the sorted shard hashes, so that shards prepared in any order give the same value."""
    return digest(*sorted(shard_hashes))


def prompt_version(label: str, content_digest: str) -> str:
    """A prompt's label bound to its content: the same label with other content is another version."""
    return f"{label}@{content_digest[:16]}"


def job_key(
    *,
    tenant: str,
    dataset_version: str,
    input_manifest_hash: str,
    model_resolved: str,
    prompt_version: str,
    generation_config_hash: str,
) -> str:
    return digest(tenant, dataset_version, input_manifest_hash, model_resolved, prompt_version, generation_config_hash)


def refused_job_key(*, tenant: str, source_key: str, source_sha256: str, spec_digest: str) -> str:
    """Key of a job that never got a manifest: the same refused file under the same spec is the same job."""
    return digest("refused", tenant, source_key, source_sha256, spec_digest)


def submission_key(*, job_key: str, shard_sha256: str, attempt: int, generation: int, home: str = "") -> str:
    """The marker that travels with a provider job: 64 hex characters. `home` is the bucket of this pipeline.
    Another one under the same account may have the same file, and would take the job for its own."""
    return digest(job_key, shard_sha256, str(attempt), str(generation), *filter(None, [home]))


def execution_name(job_key: str, run: int) -> str:
    """Name of a job's state machine execution, at most 80 characters; `run` grows when a job is resumed."""
    return f"{job_key}-{run}"


@dataclass(frozen=True)
class RecordIdentity:
    """What all records of one job share; derives the two keys of each record, which are those of `digest`."""

    tenant: str
    purpose: str
    prompt_version: str
    model_config_version: str
    schema_version: str
    model_resolved: str

    @cached_property
    def _around_id(self) -> tuple[bytes, bytes]:
        return _opening(self.tenant), _ending(self.prompt_version, self.model_config_version)

    def record_id(self, business_key: str, source_version: str) -> str:
        """32 hex characters: this input under this configuration; the id on the wire. H(tenant, business_key,
        source_version, prompt_version, model_config_version)."""
        return self.record_ids([_encode(business_key)], [_encode(source_version)])[0].decode()

    def record_ids(self, business_keys: Iterable[bytes], source_versions: Iterable[bytes]) -> list[bytes]:
        """`record_id` of many, for the record loop: takes business keys and source versions as JSON. What stands around
        these two in the array that is hashed is encoded once."""
        head, tail = self._around_id
        return [
            hexlify(hashlib.sha256(b"%b%b,%b%b" % (head, key, version, tail)).digest()[: RECORD_ID_HEX // 2])
            for key, version in zip(business_keys, source_versions, strict=True)
        ]

    def record_key(self, record_id: str, source_version: str) -> str:
        """64 hex characters: the slot for one accepted answer. H(tenant, purpose, record_id, source_version,
        prompt_version, schema_version, model_resolved)."""
        tenant, purpose, prompt_version = self.tenant, self.purpose, self.prompt_version
        parts = tenant, purpose, record_id, source_version, prompt_version, self.schema_version, self.model_resolved
        return hashlib.sha256(_encode(parts)).hexdigest()


def _opening(*parts: str) -> bytes:
    """The canonical array of `parts`, open for more."""
    return canonical(parts)[:-1] + b","


def _ending(*parts: str) -> bytes:
    return b"," + canonical(parts)[1:]
