"""`tallybatch backfill run`, on the real step."""

from __future__ import annotations

import pytest

from tests.support.operating import SPEC, Operator, films

RUN = ("backfill", "run", "--tenant", "acme", "--spec", "genre", "--json")


def test_a_run_starts_what_no_run_has_taken_and_a_second_run_nothing(operator: Operator) -> None:
    operator.pipeline.push_spec(SPEC)
    for day in ("30", "31"):
        operator.pipeline.objects.write_as_user(f"exports/2026/01/{day}/films.jsonl", films(2))
    dated = (*RUN, "--prefix", "exports/{yyyy}/{mm}/{dd}/", "--time", "2026-01-31T12:00:00Z", "--days-back", "1")
    first = operator.run(*dated)
    assert first.code == 0
    assert list(first.json) == ["started", "seen", "over_ceiling", "prefixes"]
    assert first.json["started"] == [
        "inbox/acme/genre/2026-01-30/films.jsonl",
        "inbox/acme/genre/2026-01-31/films.jsonl",
    ]
    second = operator.run(*dated).json
    assert (second["started"], second["seen"]) == ([], 2)


def test_the_ceiling_leaves_the_rest_for_the_next_run(operator: Operator) -> None:
    operator.pipeline.push_spec(SPEC)
    for number in range(3):
        operator.pipeline.objects.write_as_user(f"exports/{number}.jsonl", films(1, start=number))
    reply = operator.run(*RUN, "--prefix", "exports/", "--max-objects", "2").json
    assert (len(reply["started"]), reply["over_ceiling"]) == (2, 1)


@pytest.mark.parametrize("prefix", ["inbox/", "jobs", "r", "provider/acme/", ""])
def test_a_prefix_that_leads_to_what_the_pipeline_wrote_is_refused(operator: Operator, prefix: str) -> None:
    operator.pipeline.push_spec(SPEC)
    operator.pipeline.objects.put(f"{prefix}/results/jobs/x.jsonl".removeprefix("/"), films(1))
    refused = operator.run(*RUN, "--prefix", prefix)
    assert (refused.code, refused.json["error"]["problems"][0]["key"]) == (3, "prefix")


@pytest.mark.parametrize(
    ("prefix", "options", "keys"),
    [
        ("exports/", (), ("exports/a/x.jsonl", "exports/a__x.jsonl", "exports/x.jsonl")),
        ("exports/a", (), ("exports/a/x.jsonl", "exports/ax.jsonl")),
        ("e/{yyyy}/{mm}/{dd}/", ("--dataset-version", "v1"), ("e/2026/01/01/x.jsonl.gz", "e/2026/01/02/x.jsonl.gz")),
        ("e/{mm}-{dd}/", ("--dataset-version", "{yyyy}-{mm}"), ("e/01-01/x.jsonl", "e/01-02/x.jsonl")),
    ],
    ids=["flattened", "a begin of names", "one dataset version", "one a month"],
)
def test_two_objects_never_take_each_others_place_in_the_results(
    operator: Operator, prefix: str, options: tuple[str, ...], keys: tuple[str, ...]
) -> None:
    operator.pipeline.push_spec(SPEC)
    for number, key in enumerate(keys, 1):
        operator.pipeline.objects.write_as_user(key, films(1, start=number))
    run = (*RUN, "--prefix", prefix, *options, "--time", "2026-01-02", "--days-back", "1")
    started = operator.run(*run).json["started"]
    assert len(set(started)) == len(keys)
    assert not {key.rpartition("/")[2] for key in started} & {"", ".jsonl"}


def test_one_object_may_be_named_in_full(operator: Operator) -> None:
    operator.pipeline.push_spec(SPEC)
    operator.pipeline.objects.write_as_user("exports/films.jsonl", films(1))
    reply = operator.run(*RUN, "--prefix", "exports/films.jsonl", "--time", "2026-01-02").json
    assert reply["started"] == ["inbox/acme/genre/2026-01-02/films.jsonl"]


@pytest.mark.parametrize("time", ["0001-01-01", "0001-01-01T00:00+09:00", "yesterday"])
def test_a_time_before_all_dates_is_refused(operator: Operator, time: str) -> None:
    operator.pipeline.push_spec(SPEC)
    refused = operator.run(*RUN, "--prefix", "exports/", "--time", time, "--days-back", "3")
    assert (refused.code, refused.json["error"]["problems"][0]["key"]) == (3, "time")


def test_a_spec_that_is_not_there_and_a_prefix_that_is_refused(operator: Operator) -> None:
    assert operator.run(*RUN, "--prefix", "exports/").code == 4
    operator.pipeline.push_spec(SPEC)
    assert operator.run(*RUN, "--prefix", "inbox/").code == 3
    assert operator.run(*RUN, "--prefix", "exports/", "--max-objects", "0").code == 2
