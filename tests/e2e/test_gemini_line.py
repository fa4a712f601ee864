"""Gemini on the deployed line: films come back closed, although a create's reply was lost."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from tests.support.deployed import Deployed, fresh_tenant
from tests.support.films import DATA, results

pytestmark = pytest.mark.xdist_group("e2e")


def test_given_a_lost_create_when_a_file_is_dropped_then_one_job_per_submission_and_one_answer_per_record(
    line: Deployed, faults: Any
) -> None:
    faults(calls=[{"on": "create", "fault": "lost_reply"}], records=[{"fault": "error_500", "rate": 0.02}])
    tenant = fresh_tenant("gemini")
    spec = "film-genre-gemini"
    line.push_spec(tenant, (DATA / "specs" / f"{spec}.yaml").read_text(), name=spec)
    with (DATA / "movies.jsonl").open("rb") as lines:
        line.put(f"inbox/{tenant}/{spec}/v1/movies.jsonl", b"".join(islice(lines, 150)))
    [job] = line.ended(tenant, within_s=240)
    assert job.state == "COMPLETED", job.reason
    assert len(results(line.objects, job)) == job.counts["succeeded"] == job.expected > 0
    created = line.creates(job)
    assert {entry["provider"] for entry in created} == {"gemini"}
    assert len({entry["marker"] for entry in created}) == len(created) == job.counts["provider_jobs"]
    assert line.verify(job).ok
