"""Backfills on the deployed line: a schedule finds files by date and makes each object version a job, once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.options import Backfill
from tests.support.deployed import Deployed, eventually, fresh_tenant
from tests.support.films import films, results, spec

pytestmark = pytest.mark.xdist_group("e2e")

PREFIX = "lake/{tenant}/dt={{yyyy}}-{{mm}}-{{dd}}/"
TICK_S = 10
"""How often the emulator looks at its schedules."""


def day_prefix(tenant: str, day: datetime) -> str:
    return f"lake/{tenant}/dt={day:%Y-%m-%d}/"


def request(tenant: str, **more: Any) -> dict[str, Any]:
    return {"tenant": tenant, "spec": "genre", "prefix": PREFIX.format(tenant=tenant), **more}


@pytest.fixture
def tenant(line: Deployed) -> str:
    name = fresh_tenant("backfill")
    line.push_spec(name, spec())
    return name


@contextmanager
def scheduled(line: Deployed, backfill: Backfill) -> Iterator[None]:
    """The backfill as a schedule that is due, aimed as the stack aims its own: at the function, with the request."""
    scheduler = line.aws.client("scheduler")
    function = line.aws.lambda_.get_function(FunctionName=line.outputs["DiscoverBackfillFunction"])["Configuration"]
    scheduler.create_schedule(
        Name=backfill.name,
        GroupName=line.status.stack,
        ScheduleExpression=backfill.schedule,
        ScheduleExpressionTimezone=backfill.timezone,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": function["FunctionArn"],
            "RoleArn": function["Role"],
            "Input": json.dumps(backfill.payload()),
        },
    )
    try:
        yield
    finally:
        scheduler.delete_schedule(Name=backfill.name, GroupName=line.status.stack)


def runs(line: Deployed, tenant: str) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [entry for entry in line.log("DiscoverBackfill") if entry.get("tenant") == tenant]


def test_given_a_schedule_when_it_is_due_then_the_days_file_becomes_a_job_and_a_second_run_does_nothing(
    line: Deployed, tenant: str
) -> None:
    # GIVEN
    today = datetime.now(UTC)
    line.put(day_prefix(tenant, today) + "films.jsonl", films(3))
    line.put(day_prefix(tenant, today - timedelta(days=3)) + "old.jsonl", films(3, first=100))
    due = Backfill(name=tenant, schedule=f"at({today:%Y-%m-%dT%H:%M:%S})", **request(tenant))
    # WHEN
    with scheduled(line, due):
        [ran] = eventually(runs(line, tenant), "the schedule has called", within_s=3 * TICK_S)
    # THEN
    assert (ran["level"], ran["seen"], ran["over_ceiling"]) == ("INFO", 0, 0)
    [job] = line.ended(tenant)
    assert (job.state, job.expected, job.dataset_version) == ("COMPLETED", 3, f"{today:%Y-%m-%d}"), job.reason
    assert line.invoke("DiscoverBackfillFunction", request(tenant, time=today.isoformat())) == {
        "started": [], "seen": 1, "over_ceiling": 0, "prefixes": [day_prefix(tenant, today)],
    }  # fmt: skip
    assert line.jobs(tenant) == [job]


def test_given_more_files_than_the_ceiling_when_run_again_then_the_rest_follows_each_once(
    line: Deployed, tenant: str
) -> None:
    day = datetime(2026, 3, 1, tzinfo=UTC)
    for number in range(3):
        line.put(day_prefix(tenant, day) + f"part {number}+.jsonl", films(2, first=10 * number))
    asked = request(tenant, time="2026-03-02T04:00:00Z", days_back=1, max_objects=2)
    replies = [line.invoke("DiscoverBackfillFunction", asked) for _ in range(3)]
    assert [(len(reply["started"]), reply["seen"], reply["over_ceiling"]) for reply in replies] == [
        (2, 0, 1), (1, 2, 0), (0, 3, 0),
    ]  # fmt: skip
    jobs = line.ended(tenant, count=3)
    assert [(job.state, job.expected, job.dataset_version) for job in jobs] == [("COMPLETED", 2, "2026-03-01")] * 3
    assert sorted(job.source_uri for job in jobs) == [
        f"s3://{line.bucket}/inbox/{tenant}/genre/2026-03-01/part {number}+.jsonl" for number in range(3)
    ]
    assert {row["business_key"] for row in results(line.objects, jobs[0])} == {
        f"f{10 * number + n:03}" for number in range(3) for n in range(2)
    }


def test_given_another_bucket_when_a_file_there_gets_a_new_version_then_that_becomes_a_job_of_its_own(
    line: Deployed, tenant: str
) -> None:
    source = fresh_tenant("source")
    line.s3.create_bucket(Bucket=source)
    line.s3.put_bucket_versioning(Bucket=source, VersioningConfiguration={"Status": "Enabled"})
    key = day_prefix(tenant, datetime(2026, 3, 1, tzinfo=UTC)) + "films.jsonl"
    asked = request(tenant, source_bucket=source, time="2026-03-01T00:00:00+00:00")
    line.put(key, films(2), bucket=source)
    first = line.invoke("DiscoverBackfillFunction", asked)
    line.ended(tenant)
    line.put(key, films(3), bucket=source)
    second = line.invoke("DiscoverBackfillFunction", asked)
    assert first["started"] == second["started"] == [f"inbox/{tenant}/genre/2026-03-01/films.jsonl"]
    jobs = line.ended(tenant, count=2)
    assert [(job.state, job.expected, job.counts["reused"]) for job in jobs] == [
        ("COMPLETED", 2, 0), ("COMPLETED", 3, 2),
    ]  # fmt: skip
    assert line.invoke("DiscoverBackfillFunction", asked)["seen"] == 1


def test_given_a_prefix_where_the_pipeline_writes_when_asked_then_it_is_refused_by_name(
    line: Deployed, tenant: str
) -> None:
    reply = line.invoke("DiscoverBackfillFunction", {**request(tenant), "prefix": f"results/{tenant}/"})
    assert reply["errorType"] == "BadInput"
    assert "what the pipeline itself writes" in reply["errorMessage"]
    assert line.jobs(tenant) == []
