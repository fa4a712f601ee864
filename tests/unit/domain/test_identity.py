"""Keys: independent golden values, and the ways in which two different things might get one key."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tallybatch.domain import identity
from tallybatch.domain.identity import RecordIdentity

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NASTY = st.text(st.sampled_from('ab",[]\\/\u2028\u0000\n é😀'), max_size=6)

IDENTITY = RecordIdentity(
    tenant="acme",
    purpose="catalogue",
    prompt_version="genre-v1@0123456789abcdef",
    model_config_version="cafe",
    schema_version="GenreV1",
    model_resolved="gpt-5-mini-2025-08-07",
)
JOB = {
    "tenant": "acme",
    "dataset_version": "2026-01",
    "input_manifest_hash": "aa",
    "model_resolved": "gpt-5-mini-2025-08-07",
    "prompt_version": "genre-v1@0123456789abcdef",
    "generation_config_hash": "bb",
}


def independent(parts: list[str]) -> str:
    return hashlib.sha256(rfc8785.dumps(parts)).hexdigest()


@settings(max_examples=120, deadline=None)
@given(st.lists(TEXT | NASTY, max_size=8))
def test_given_any_strings_when_encoded_then_the_form_is_that_of_rfc_8785(parts: list[str]) -> None:
    assert identity.canonical(parts) == rfc8785.dumps(parts)
    assert identity.digest(*parts) == independent(parts)


@settings(max_examples=120, deadline=None)
@given(st.lists(NASTY, max_size=4), st.lists(NASTY, max_size=4))
def test_given_two_lists_when_they_differ_then_their_digests_differ(one: list[str], other: list[str]) -> None:
    assume(one != other)
    assert identity.digest(*one) != identity.digest(*other)


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT, st.integers(0, 12))
def test_given_a_boundary_when_shifted_then_the_digest_changes(one: str, other: str, at: int) -> None:
    joined = one + other
    assume((joined[:at], joined[at:]) != (one, other))
    assert identity.digest(one, other) != identity.digest(joined[:at], joined[at:])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["ab", "c"], ["a", "bc"]),
        (["a", "b"], ["a,b"]),
        (['a","b'], ["a", "b"]),
        (["a\\", "b"], ["a", "\\b"]),
        (['a\\","b'], ['a\\"', "b"]),
        (["", "a"], ["a", ""]),
        (["a"], ["a", ""]),
        ([], [""]),
        (["1"], ["01"]),
        (["a\u0000b"], ["a\\u0000b"]),
        (["é"], ["\\u00e9"]),
        (["a\n"], ["a\\n"]),
    ],
)
def test_given_look_alikes_when_hashed_then_no_two_collide(one: list[str], other: list[str]) -> None:
    assert identity.digest(*one) != identity.digest(*other)


@pytest.mark.parametrize("word", ["é", "ñandú", "Å", "가"])
def test_given_nfc_and_nfd_when_hashed_then_they_stay_two_keys(word: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, word) for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert IDENTITY.record_id(composed, "v") != IDENTITY.record_id(decomposed, "v")


def test_given_a_known_job_when_keyed_then_the_key_is_the_golden_one() -> None:
    parts = ["acme", "2026-01", "aa", "gpt-5-mini-2025-08-07", "genre-v1@0123456789abcdef", "bb"]
    assert identity.job_key(**JOB) == independent(parts)
    assert identity.job_key(**JOB) == "9040a3c0756294d938feeb3c25d1b6d2d5cc879dfaddf4e8acc94ca1587e0ec3"


def test_given_a_known_record_when_keyed_then_both_keys_are_the_golden_ones() -> None:
    record_id = IDENTITY.record_id("tt0133093", "2026-01-01")
    assert record_id == independent(["acme", "tt0133093", "2026-01-01", "genre-v1@0123456789abcdef", "cafe"])[:32]
    assert record_id == "301ca478654f55301e2bce7f11b9d369"
    record_key = IDENTITY.record_key(record_id, "2026-01-01")
    assert record_key == independent(
        [
            "acme",
            "catalogue",
            record_id,
            "2026-01-01",
            "genre-v1@0123456789abcdef",
            "GenreV1",
            "gpt-5-mini-2025-08-07",
        ]
    )
    assert record_key == "62d8c92d61d0823cb6b6a08fd8b74818c20c1d5583d54a2859f3fd3db94c32e1"


def test_given_a_known_submission_when_keyed_then_the_marker_is_the_golden_one() -> None:
    marker = identity.submission_key(job_key="k", shard_sha256="s", attempt=2, generation=3)
    assert marker == independent(["k", "s", "2", "3"])
    assert marker == "5645475bc0308cb49d7577727119714db6bb3cb71164d1fba51da0945ef77869"
    elsewhere = identity.submission_key(job_key="k", shard_sha256="s", attempt=2, generation=3, home="bucket")
    assert elsewhere == independent(["k", "s", "2", "3", "bucket"])


def test_given_a_refused_file_when_keyed_then_the_key_is_no_jobs_key() -> None:
    key = identity.refused_job_key(tenant="acme", source_key="inbox/a", source_sha256="aa", spec_digest="bb")
    assert key == independent(["refused", "acme", "inbox/a", "aa", "bb"])
    assert key == "8e640f472c32a5e4539762fc46b4e688d7014f4c6c94b6c4be664e8d56ef2348"


@pytest.mark.parametrize("field", sorted(JOB))
def test_given_a_job_when_one_input_changes_then_so_does_its_key(field: str) -> None:
    assert identity.job_key(**{**JOB, field: JOB[field] + "x"}) != identity.job_key(**JOB)


def test_given_a_job_when_two_inputs_swap_their_values_then_so_does_its_key() -> None:
    for one, other in itertools.combinations(sorted(JOB), 2):
        swapped = {**JOB, one: JOB[other], other: JOB[one]}
        assert identity.job_key(**swapped) != identity.job_key(**JOB), (one, other)


@pytest.mark.parametrize(
    ("field", "value"), [("job_key", "k2"), ("shard_sha256", "s2"), ("attempt", 2), ("generation", 2)]
)
def test_given_a_submission_when_one_input_changes_then_so_does_its_marker(field: str, value: Any) -> None:
    base: dict[str, Any] = {"job_key": "k", "shard_sha256": "s", "attempt": 1, "generation": 1}
    assert identity.submission_key(**{**base, field: value}) != identity.submission_key(**base)


@pytest.mark.parametrize("field", ["tenant", "source_key", "source_sha256", "spec_digest"])
def test_given_a_refused_file_when_one_input_changes_then_so_does_its_key(field: str) -> None:
    base = {"tenant": "a", "source_key": "b", "source_sha256": "c", "spec_digest": "d"}
    assert identity.refused_job_key(**{**base, field: "x"}) != identity.refused_job_key(**base)


RECORD_ID_PARTS = {"tenant", "prompt_version", "model_config_version"}
RECORD_KEY_PARTS = {"tenant", "purpose", "prompt_version", "schema_version", "model_resolved"}


@pytest.mark.parametrize("field", sorted(RECORD_ID_PARTS | RECORD_KEY_PARTS))
def test_given_a_record_when_the_configuration_changes_then_just_the_keys_that_depend_on_it_change(field: str) -> None:
    other = replace(IDENTITY, **{field: getattr(IDENTITY, field) + "x"})
    assert (other.record_id("k", "v") != IDENTITY.record_id("k", "v")) == (field in RECORD_ID_PARTS)
    assert (other.record_key("r", "v") != IDENTITY.record_key("r", "v")) == (field in RECORD_KEY_PARTS)


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT, TEXT, TEXT)
def test_given_two_records_when_key_or_version_differ_then_so_do_both_keys(
    key: str, version: str, other_key: str, other_version: str
) -> None:
    assume((key, version) != (other_key, other_version))
    assert IDENTITY.record_id(key, version) != IDENTITY.record_id(other_key, other_version)
    assert IDENTITY.record_key(key, version) != IDENTITY.record_key(other_key, other_version)


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT)
def test_given_any_record_when_keyed_then_the_keys_fit_every_wire(key: str, version: str) -> None:
    record_id = IDENTITY.record_id(key, version)
    assert re.fullmatch(r"[0-9a-f]{32}", record_id)
    assert re.fullmatch(r"[0-9a-f]{64}", IDENTITY.record_key(record_id, version))


@pytest.mark.parametrize("run", [1, 2, 999_999_999])
def test_given_any_run_when_an_execution_is_named_then_step_functions_takes_the_name(run: int) -> None:
    name = identity.execution_name(identity.job_key(**JOB), run)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name)
    assert name.startswith(identity.job_key(**JOB))
    assert name != identity.execution_name(identity.job_key(**JOB), run + 1)


JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(TEXT, JSON_VALUE, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_given_settings_when_written_in_another_order_then_their_digest_is_the_same(
    value: dict[str, Any], random: Any
) -> None:
    def reordered(part: Any) -> Any:
        if isinstance(part, dict):
            items = [(key, reordered(item)) for key, item in part.items()]
            random.shuffle(items)
            return dict(items)
        return [reordered(item) for item in part] if isinstance(part, list) else part

    assert identity.settings_digest(reordered(value)) == identity.settings_digest(value)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(TEXT, JSON_VALUE, max_size=4), st.dictionaries(TEXT, JSON_VALUE, max_size=4))
def test_given_two_settings_when_they_differ_then_so_do_their_digests(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assume(json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True))
    assert identity.settings_digest(one) != identity.settings_digest(other)


def test_given_settings_when_a_list_is_reordered_then_the_digest_changes() -> None:
    assert identity.settings_digest({"stop": ["a", "b"]}) != identity.settings_digest({"stop": ["b", "a"]})


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("0123456789abcdef", min_size=64, max_size=64), unique=True, max_size=6), st.randoms())
def test_given_shards_when_prepared_in_any_order_then_the_input_hash_is_one(hashes: list[str], random: Any) -> None:
    shuffled = hashes[:]
    random.shuffle(shuffled)
    assert identity.input_manifest_hash(shuffled) == identity.input_manifest_hash(hashes)
    assert identity.input_manifest_hash(shuffled) == independent(sorted(hashes))


@pytest.mark.parametrize(
    "change",
    [lambda hashes: hashes[:-1], lambda hashes: [*hashes, "cc"], lambda hashes: [*hashes, hashes[0]]],
    ids=["one fewer", "one more", "one twice"],
)
def test_given_shards_when_they_are_others_then_the_input_hash_differs(
    change: Callable[[list[str]], list[str]],
) -> None:
    assert identity.input_manifest_hash(change(["aa", "bb"])) != identity.input_manifest_hash(["aa", "bb"])


def test_given_a_label_when_the_prompts_content_differs_then_the_version_differs() -> None:
    one, other = identity.sha256_hex(b"one"), identity.sha256_hex(b"other")
    assert identity.prompt_version("v1", one) == f"v1@{one[:16]}"
    assert identity.prompt_version("v1", one) != identity.prompt_version("v1", other)
    assert identity.prompt_version("v1", one) != identity.prompt_version("v2", one)
