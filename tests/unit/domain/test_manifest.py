"""The manifest: everything that shapes an answer is in it by digest, and its key follows from that alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from pydantic import ValidationError

from tallybatch.domain.layout import parse_inbox_key
from tallybatch.domain.manifest import Manifest, SourceSnapshot, describe
from tallybatch.domain.shards import ShardFile
from tallybatch.domain.spec_file import parse_spec

SPEC = """
name: film-genre
purpose: catalogue
provider: openai
model: mini
aliases: {mini: gpt-5-mini-2025-08-07}
prompt: {version: genre-v1, system: You label SECRETLY., user: "SECRET {{ title }}"}
generation: {temperature: 0}
output: {schema_version: GenreV1, schema: {type: object, required: [genre], properties: {genre: {type: string}}}}
retention: {raw: 14d}
owner: {submitted_by: data-team, cost_center: "4711"}
"""
SHARDS = [
    ShardFile("00000-aa", "a" * 64, 10, 4001, Path("x"), 900),
    ShardFile("00001-bb", "b" * 64, 3, 8, Path("y"), 3),
]
SOURCE = SourceSnapshot(
    bucket="b", key="inbox/acme/film-genre/v1/f.jsonl", version_id="1", size=9, sha256="c", lines=13
)


def made(
    spec: str = SPEC,
    *,
    tenant: str = "acme",
    version: str = "v1",
    shards: list[ShardFile] = SHARDS,
    source: SourceSnapshot = SOURCE,
    created_at: float = 1_700_000_000.5,
    created_by: str = "build_manifest",
) -> Manifest:
    place = parse_inbox_key(f"inbox/{tenant}/film-genre/{version}/f.jsonl")
    digest = hashlib.sha256(spec.encode()).hexdigest()
    return describe(
        parse_spec(spec.encode()), place, source, shards,
        spec_digest=digest, created_at=created_at, created_by=created_by,
    )  # fmt: skip


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_given_a_prepared_file_when_described_then_every_field_is_there() -> None:
    manifest = made()
    prompt = hashlib.sha256(rfc8785.dumps(["You label SECRETLY.", "SECRET {{ title }}"])).hexdigest()
    assert (manifest.tenant, manifest.spec, manifest.dataset_version) == ("acme", "film-genre", "v1")
    assert (manifest.purpose, manifest.data_class, manifest.provider) == ("catalogue", "internal", "openai")
    assert (manifest.model_alias, manifest.model_resolved) == ("mini", "gpt-5-mini-2025-08-07")
    assert (manifest.prompt_version, manifest.prompt_digest) == (f"genre-v1@{prompt[:16]}", prompt)
    assert manifest.system_digest == sha("You label SECRETLY.")
    assert (manifest.schema_version, len(manifest.schema_digest), manifest.tool_schema_digest) == ("GenreV1", 64, "")
    assert (manifest.expected_record_count, manifest.source) == (13, SOURCE)
    assert [shard.model_dump() for shard in manifest.shards] == [
        {
            "shard_id": f"0000{number}-{letter * 2}",
            "sha256": letter * 64,
            "record_count": records,
            "bytes": size,
            "largest_bytes": largest,
            "estimated_tokens": tokens,
        }
        for number, letter, records, size, largest, tokens in ((0, "a", 10, 4001, 900, 1001), (1, "b", 3, 8, 3, 2))
    ]
    assert manifest.retention == {"inbox": "30d", "working": "30d", "raw": "14d", "results": "365d"}
    assert (manifest.owner, manifest.cost_center, manifest.spec_digest) == ("data-team", "4711", sha(SPEC))
    assert (manifest.created_at, manifest.created_by, manifest.manifest_version) == (
        1_700_000_000.5,
        "build_manifest",
        1,
    )


def test_given_a_manifest_when_keyed_then_the_key_is_over_what_the_design_lists() -> None:
    manifest = made()
    inputs = hashlib.sha256(rfc8785.dumps(["a" * 64, "b" * 64])).hexdigest()
    parts = [
        "acme", "v1", inputs, "gpt-5-mini-2025-08-07", manifest.prompt_version, manifest.generation_config_hash,
    ]  # fmt: skip
    assert manifest.input_manifest_hash == inputs
    assert manifest.job_key == hashlib.sha256(rfc8785.dumps(parts)).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        {"created_at": 1.0},
        {"created_by": "somebody"},
        {"shards": SHARDS[::-1]},
        {"source": SOURCE.model_copy(update={"key": "inbox/acme/film-genre/v1/other.jsonl", "version_id": "2"})},
        {"spec": SPEC.replace("data-team", "other-team")},
        {"spec": SPEC.replace("14d", "15d")},
        {"spec": SPEC.replace("model: mini\naliases: {mini: gpt-5-mini-2025-08-07}",
                                                       "model: gpt-5-mini-2025-08-07")},
    ],
)  # fmt: skip
def test_given_something_that_shapes_no_answer_when_it_changes_then_the_job_is_the_same(other: dict[str, Any]) -> None:
    assert made(**other).job_key == made().job_key


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "other"},
        {"version": "v2"},
        {"shards": SHARDS[:1]},
        {"spec": SPEC.replace("gpt-5-mini-2025-08-07", "gpt-5-mini-2026-01-01")},
        {"spec": SPEC.replace("genre-v1", "genre-v2")},
        {"spec": SPEC.replace("SECRET {{", "secret {{")},
        {"spec": SPEC.replace("SECRETLY", "secretly")},
        {"spec": SPEC.replace("temperature: 0", "temperature: 1")},
        {"spec": SPEC.replace("genre: {type: string}", "genre: {type: number}")},
    ],
)
def test_given_something_that_shapes_the_answers_when_it_changes_then_the_job_is_another(other: dict[str, Any]) -> None:
    assert made(**other).job_key != made().job_key


def test_given_a_manifest_when_stored_then_it_comes_back_whole_and_holds_no_prompt() -> None:
    data = made().to_bytes()
    assert Manifest.model_validate_json(data) == made()
    assert b"SECRET" not in data
    assert data.endswith(b"}\n")
    assert set(json.loads(data)) == set(Manifest.model_fields)


def test_given_a_stored_manifest_when_it_has_a_field_too_many_or_is_changed_then_it_is_refused() -> None:
    with pytest.raises(ValidationError, match="extra"):
        Manifest.model_validate({**made().model_dump(), "prompt": "x"})
    with pytest.raises(ValidationError, match="frozen"):
        made().tenant = "other"
