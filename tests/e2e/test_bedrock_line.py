"""Bedrock on the deployed stack: the role, the simulator's endpoint, and results that arrive in our own bucket."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.e2e.conftest import Faults
from tests.support.deployed import Deployed, fresh_tenant
from tests.support.films import DATA, results

pytestmark = pytest.mark.xdist_group("e2e")

COUNT = 300


def test_given_films_on_bedrock_and_a_lost_create_when_dropped_then_each_is_answered_once_and_paid_once(
    line: Deployed, faults: Faults
) -> None:
    faults(
        limits={"min_records": 1},
        calls=[{"provider": "bedrock", "on": "create", "fault": "lost_reply"}],
        records=[{"provider": "bedrock", "fault": "error_500", "rate": 0.02}],
    )
    tenant = fresh_tenant("bedrock")
    line.push_spec(tenant, (DATA / "specs" / "film-genre-bedrock.yaml").read_text(), name="film-genre-bedrock")
    films = b"".join((DATA / "movies.jsonl").read_bytes().splitlines(keepends=True)[:COUNT])

    line.put(f"inbox/{tenant}/film-genre-bedrock/v1/movies.jsonl", films)

    [job] = line.ended(tenant, within_s=180)
    assert (job.state.value, job.reason, job.counts["succeeded"]) == ("COMPLETED", "", COUNT)
    rows = line.ledger.submissions(job.job_key)
    assert [row.attempt for row in rows] == [1, 2]
    created = line.creates(job)
    assert Counter(entry["marker"] for entry in created) == Counter(row.submission_key for row in rows)
    assert {entry["job_id"] for entry in created} == {row.provider_job_id for row in rows}
    assert len({row["business_key"] for row in results(line.objects, job)}) == COUNT
    assert line.verify(job).ok
    assert [info.key.rpartition("/")[2] for info in line.objects.list(f"provider/{tenant}/")] == [
        "manifest.json.out",
        "request.jsonl.out",
    ] * 2
