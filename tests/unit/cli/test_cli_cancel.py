"""`tallybatch cancel`, on the real steps."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tallybatch.contracts import JobInput
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tests.support.operating import SPEC, Operator, films


def dropped(operator: Operator) -> str:
    operator.pipeline.push_spec(SPEC)
    job_key: str = operator.pipeline.drop(films(3))["job_key"]
    return job_key


def submitted(operator: Operator) -> str:
    job_key = dropped(operator)
    pipeline = operator.pipeline
    (item,) = pipeline.items(pipeline.plan(JobInput(tenant="acme", job_key=job_key, bucket="bucket")))
    pipeline.submit(item)
    return job_key


def test_a_job_is_cancelled_by_a_prefix_and_what_follows_is_told(operator: Operator) -> None:
    job_key = submitted(operator)
    said = operator.run("cancel", job_key[:8])
    assert said.code == 0
    assert "Asked to cancel; 1 at the provider will be cancelled and harvested." in said.out
    assert f"tallybatch follow {job_key[:12]}" in said.out
    assert operator.pipeline.job(job_key).cancel_requested_at > 0


def test_json_is_one_document_with_the_moment_and_a_second_call_tells_the_same(operator: Operator) -> None:
    job_key = submitted(operator)
    first = operator.run("cancel", job_key, "--json")
    operator.pipeline.wait(60)
    second = operator.run("cancel", job_key, "--json")
    assert (first.code, first.json["job_key"], first.json["state"]) == (0, job_key, "SUBMITTED")
    assert first.json["cancel_requested_at"].endswith("Z")
    assert second.json == first.json


def test_follow_stays_until_the_job_is_cancelled_and_that_is_a_success(operator: Operator) -> None:
    job_key = dropped(operator)
    operator.world.append(lambda: operator.pipeline.execute(job_key))
    said = operator.run("cancel", job_key, "--follow", "--json")
    assert (said.code, said.json["state"], said.json["succeeded"]) == (0, "CANCELLED", 0)
    assert "nothing is at the provider" in said.err
    again = operator.run("cancel", job_key)
    assert "Cancelled. Drop the file again to pay only for the records without an answer." in again.out


@pytest.mark.parametrize("with_follow", [[], ["--follow"]])
def test_a_job_that_has_ended_is_left_as_it_is(operator: Operator, with_follow: list[str]) -> None:
    job = operator.completed()
    said = operator.run("cancel", job.job_key, *with_follow)
    assert said.code == 0
    assert "Nothing to cancel: the job has ended COMPLETED." in said.out
    assert operator.pipeline.job(job.job_key) == job
    assert operator.run("cancel", job.job_key, "--json").json["cancel_requested_at"] is None


def test_a_job_that_fails_instead_is_no_success(operator: Operator) -> None:
    job_key = dropped(operator)

    def fail() -> Job:
        job = operator.pipeline.job(job_key)
        failed = operator.pipeline.ledger.put_job(_failed(job), expected_version=job.version)
        assert failed
        return failed

    operator.world.append(fail)
    said = operator.run("cancel", job_key, "--follow", "--json")
    assert (said.code, said.json["state"]) == (1, "FAILED")


def _failed(job: Job) -> Job:
    return replace(job, state=JobState.FAILED)


def test_a_job_that_is_not_there_is_not_found(operator: Operator) -> None:
    assert operator.run("cancel", "f00", "--json").code == 4
