"""The whole file of earthquakes, embedded by each provider on the deployed line, although a create's reply is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.e2e.conftest import Faults
from tests.support.deployed import Deployed, fresh_tenant
from tests.support.films import DATA, lines, results

pytestmark = pytest.mark.xdist_group("e2e")

SPECS = {
    "openai": "earthquakes-embedding",
    "bedrock": "earthquakes-embedding-bedrock",
    "gemini": "earthquakes-embedding-gemini",
}
COUNT = 1500


@pytest.mark.parametrize("provider", SPECS)
def test_given_all_earthquakes_when_embedded_then_each_has_one_vector_and_each_submission_one_provider_job(
    line: Deployed, faults: Faults, provider: str
) -> None:
    # GIVEN
    faults(
        calls=[{"provider": provider, "on": "create", "fault": "lost_reply"}],
        records=[{"provider": provider, "fault": "error_500", "rate": 0.02}],
        limits={"min_records": 1},
    )
    name, tenant = SPECS[provider], fresh_tenant("quakes")
    line.push_spec(tenant, (DATA / "specs" / f"{name}.yaml").read_text(), name=name)
    body = (DATA / "earthquakes.jsonl").read_bytes()
    # WHEN
    line.put(f"inbox/{tenant}/{name}/v1/earthquakes.jsonl", body)
    [job] = line.ended(tenant, within_s=240)
    # THEN
    assert (job.state, job.reason, job.expected, job.counts["succeeded"]) == ("COMPLETED", "", COUNT, COUNT)
    rows = results(line.objects, job)
    assert [row["business_key"] for row in rows] == [source["id"] for source in lines(body)]
    assert {len(row["output"]) for row in rows} == {256}
    submissions = line.ledger.submissions(job.job_key)
    created = line.creates(job)
    assert {entry["provider"] for entry in created} == {provider}
    assert Counter(entry["marker"] for entry in created) == Counter(row.submission_key for row in submissions)
    assert job.counts["provider_jobs"] == job.counts["submissions"] == len(submissions) == 2
    assert {row["provider"] for row in rows} == {provider}
    assert line.verify(job).ok
