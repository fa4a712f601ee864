"""How long objects live: the bucket's rules, read as S3 reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from infra.constructs.storage import lifecycle_rules
from infra.options import Retention
from tallybatch.domain.retention import OVERRIDE_DAYS

JOB = "jobs/acme/0123/attempts/1/abcd"


def _rules(template: Mapping[str, Any]) -> list[dict[str, Any]]:
    bucket = template["Resources"][template["Outputs"]["Bucket"]["Value"]["Ref"]]
    rules: list[dict[str, Any]] = bucket["Properties"]["LifecycleConfiguration"]["Rules"]
    return rules


def _days(rules: list[dict[str, Any]], key: str, tag: str = "") -> int | None:
    """After how many days S3 expires an object: of all rules that match, the earliest; None if none does."""
    tags = {"retention": tag} if tag else {}
    matching = [
        rule["ExpirationInDays"]
        for rule in rules
        if "ExpirationInDays" in rule
        and key.startswith(rule.get("Prefix", ""))
        and all(tags.get(each["Key"]) == each["Value"] for each in rule.get("TagFilters", []))
    ]
    return min(matching, default=None)


@pytest.mark.parametrize(
    ("key", "tag", "days"),
    [
        ("inbox/acme/films/1/a.jsonl", "", 30),
        ("inbox/acme/films/1/a.jsonl", "7d", 7),
        (f"{JOB}/request.jsonl", "working", 30),
        (f"{JOB}/request.jsonl", "3d", 3),
        (f"{JOB}/raw/output.jsonl", "raw", 90),
        (f"{JOB}/raw/output.jsonl", "365d", 365),
        (f"{JOB}/raw/output.jsonl", "1d", 1),
        ("jobs/acme/0123/certificate.json", "results", 365),
        ("results/acme/films/1/part.jsonl", "results", 365),
        ("results/acme/films/1/part.jsonl", "730d", 730),
        ("quarantine/acme/report.json", "", 90),
        ("provider/acme/0123/5ub/abcdefghij12/request.jsonl.out", "", 90),
    ],
)
def test_an_object_expires_by_its_class_or_its_own_tag(
    template: Mapping[str, Any], key: str, tag: str, days: int
) -> None:
    assert _days(_rules(template), key, tag) == days


@pytest.mark.parametrize("key", [f"{JOB}/raw/output.jsonl", "results/acme/films/1/current.json", "review/acme/1.jsonl"])
def test_what_nobody_tagged_outlives_every_tag_but_not_for_ever(template: Mapping[str, Any], key: str) -> None:
    assert _days(_rules(template), key) == max(OVERRIDE_DAYS)


@pytest.mark.parametrize("key", ["specs/acme/films.yaml", "golden/acme/films.jsonl", "landing/films/a.jsonl"])
def test_declarations_and_foreign_objects_stay(template: Mapping[str, Any], key: str) -> None:
    assert _days(_rules(template), key) is None


@pytest.mark.parametrize("days", OVERRIDE_DAYS)
def test_every_allowed_override_has_its_rule(template: Mapping[str, Any], days: int) -> None:
    assert _days(_rules(template), f"{JOB}/raw/output.jsonl", f"{days}d") == days


def test_old_versions_and_broken_uploads_are_cleared(template: Mapping[str, Any]) -> None:
    (leftovers,) = [rule for rule in _rules(template) if "NoncurrentVersionExpiration" in rule]
    assert leftovers["NoncurrentVersionExpiration"] == {"NoncurrentDays": 7}
    assert leftovers["ExpiredObjectDeleteMarker"] is True
    assert leftovers["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 3}
    assert not {"Prefix", "TagFilters"} & set(leftovers)


def test_the_stacks_numbers_replace_the_defaults_and_lift_the_ceiling() -> None:
    rules = {str(rule.id): rule for rule in lifecycle_rules(Retention(inbox=5, raw=45, results=4000))}

    def days(rule: str) -> float:
        expiration = rules[rule].expiration
        assert expiration is not None
        return float(expiration.to_days())

    assert (days("prefix=inbox/"), days("retention=raw"), days("retention=results")) == (5, 45, 4000)
    assert days("retention=working") == 30
    assert days("prefix=jobs/") == 4000
