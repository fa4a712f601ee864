"""`tallybatch quota`, and the place in the queue that `show` and `jobs` tell, on the real ledger port."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tallybatch.contracts import JobInput
from tallybatch.domain.quota_rows import Amount
from tallybatch.domain.quotas import ADMISSION, ALL
from tallybatch.ports import QuotaMove
from tests.support.operating import SPEC, Operator, films

MODEL = "gpt-5-mini-2025-08-07"


def test_what_is_set_is_in_force_and_kept_with_who_and_when(operator: Operator) -> None:
    said = operator.run("quota", "set", "openai", MODEL, "--tokens", "5_000_000", "--by", "ann", "--json")
    assert (said.code, said.json["after"]) == (0, {"limits": {MODEL: {"tokens": 5_000_000}}})
    more = ("--jobs", "3", "--headroom", "0.2", "--share", "acme=0.5", "--by", "bob")
    assert operator.run("quota", "set", "openai", MODEL, *more).code == 0
    (shown,) = operator.run("quota", "show", "openai", "--history", "--json").json
    assert shown["limits"][MODEL] == {"tokens": 5_000_000, "jobs": 3, "requests": None}
    assert shown["in_force"][MODEL] == {"tokens": 4_000_000, "jobs": 2, "requests": None}
    assert [change["by"] for change in shown["changes"]] == ["ann", "bob"]
    assert shown["changes"][1]["before"] == {"limits": {MODEL: {"tokens": 5_000_000}}}
    assert shown["shares"] == {"acme": 0.5}
    operator.run("quota", "set", "openai", MODEL, "--default", "--share", "acme=none")
    (shown,) = operator.run("quota", "show", "openai", "--json").json
    assert (shown["limits"].get(MODEL), shown["shares"]) == (None, {})


def test_without_a_setting_the_defaults_of_each_provider_are_shown(operator: Operator) -> None:
    by_pool = {each["pool"]: each["limits"] for each in operator.run("quota", "show", "--json").json}
    assert by_pool["bedrock"]["each"]["jobs"] == 10
    assert by_pool["gemini"]["all"]["jobs"] == 100
    assert by_pool["openai"]["each"] == {"tokens": None, "jobs": None, "requests": None}
    operator.run("quota", "set", "gemini", "all", "--jobs", "none")
    assert operator.run("quota", "show", "gemini", "--json").json[0]["limits"]["all"]["jobs"] is None
    said = operator.run("quota", "show")
    assert said.code == 0
    assert "0 of no limit" in said.out


def test_a_change_is_told_to_people_in_words(operator: Operator) -> None:
    first = operator.run("quota", "set", "openai", MODEL, "--tokens", "5000000", "--jobs", "none", "--by", "ann")
    assert "before  the defaults" in first.out
    assert f"now     {MODEL}: 5,000,000 tokens, no limit of jobs" in first.out
    operator.run("quota", "set", "openai", "--share", "acme=0.5", "--headroom", "0.2")
    shown = operator.run("quota", "show", "openai", "--history").out
    assert "headroom 0.2; acme has a share of 0.5" in shown
    assert "{" not in first.out + shown


@pytest.mark.parametrize(
    "words",
    [
        ("azure", MODEL, "--tokens", "1"),
        ("openai", "--tokens", "1"),
        ("openai", MODEL),
        ("openai", MODEL, "--tokens", "many"),
        ("openai", "--share", "acme=2"),
        ("openai", "--share", "acme=0.6", "--share", "brick=0.6"),
        ("openai", "--share", "acme=1e-320"),
        ("openai", MODEL, "--tokens", "9" * 45),
        ("openai", MODEL, "--tokens", "9" * 5000),
        ("admission", "--tokens", "5"),
        ("admission", MODEL, "--jobs", "5"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(operator: Operator, words: tuple[str, ...]) -> None:
    assert operator.run("quota", "set", *words).code in (2, 3)
    assert all(operator.pipeline.ledger.quota_pool(name).version == 0 for name in ("openai", ADMISSION))


def test_a_job_that_waits_for_its_turn_is_shown_with_its_place(operator: Operator) -> None:
    pipeline = operator.pipeline
    pool = pipeline.ledger.quota_pool(ADMISSION)
    assert pipeline.ledger.move_quota(replace(pool, limits={ALL: {"jobs": 1}}), QuotaMove())
    pipeline.push_spec(SPEC)
    keys = [pipeline.drop(films(2, 10 * n + 1), version=f"v{n}")["job_key"] for n in range(3)]
    replies = []
    for key in keys:
        replies.append(pipeline.admit(JobInput(tenant="acme", job_key=key, bucket="bucket")))
        pipeline.wait(1)
    assert [(reply.status, reply.position) for reply in replies] == [("go", 0), ("wait", 1), ("wait", 2)]
    assert operator.run("show", keys[2], "--json").json["queue_position"] == 2
    assert "queue_position" not in operator.run("show", keys[0], "--json").json
    listed = {each["job_key"]: each["queue_position"] for each in operator.run("jobs", "--json").json}
    assert listed == {keys[0]: None, keys[1]: 1, keys[2]: 2}
    assert "queued, position 2" in operator.run("jobs").out
    assert "position 2" in operator.run("show", keys[2]).out
    pipeline.work(JobInput(tenant="acme", job_key=keys[0], bucket="bucket"))
    assert pipeline.admit(JobInput(tenant="acme", job_key=keys[1], bucket="bucket")).status == "go"
    assert operator.run("show", keys[2], "--json").json["queue_position"] == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("openai", MODEL, "--tokens", "10"), "the limit for gpt-5-mini-2025-08-07 is 10"),
        (("admission", "--jobs", "0"), "the limit for all is 0"),
    ],
)
def test_a_job_that_no_waiting_would_let_through_says_so(operator: Operator, words: tuple[str, ...], why: str) -> None:
    pipeline = operator.pipeline
    pipeline.push_spec(SPEC)
    key = pipeline.drop(films(2))["job_key"]
    request = JobInput(tenant="acme", job_key=key, bucket="bucket")
    if words[0] == ADMISSION:
        operator.run("quota", "set", *words)
        assert pipeline.admit(request).status == "wait"
    else:
        pipeline.admit(request)
        (item,) = pipeline.items(pipeline.plan(request))
        operator.run("quota", "set", *words)
        assert pipeline.reserve(item).status == "wait"
    said = operator.run("show", key, "--json").json["waits_in_vain"]
    assert why in said
    assert f"`tallybatch quota set {words[0]}`" in said
    assert "waits in vain" in operator.run("show", key).out


def test_a_job_whose_shards_wait_for_quota_is_shown_with_its_place(operator: Operator) -> None:
    pipeline = operator.pipeline
    pool = pipeline.ledger.quota_pool("openai")
    used = {MODEL: {"other": Amount(jobs=1)}}
    assert pipeline.ledger.move_quota(replace(pool, limits={MODEL: {"jobs": 1}}, used=used), QuotaMove())
    pipeline.push_spec(SPEC)
    key = pipeline.drop(films(2))["job_key"]
    request = JobInput(tenant="acme", job_key=key, bucket="bucket")
    pipeline.admit(request)
    (item,) = pipeline.items(pipeline.plan(request))
    assert pipeline.reserve(item).status == "wait"
    assert operator.run("show", key, "--json").json["queue_position"] == 1
    (shown,) = operator.run("quota", "show", "openai", "--json").json
    assert shown["waiting"] == [{"model": MODEL, "tenant": "acme", "shards": 1}]
    assert "1 of 1" in operator.run("quota", "show", "openai").out
