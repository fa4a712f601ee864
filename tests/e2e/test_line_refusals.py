"""Refused input on the deployed line: a FAILED job, a report that names each bad line, an event, and nothing spent."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tallybatch.domain.layout import JobKeys
from tallybatch.domain.rows import Job
from tests.support.deployed import Deployed, caught_events, eventually, fresh_tenant
from tests.support.films import film, films, lines, report, spec

pytestmark = pytest.mark.xdist_group("e2e")

GOOD_SPEC = spec()


@dataclass(frozen=True)
class Case:
    body: bytes
    problems: list[tuple[int, str]]
    """Line and code of each."""
    spec: str | None = GOOD_SPEC
    place: str = "genre/v1/films.jsonl"


CASES = {
    "bad-lines": Case(
        b"\n".join([film(1), b'{"id": "f2"}', film(1), b"[1, 2]", b'{"id": NaN}']) + b"\n",
        [(2, "missing_field"), (3, "duplicate_key"), (4, "not_an_object"), (5, "not_a_number")],
    ),
    "empty": Case(b"", [(0, "empty_file")]),
    "whitespace": Case(b" \n\n", [(1, "blank_line"), (2, "blank_line")]),
    "utf-16": Case(films(2).decode().encode("utf-16"), [(0, "utf16")]),
    "cut-gzip": Case(gzip.compress(film(1) + b"\n")[:-8], [(2, "truncated_gzip")], place="genre/v1/films.jsonl.gz"),
    "no-spec": Case(films(2), [(0, "missing_spec")], spec=None),
    "unknown-key": Case(films(2), [(GOOD_SPEC.count("\n") + 1, "unknown_key")], spec=GOOD_SPEC + "colour: red\n"),
    "wrong-depth": Case(films(2), [(0, "wrong_prefix_depth")], place="films.jsonl"),
}


@dataclass
class Refused:
    jobs: dict[str, Job]
    events: dict[str, dict[str, Any]]
    """The event's document by job_key."""
    creates: tuple[int, int]
    """At the provider, before and after."""


@pytest.fixture(scope="module")
def refused(line: Deployed) -> Iterator[Refused]:
    """All cases dropped at once, and the events that came of them, caught by a rule on the stack's bus."""
    before = len(line.simulator.journal()["creates"])
    tenants = {case: fresh_tenant(case) for case in CASES}
    with caught_events(line, "JobFailed") as caught:
        for name, case in CASES.items():
            if case.spec is not None:
                line.push_spec(tenants[name], case.spec)
            line.put(f"inbox/{tenants[name]}/{case.place}", case.body)
        jobs = {name: line.ended(tenant)[0] for name, tenant in tenants.items()}
        wanted = {job.job_key for job in jobs.values()}
        eventually(lambda: wanted <= caught().keys(), "an event for each refusal")
        refused = Refused(jobs, caught(), (before, len(line.simulator.journal()["creates"])))
    yield refused


@pytest.mark.parametrize("case", CASES)
def test_given_bad_input_when_it_is_dropped_then_the_job_failed_and_its_report_names_each_problem(
    line: Deployed, refused: Refused, case: str
) -> None:
    job = refused.jobs[case]
    keys = JobKeys(job.tenant, job.job_key)
    assert job.state == "FAILED"
    assert job.reason
    bad = lines(line.objects.get(keys.bad_lines()))
    assert sorted((row["line"], row["code"]) for row in bad) == CASES[case].problems
    assert all(row["reason"] for row in bad)
    written = report(line.objects, job)
    assert written["state"] == "FAILED"
    assert written["refusal"]["bad_count"] == len(bad)
    assert written["refusal"]["bad_lines"] == line.objects.uri(keys.bad_lines())


@pytest.mark.parametrize("case", CASES)
def test_given_bad_input_when_it_is_dropped_then_the_bus_is_told(line: Deployed, refused: Refused, case: str) -> None:
    job = refused.jobs[case]
    event = refused.events[job.job_key]
    assert (event["source"], event["detail-type"]) == ("tallybatch", "JobFailed")
    assert event["detail"]["tenant"] == job.tenant
    assert event["detail"]["bad_count"] == len(CASES[case].problems)
    assert event["detail"]["bad_lines"].endswith("/bad_lines.jsonl")


@pytest.mark.parametrize("case", CASES)
def test_given_bad_input_when_it_is_refused_then_nothing_is_lost_and_nothing_was_begun(
    line: Deployed, refused: Refused, case: str
) -> None:
    job = refused.jobs[case]
    assert line.objects.get(f"inbox/{job.tenant}/{CASES[case].place}") == CASES[case].body
    assert not list(line.ledger.submissions(job.job_key))
    assert line.executions(job.job_key) == []
    jobs = [info.key.rpartition("/")[2] for info in line.objects.list(f"jobs/{job.tenant}/")]
    assert sorted(jobs) == ["report.html", "report.json"]


def test_given_all_the_bad_input_when_the_provider_is_asked_then_it_was_asked_for_nothing(refused: Refused) -> None:
    before, after = refused.creates
    assert after == before
