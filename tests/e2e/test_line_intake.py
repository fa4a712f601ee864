"""What arrives in the inbox, however it is named and however often its event comes, is one job."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tallybatch.domain.layout import ResultKeys
from tallybatch.domain.rows import Job
from tests.support.deployed import Deployed, eventually, fresh_tenant
from tests.support.films import films, results, spec

pytestmark = pytest.mark.xdist_group("e2e")

NAMES = {
    "spaces": "my films 1.jsonl",
    "plus": "a+b.jsonl",
    "percent": "100%25 %2F.jsonl",
    "unicode": "Fahrräder-電影-🎬.jsonl",
    "gzip": "packed.jsonl.gz",
}
"""Each is used as the name of the file, and without its suffix as the dataset version."""


@pytest.fixture(scope="module")
def odd_jobs(line: Deployed) -> Iterator[dict[str, Job]]:
    """One job per name, all under way at the same time."""
    tenant = fresh_tenant("odd")
    line.push_spec(tenant, spec())
    for number, (case, name) in enumerate(NAMES.items()):
        body = films(4, first=10 * number)
        line.put(odd_key(tenant, case), gzip.compress(body) if name.endswith(".gz") else body)
    jobs = {job.dataset_version: job for job in line.ended(tenant, count=len(NAMES))}
    yield {case: jobs[dataset_version(case)] for case in NAMES}


def dataset_version(case: str) -> str:
    return NAMES[case].partition(".jsonl")[0]


def odd_key(tenant: str, case: str) -> str:
    return f"inbox/{tenant}/genre/{dataset_version(case)}/{NAMES[case]}"


@pytest.mark.parametrize("case", NAMES)
def test_given_an_odd_name_when_it_is_dropped_then_the_job_completes_under_exactly_that_name(
    line: Deployed, odd_jobs: dict[str, Job], case: str
) -> None:
    job = odd_jobs[case]
    first = 10 * list(NAMES).index(case)
    assert (job.state, job.counts["succeeded"]) == ("COMPLETED", 4), job.reason
    assert job.source_uri == f"s3://{line.bucket}/{odd_key(job.tenant, case)}"
    assert job.results_uri.endswith(ResultKeys(job.tenant, "genre", dataset_version(case)).current)
    assert {row["business_key"] for row in results(line.objects, job)} == {f"f{first + n:03}" for n in range(4)}


@pytest.fixture(scope="module")
def repeated(line: Deployed) -> Iterator[Job]:
    """The same bytes put three times, and the event of the last one delivered three times more, at once."""
    tenant = fresh_tenant("thrice")
    line.push_spec(tenant, spec(shard_records=4))
    keys = [line.drop(tenant, films(8)) for _ in range(3)]
    head = line.objects.head(keys[0])
    assert head is not None
    event = {"detail": {"bucket": {"name": line.bucket}, "object": {"key": keys[0], "etag": head.etag}}}
    with ThreadPoolExecutor(3) as threads:
        replies = list(threads.map(lambda _: line.invoke("BuildManifestFunction", event), range(3)))
    assert len({reply["job_key"] for reply in replies}) == 1
    line.ended(tenant)
    job_key = replies[0]["job_key"]
    eventually(lambda: len(runs(line, job_key)) >= 6, "all six events are worked off")
    [job] = line.jobs(tenant)
    assert job.job_key == job_key
    yield job


def runs(line: Deployed, job_key: str) -> list[object]:
    return [entry for entry in line.log("BuildManifest") if entry.get("job_key") == job_key]


def test_given_three_puts_and_three_deliveries_when_all_are_done_then_there_is_one_job_and_one_execution(
    line: Deployed, repeated: Job
) -> None:
    assert repeated.state == "COMPLETED", repeated.reason
    assert line.executions(repeated.job_key) == [repeated.execution_name]


def test_given_three_puts_and_three_deliveries_when_the_provider_is_asked_then_each_shard_was_created_once(
    line: Deployed, repeated: Job
) -> None:
    submissions = line.ledger.submissions(repeated.job_key)
    assert len(submissions) == repeated.shard_count == 2
    assert Counter(entry["marker"] for entry in line.creates(repeated)) == Counter(
        row.submission_key for row in submissions
    )


def test_given_three_puts_when_the_job_has_written_all_it_writes_then_only_the_six_events_reached_build_manifest(
    line: Deployed, repeated: Job
) -> None:
    assert len(runs(line, repeated.job_key)) == 6
    assert not [entry for entry in line.log("BuildManifest") if "ignored" in entry]


def test_given_a_part_of_a_dataset_version_twice_when_both_are_dropped_then_the_second_is_reused_and_costs_nothing(
    line: Deployed,
) -> None:
    tenant = fresh_tenant("reuse")
    line.push_spec(tenant, spec())
    line.drop(tenant, films(6))
    [first] = line.ended(tenant)
    line.drop(tenant, films(4), version="v2")
    [_, second] = line.ended(tenant, count=2)
    assert (second.state, second.counts["succeeded"], second.counts["reused"]) == ("COMPLETED", 4, 4), second.reason
    assert (len(line.creates(first)), len(line.creates(second))) == (1, 0)
    assert {row["business_key"] for row in results(line.objects, second)} == {"f001", "f002", "f003", "f004"}
