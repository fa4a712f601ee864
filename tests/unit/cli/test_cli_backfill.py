"""`tallybatch backfill run`, on the real step."""

from __future__ import annotations

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


def test_a_spec_that_is_not_there_and_a_prefix_that_is_refused(operator: Operator) -> None:
    assert operator.run(*RUN, "--prefix", "exports/").code == 4
    operator.pipeline.push_spec(SPEC)
    assert operator.run(*RUN, "--prefix", "inbox/").code == 3
    assert operator.run(*RUN, "--prefix", "exports/", "--max-objects", "0").code == 2
