"""Which files of a job may be deleted, told from its rows."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from infra.local.simulator.server import SimulatorServer
from tallybatch.adapters.providers.openai import OpenAIApi
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.rows import Job, Submission
from tallybatch.steps import provider_files
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_misc import ManualClock
from tests.support.memory_objects import MemoryObjects

JOB = Job(
    job_key="j" * 64,
    tenant="acme",
    spec="genre",
    dataset_version="v1",
    state=JobState.COMPLETED,
    created_at=0,
    updated_at=1000,
    provider="openai",
    certificate="s3://bucket/certificate.json",
)


@pytest.fixture(scope="module")
def api() -> Iterator[OpenAIApi]:
    with SimulatorServer("calm", clock_scale=0) as simulator:
        yield OpenAIApi(lambda: "sk-test", base_url=simulator.openai_base_url, max_retries=0)


@pytest.mark.parametrize("state", SubmissionState)
def test_given_a_submission_in_any_state_when_deleted_then_only_what_is_surely_ours_and_kept_goes(
    api: OpenAIApi, state: SubmissionState
) -> None:
    first, second = (api.upload(f"{name}.jsonl", io.BytesIO(b"{}\n")) for name in "ab")
    ledger, objects = MemoryLedger(), MemoryObjects()
    row = Submission(
        job_key=JOB.job_key,
        tenant="acme",
        attempt=1,
        shard_id="s1",
        shard_sha256="0" * 64,
        state=state,
        provider="openai",
        submission_key="1" * 64,
        updated_at=0,
        earlier_files=(first,),
        file_id=second,
    )
    assert ledger.put_job(JOB, expected_version=None)
    assert ledger.put_submission(row, expected_version=None)

    deleted = provider_files.run(JOB, provider_files.Ports(objects, ledger, {"openai": api}, ManualClock()))

    over = state in {SubmissionState.RECONCILED, SubmissionState.EMPTY, SubmissionState.REFUSED}
    assert deleted == (2 if over else 0)
    assert [api.delete_file(file) for file in (first, second)] == [not over] * 2
    assert (objects.head(f"deletions/acme/{JOB.job_key}.json") is not None) == over


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ({}, True),
        ({"updated_at": 1001.0}, False),
        ({"certificate": ""}, False),
        ({"provider_files_deleted_at": 5.0}, False),
        *(({"state": state}, state is JobState.COMPLETED) for state in JobState),
    ],
)
def test_given_a_job_when_asked_then_it_is_due_only_sealed_and_after_its_time(
    changes: dict[str, object], due: bool
) -> None:
    job = replace(JOB, **changes)
    assert provider_files.is_due(job, 1000 + 3600, 3600) is due
    assert not provider_files.is_due(job, 10**9, -1)
