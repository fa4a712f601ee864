"""The certificate: the same statement gives the same bytes, and no other bytes are taken for it."""

from __future__ import annotations

import hashlib
import json
import random

import msgspec
import pytest

from tallybatch.domain.certificate import Certificate, SealedObject, from_bytes, to_bytes, total_tokens
from tallybatch.domain.closure import Closure, SubmissionEntry
from tallybatch.domain.errors import ObjectDamaged

ENTRY = SubmissionEntry(
    attempt=1, shard_id="00000-aa", submission_key="b" * 64, state="RECONCILED", provider="openai",
    provider_jobs=("batch_1", "batch_2"), records=10, outcomes="jobs/acme/k/outcomes.jsonl.zst",
    counts={"succeeded": 9, "permanent": 1}, tokens={"input": 100, "output": 20}, submitted_at=1.5, terminal_at=2.5,
)  # fmt: skip
CERTIFICATE = Certificate(
    job_key="a" * 64, tenant="acme", spec="genre", dataset_version="2026 é", manifest_sha256="c" * 64,
    input_manifest_hash="d" * 64, expected=10, succeeded=9, reused=0, failed={"permanent": 1}, in_review={},
    missing=0, unknown=0,
    duplicate=0, attempts=1, submissions=(ENTRY,), tokens={"input": 100, "output": 20}, cost_usd=None,
    closed_at=1_700_000_000.25, objects=(SealedObject("jobs/acme/k/manifest.json", 12, "e" * 64),),
    results=(SealedObject("results/acme/genre/v/parts/f.jsonl", 34, "f" * 64),),
)  # fmt: skip
BYTES = to_bytes(CERTIFICATE)


def test_given_a_certificate_when_sealed_then_it_is_read_back_with_the_hash_of_its_own_body() -> None:
    sealed = from_bytes(BYTES, where="x")
    assert msgspec.structs.replace(sealed, sha256="") == CERTIFICATE
    without = BYTES.replace(sealed.sha256.encode(), b"")
    assert sealed.sha256 == hashlib.sha256(without).hexdigest()
    assert to_bytes(sealed) == BYTES == to_bytes(CERTIFICATE)


@pytest.mark.parametrize("seed", range(8))
def test_given_any_flipped_byte_when_read_then_the_certificate_is_damaged_and_its_place_named(seed: int) -> None:
    """All bytes over the eight seeds, each with another bit pattern."""
    for place in range(seed, len(BYTES), 8):
        damaged = bytearray(BYTES)
        damaged[place] ^= random.Random(place).randrange(1, 256)
        with pytest.raises(ObjectDamaged, match=r"^jobs/acme/k/certificate\.json: ") as caught:
            from_bytes(bytes(damaged), where="jobs/acme/k/certificate.json")
        assert caught.value.where == "jobs/acme/k/certificate.json"


@pytest.mark.parametrize(
    "damaged",
    [
        b"", BYTES[:-1], BYTES + b"\n", BYTES + b" ", b" " + BYTES, BYTES[:100], b"null", b"[]", b"{}", b"\xff",
        BYTES.replace(b"\n", b"\r\n"), json.dumps(json.loads(BYTES)).encode(), BYTES * 2,
        BYTES.replace(b'"missing": 0', b'"missing": 0.0'), BYTES.replace(b'"cost_usd": null', b'"cost_usd": "0"'),
        BYTES.replace(b'"duplicate": 0', b'"duplicate": 0, "duplicate": 0'),
        BYTES.replace(b'"expected": 10', b'"expected": 10, "also": 1'),
    ],
)  # fmt: skip
def test_given_other_bytes_when_read_then_they_are_no_certificate(damaged: bytes) -> None:
    assert damaged != BYTES
    with pytest.raises(ObjectDamaged):
        from_bytes(damaged, where="x")


def test_given_a_forged_count_with_the_old_hash_when_read_then_it_is_damaged() -> None:
    forged = BYTES.replace(b'"succeeded": 9', b'"succeeded": 8')
    assert forged != BYTES
    with pytest.raises(ObjectDamaged, match="does not have its own hash"):
        from_bytes(forged, where="x")


@pytest.mark.parametrize("field", [name for name in Certificate.__struct_fields__ if name != "sha256"])
def test_given_a_certificate_when_one_statement_changes_then_so_does_its_hash(field: str) -> None:
    value = getattr(CERTIFICATE, field)
    other = {
        "str": "other",
        "int": 99,
        "float": 99.5,
        "dict": {"other": 1},
        "tuple": (),
        "NoneType": "1.5",
        "bool": not value,
    }
    changed = msgspec.structs.replace(CERTIFICATE, **{field: other[type(value).__name__]})
    assert from_bytes(to_bytes(changed), where="x").sha256 != from_bytes(BYTES, where="x").sha256


def test_given_submissions_when_added_up_then_tokens_are_summed_by_kind() -> None:
    entries = [
        SubmissionEntry(1, "a", "k", "s", tokens={"input": 10, "output": 1}),
        SubmissionEntry(1, "b", "k", "s"),
        SubmissionEntry(2, "c", "k", "s", tokens={"input": 5, "reasoning": 7}),
    ]
    closure = Closure(
        job_key="k", attempt=2, at=0, expected=0, succeeded=0, reused=0, failed={}, open=0, waiting=0, unsettled=0,
        missing=0, unknown=0, duplicate=0, overdue=False, open_key="", publish_key="", submissions=tuple(entries),
    )  # fmt: skip
    assert total_tokens(closure.submissions) == {"input": 15, "output": 1, "reasoning": 7}
    assert total_tokens(msgspec.structs.replace(closure, submissions=()).submissions) == {}
