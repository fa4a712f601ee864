"""Every S3 key as the design lists it, and every place in the inbox that is refused."""

from __future__ import annotations

import pytest

from tallybatch.domain.errors import BadInput
from tallybatch.domain.layout import INBOX, UNPLACED, JobKeys, ResultKeys, parse_inbox_key, spec_key, tenant_of

JOB = JobKeys("acme", "k" * 64)
RESULTS = ResultKeys("acme", "film-genre", "2026-01")
ROOT = f"jobs/acme/{'k' * 64}/"
SHA = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (JOB.prefix, ROOT),
        (JOB.manifest, f"{ROOT}manifest.json"),
        (JOB.spec, f"{ROOT}spec.yaml"),
        (JOB.certificate, f"{ROOT}certificate.json"),
        (JOB.report_json, f"{ROOT}report.json"),
        (JOB.report_html, f"{ROOT}report.html"),
        (JOB.shard(SHA), f"{ROOT}shards/{SHA}.jsonl.zst"),
        (JOB.attempt(2), f"{ROOT}attempts/2/"),
        (JOB.items(2), f"{ROOT}attempts/2/shards.json"),
        (JOB.open_records(2, SHA), f"{ROOT}attempts/2/open-0123456789abcdef.jsonl.zst"),
        (JOB.closure(2), f"{ROOT}attempts/2/closure.json"),
        (JOB.publish_items(2, SHA), f"{ROOT}attempts/2/publish-0123456789abcdef.json"),
        (JOB.published(2, "00000-aa"), f"{ROOT}attempts/2/published/00000-aa.json"),
        (JOB.submission(2, "s"), f"{ROOT}attempts/2/s/"),
        (JOB.claims(2, "s"), f"{ROOT}attempts/2/s/claims.jsonl.zst"),
        (JOB.request(2, "s"), f"{ROOT}attempts/2/s/request.jsonl"),
        (JOB.raw(2, "s", "output"), f"{ROOT}attempts/2/s/raw/output"),
        (JOB.outcomes(2, "s"), f"{ROOT}attempts/2/s/outcomes.jsonl.zst"),
        (JOB.bad_lines(), f"quarantine/acme/{'k' * 64}/bad_lines.jsonl"),
        (JOB.unknown_ids("s"), f"quarantine/acme/{'k' * 64}/unknown-s.jsonl"),
        (spec_key("acme", "film-genre"), "specs/acme/film-genre.yaml"),
        (RESULTS.prefix, "results/acme/film-genre/2026-01/"),
        (RESULTS.current, "results/acme/film-genre/2026-01/current.json"),
        (RESULTS.part(SHA, gzipped=False), f"results/acme/film-genre/2026-01/parts/{SHA}.jsonl"),
        (RESULTS.part(SHA, gzipped=True), f"results/acme/film-genre/2026-01/parts/{SHA}.jsonl.gz"),
    ],
)
def test_given_an_object_when_placed_then_its_key_is_that_of_the_design(key: str, expected: str) -> None:
    assert key == expected
    assert not key.startswith(INBOX)


@pytest.mark.parametrize(
    ("version", "name", "gzipped"),
    [
        ("2026-01", "films.jsonl", False),
        ("2026-01", "films.jsonl.gz", True),
        ("v 1+2", "a b+c.jsonl", False),
        ("100%", "100%25 é.jsonl", False),
        ("映画", "日本.jsonl.gz", True),
        ("..x", "..jsonl.jsonl", False),
        ("x" * 128, "x.jsonl", False),
    ],
)
def test_given_a_key_in_the_inbox_when_parsed_then_each_part_is_raw(version: str, name: str, gzipped: bool) -> None:
    key = f"inbox/acme/film-genre/{version}/{name}"
    place = parse_inbox_key(key)
    assert (place.key, place.tenant, place.spec) == (key, "acme", "film-genre")
    assert (place.dataset_version, place.name, place.gzipped) == (version, name, gzipped)
    assert tenant_of(key) == "acme"


@pytest.mark.parametrize(
    ("key", "codes"),
    [
        ("inbox/a.jsonl", ["wrong_prefix_depth"]),
        ("inbox/acme/a.jsonl", ["wrong_prefix_depth"]),
        ("inbox/acme/genre/a.jsonl", ["wrong_prefix_depth"]),
        ("inbox/acme/genre/v1/deeper/a.jsonl", ["wrong_prefix_depth"]),
        ("jobs/acme/genre/v1/a.jsonl", ["wrong_prefix_depth"]),
        ("Inbox/acme/genre/v1/a.jsonl", ["wrong_prefix_depth"]),
        ("inbox//genre/v1/a.jsonl", ["bad_name"]),
        ("inbox/ac me/genre/v1/a.jsonl", ["bad_name"]),
        ("inbox/-acme/genre/v1/a.jsonl", ["bad_name"]),
        ("inbox/../genre/v1/a.jsonl", ["bad_name"]),
        ("inbox/" + "a" * 65 + "/genre/v1/a.jsonl", ["bad_name"]),
        ("inbox/acme/gen%20re/v1/a.jsonl", ["bad_name"]),
        ("inbox/acme\n/genre/v1/a.jsonl", ["bad_name"]),
        ("inbox/acme/genre//a.jsonl", ["bad_name"]),
        ("inbox/acme/genre/../a.jsonl", ["bad_name"]),
        ("inbox/acme/genre/./a.jsonl", ["bad_name"]),
        ("inbox/acme/genre/v\n1/a.jsonl", ["bad_name"]),
        ("inbox/acme/genre/" + "v" * 129 + "/a.jsonl", ["bad_name"]),
        ("inbox/acme/genre/v1/a.json", ["wrong_suffix"]),
        ("inbox/acme/genre/v1/a.jsonl.zip", ["wrong_suffix"]),
        ("inbox/acme/genre/v1/a.JSONL", ["wrong_suffix"]),
        ("inbox/acme/genre/v1/", ["wrong_suffix"]),
        ("inbox/a b/ge nre//x.csv", ["bad_name", "bad_name", "bad_name", "wrong_suffix"]),
    ],
)
def test_given_a_key_in_the_wrong_place_when_parsed_then_every_reason_is_told(key: str, codes: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        parse_inbox_key(key)
    assert [problem.code for problem in caught.value.problems] == codes
    assert all(problem.reason and problem.key for problem in caught.value.problems)
    assert caught.value.where == key
    assert caught.value.do


@pytest.mark.parametrize(
    ("key", "tenant"),
    [
        ("inbox/acme/a.jsonl", "acme"),
        ("inbox/acme/genre/v1/x/y/a.jsonl", "acme"),
        ("inbox/a.jsonl", UNPLACED),
        ("inbox/ac me/genre/v1/a.jsonl", UNPLACED),
        ("inbox//a.jsonl", UNPLACED),
    ],
)
def test_given_a_key_that_cannot_be_parsed_when_filed_then_the_tenant_is_found_or_a_place_for_nobodys_files(
    key: str, tenant: str
) -> None:
    assert tenant_of(key) == tenant
    with pytest.raises(BadInput):
        parse_inbox_key(f"inbox/{UNPLACED}/genre/v1/a.jsonl")


def test_given_two_jobs_when_placed_then_neither_prefix_is_within_the_other() -> None:
    one, other = JobKeys("acme", "a" * 64).prefix, JobKeys("acme", "a" * 63 + "b").prefix
    assert not one.startswith(other)
    assert not other.startswith(one)
