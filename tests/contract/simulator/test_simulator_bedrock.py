"""Simulated Bedrock under the official SDK, its files in the emulator's S3."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from infra.local.simulator.client import SimulatorControl
from infra.local.simulator.server import SimulatorServer
from infra.local.simulator.store import S3Store
from tests.support.bedrock import (
    CLAUDE,
    COHERE,
    TITAN,
    bedrock_client,
    claude,
    converse,
    converse_lines,
    line,
    scenario,
)
from tests.support.bedrock import request as job_request
from tests.support.emulated import emulated_at


@dataclass
class Account:
    """A Bedrock client, its simulator, and a bucket of this test."""

    client: Any
    control: SimulatorControl
    s3: Any
    bucket: str

    def request(self, token: str, body: bytes | None = None, **changed: Any) -> dict[str, Any]:
        if body is not None:
            self.s3.put_object(Bucket=self.bucket, Key=f"in/{token}.jsonl", Body=body)
        text = json.dumps(job_request(token, **changed)).replace("s3://bucket/", f"s3://{self.bucket}/")
        asked: dict[str, Any] = json.loads(text)
        return asked

    def create(self, token: str, body: bytes | None = None, **changed: Any) -> str:
        arn: str = self.client.create_model_invocation_job(**self.request(token, body, **changed))["jobArn"]
        return arn

    def get(self, arn: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get_model_invocation_job(jobIdentifier=arn)
        return found

    def files(self, arn: str, token: str) -> dict[str, bytes]:
        prefix = f"out/{token}/{arn.rpartition('/')[2]}/"
        listed = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])
        return {
            item["Key"].removeprefix(prefix): self.s3.get_object(Bucket=self.bucket, Key=item["Key"])["Body"].read()
            for item in listed
        }

    def run(self, body: bytes, **changed: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A job from create to its end, with the parsed lines of its one output."""
        token = uuid.uuid4().hex
        arn = self.create(token, body, **changed)
        self.control.advance(60)
        out = self.files(arn, token).get(f"{token}.jsonl.out", b"")
        return self.get(arn), [json.loads(text) for text in out.split(b"\n") if text.strip()]


@pytest.fixture(scope="module")
def server(emulator: str) -> Iterator[SimulatorServer]:
    with SimulatorServer("calm", clock_scale=0, store=S3Store(emulator)) as running:
        yield running


@pytest.fixture
def account(server: SimulatorServer, emulator: str) -> Account:
    server.control.set_scenario("calm")
    server.control.reset()
    emulated = emulated_at(emulator)
    bucket = emulated.new_bucket()
    return Account(bedrock_client(server.bedrock_endpoint_url), server.control, emulated.shared_s3, bucket)


def code(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    told = error.value.response
    return told["Error"]["Code"], told["ResponseMetadata"]["HTTPStatusCode"]


def test_given_a_job_when_time_passes_then_it_goes_through_its_states_and_counts_as_it_runs(account: Account) -> None:
    token = uuid.uuid4().hex
    arn = account.create(token, converse_lines(100))
    seen: list[str] = []
    for _ in range(30):
        job = account.get(arn)
        if not seen or seen[-1] != job["status"]:
            seen.append(job["status"])
        if job["status"] == "InProgress" and 0 < job["processedRecordCount"] < 100:
            seen[-1] = "InProgress"
        account.control.advance(0.1)

    assert seen == ["Submitted", "Validating", "Scheduled", "InProgress", "Completed"]
    assert (job["totalRecordCount"], job["successRecordCount"], job["errorRecordCount"]) == (100, 100, 0)
    assert (job["clientRequestToken"], job["modelInvocationType"]) == (token, "Converse")
    assert "message" not in job


def test_given_a_completed_job_when_its_output_is_listed_then_one_file_per_input_shuffled_and_the_manifest(
    account: Account,
) -> None:
    token = uuid.uuid4().hex
    arn = account.create(token, converse_lines(100))
    account.control.advance(60)
    files = account.files(arn, token)

    assert sorted(files) == sorted([f"{token}.jsonl.out", "manifest.json.out"])
    rows = [json.loads(text) for text in files[f"{token}.jsonl.out"].splitlines()]
    ids = [row["recordId"] for row in rows]
    assert sorted(ids) == [f"R{number:010}" for number in range(100)] != ids
    assert rows[0]["modelInput"] == converse(f"Film {int(ids[0][1:])}")
    manifest = json.loads(files["manifest.json.out"])
    assert (manifest["totalRecordCount"], manifest["successRecordCount"]) == (100, 100)
    usage = [row["modelOutput"]["usage"] for row in rows]
    billed = account.control.journal()["tokens_per_marker"][token]
    assert billed["input"] == sum(row["inputTokens"] for row in usage) == manifest["inputTokenCount"]
    assert billed["output"] == sum(row["outputTokens"] for row in usage) == manifest["outputTokenCount"]


def test_given_a_prefix_when_it_holds_several_files_then_each_has_its_output_and_generated_ids(
    account: Account,
) -> None:
    token = uuid.uuid4().hex
    for name in ("a", "b"):
        body = json.dumps({"modelInput": converse(name)}).encode()
        account.s3.put_object(Bucket=account.bucket, Key=f"many/{name}.jsonl", Body=body)
    source = {"s3InputDataConfig": {"s3Uri": f"s3://{account.bucket}/many/"}}
    arn = account.create(token, inputDataConfig=source)
    account.control.advance(60)

    files = account.files(arn, token)
    assert sorted(files) == ["a.jsonl.out", "b.jsonl.out", "manifest.json.out"]
    assert all(json.loads(files[f"{name}.jsonl.out"])["recordId"] for name in "ab")


@pytest.mark.parametrize(
    ("model", "kind", "body", "member"),
    [
        (CLAUDE, "InvokeModel", claude("x"), "stop_reason"),
        (CLAUDE, "Converse", converse("x"), "stopReason"),
        (TITAN, "InvokeModel", {"inputText": "x", "dimensions": 256}, "inputTextTokenCount"),
        (COHERE, "InvokeModel", {"texts": ["x"], "input_type": "search_document"}, "embeddings"),
    ],
)
def test_given_each_family_when_answered_then_by_its_own_body(
    account: Account, model: str, kind: str, body: dict[str, Any], member: str
) -> None:
    _, (row,) = account.run(line("a", body), modelId=model, modelInvocationType=kind)
    assert member in row["modelOutput"]
    assert ("usage" in row["modelOutput"]) == (model == CLAUDE)


@pytest.mark.parametrize(
    ("model", "kind", "body", "word"),
    [
        (CLAUDE, "InvokeModel", {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}, "anthropic_version"),
        (CLAUDE, "Converse", {**converse("x"), "modelId": "m"}, "Extra inputs"),
        (CLAUDE, "Converse", {**converse("x"), "toolConfig": {}}, "toolConfig"),
        (CLAUDE, "Converse", {**converse("x"), "inferenceConfig": {"temperature": 2}}, "temperature"),
        (TITAN, "InvokeModel", {"inputText": ""}, "inputText"),
    ],
)
def test_given_input_that_does_not_fit_the_model_when_run_then_the_job_completes_and_the_record_is_an_error(
    account: Account, model: str, kind: str, body: dict[str, Any], word: str
) -> None:
    job, (row,) = account.run(line("a", body), modelId=model, modelInvocationType=kind)

    assert (job["status"], job["errorRecordCount"]) == ("Completed", 1)
    assert set(row) == {"recordId", "modelInput", "error"}
    assert row["error"]["errorCode"] == 400
    assert word in row["error"]["errorMessage"]


class TestToken:
    def test_given_the_same_token_and_request_when_created_again_then_the_same_job(self, account: Account) -> None:
        arns = {account.create("5ub", converse_lines(1)) for _ in range(3)}
        journal = account.control.journal()
        assert len(arns) == 1
        assert (journal["jobs_per_marker"], len(journal["resends"])) == ({"5ub": 1}, 2)

    def test_given_the_same_token_and_another_request_when_created_then_a_conflict(self, account: Account) -> None:
        account.create("5ub", converse_lines(1))
        with pytest.raises(ClientError) as caught:
            account.create("5ub", timeoutDurationInHours=48)
        assert code(caught) == ("ConflictException", 400)

    def test_given_a_lost_reply_when_the_sdk_repeats_by_itself_then_one_job(
        self, account: Account, server: SimulatorServer
    ) -> None:
        scenario(account.control, calls=[{"on": "create", "fault": "lost_reply"}])
        careless = bedrock_client(server.bedrock_endpoint_url, attempts=3)
        arn = careless.create_model_invocation_job(**account.request("5ub", converse_lines(1)))["jobArn"]
        assert [entry["job_id"] for entry in account.control.journal()["creates"]] == [arn]

    def test_given_no_token_when_created_twice_then_the_sdk_makes_tokens_and_two_jobs(self, account: Account) -> None:
        asked = account.request("5ub", converse_lines(1))
        del asked["clientRequestToken"]
        arns = {account.client.create_model_invocation_job(**asked)["jobArn"] for _ in range(2)}
        assert len(arns) == 2


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"jobName": "a b"}, "jobName"),
        ({"clientRequestToken": "a_b"}, "clientRequestToken"),
        ({"roleArn": "arn:aws:iam::1:user/x"}, "roleArn"),
        ({"timeoutDurationInHours": 23}, "timeoutDurationInHours"),
        ({"modelId": "no-such-model"}, "model identifier"),
        ({"outputDataConfig": {"s3OutputDataConfig": {"s3Uri": "s3://buc/a b"}}}, "s3Uri"),
    ],
)
def test_given_a_request_out_of_bounds_when_created_then_it_is_refused_at_once(
    account: Account, changed: dict[str, Any], word: str
) -> None:
    relaxed = bedrock_client(account.client.meta.endpoint_url)
    relaxed.meta.config.parameter_validation = False
    with pytest.raises(Exception, match=word):
        relaxed.create_model_invocation_job(**account.request("5ub", converse_lines(1), **changed))


def test_given_the_quota_of_jobs_when_it_is_used_up_then_a_400_that_means_later(account: Account) -> None:
    scenario(account.control, quota={"concurrent_jobs": {"*": 1}})
    account.create("one", converse_lines(1))
    with pytest.raises(ClientError) as caught:
        account.create("two", converse_lines(1))
    assert code(caught) == ("ServiceQuotaExceededException", 400)
    account.control.advance(60)
    assert account.create("two")


@pytest.mark.parametrize(
    ("body", "limits", "words"),
    [
        (converse_lines(99), {"min_records": 100}, ["99", "minimum of: 100"]),
        (converse_lines(3), {"min_records": 1, "max_requests": 2}, ["more records"]),
        (converse_lines(3), {"min_records": 1, "max_bedrock_bytes": 10}, ["exceeds"]),
        (b'{"modelInput": {}}\n{', {"min_records": 1}, ["Line 2", "JSON"]),
        (b'{"recordId": "a"}\n', {"min_records": 1}, ["Line 1"]),
        (None, {"min_records": 1}, ["permission"]),
    ],
)
def test_given_input_that_fails_validation_when_it_is_found_then_create_has_long_returned(
    account: Account, body: bytes | None, limits: dict[str, int], words: list[str]
) -> None:
    scenario(account.control, limits=limits)
    arn = account.create("5ub", body)
    account.control.advance(60)
    job = account.get(arn)

    assert job["status"] == "Failed"
    assert all(word in job["message"] for word in words)
    assert account.files(arn, "5ub") == {}
    assert account.control.journal()["bills"] == []


ENDINGS = [
    ("expire", 0.5, "PartiallyCompleted", 50),
    ("expire", 0.0, "Expired", None),
    ("cancel", 0.3, "Stopped", 30),
    ("only_error_file", 0.5, "Completed", 100),
    ("results_gone", 0.5, "Completed", None),
]


@pytest.mark.parametrize(("fault", "done", "status", "lines"), ENDINGS)
def test_given_a_fault_of_a_job_when_it_ends_then_its_state_and_as_much_output_as_it_had(
    account: Account, fault: str, done: float, status: str, lines: int | None
) -> None:
    scenario(account.control, jobs=[{"fault": fault, "done": done}])
    arn = account.create("5ub", converse_lines(100))
    account.control.advance(60)
    files = account.files(arn, "5ub")

    assert account.get(arn)["status"] == status
    assert ("manifest.json.out" in files) == (lines is not None and status != "Stopped")
    assert len(files.get("5ub.jsonl.out", b"").splitlines()) == (lines or 0)


@pytest.mark.parametrize(("done", "status"), [(0.0, "Expired"), (0.5, "PartiallyCompleted")])
def test_given_a_job_that_is_stuck_when_its_timeout_passes_then_it_ends_with_what_it_has(
    account: Account, done: float, status: str
) -> None:
    scenario(account.control, jobs=[{"fault": "stuck", "done": done}])
    arn = account.create("5ub", converse_lines(10))
    account.control.advance(23 * 3600)
    assert account.get(arn)["status"] == ("InProgress" if done else "Scheduled")
    account.control.advance(3600)
    assert account.get(arn)["status"] == status


def test_given_a_running_job_when_stopped_then_what_was_done_is_written_and_billed(account: Account) -> None:
    arn = account.create("5ub", converse_lines(100))
    account.control.advance(1.5)
    account.client.stop_model_invocation_job(jobIdentifier=arn)
    assert account.get(arn)["status"] == "Stopping"
    with pytest.raises(ClientError) as caught:
        account.client.stop_model_invocation_job(jobIdentifier=arn)
    assert code(caught) == ("ConflictException", 400)
    account.control.advance(5)

    job = account.get(arn)
    assert (job["status"], 0 < job["processedRecordCount"] < 100) == ("Stopped", True)
    assert len(account.files(arn, "5ub")["5ub.jsonl.out"].splitlines()) == job["processedRecordCount"]
    assert account.control.journal()["tokens_billed"]["output"] > 0


def test_given_many_jobs_when_listed_then_filters_and_pages_work(account: Account) -> None:
    for number in range(5):
        account.create(f"t{number}", converse_lines(1), jobName=f"name-{number % 2}-{number}")
        account.control.advance(1)

    pages = account.client.get_paginator("list_model_invocation_jobs").paginate(
        PaginationConfig={"PageSize": 2}, nameContains="name-0"
    )
    names = [job["jobName"] for page in pages for job in page["invocationJobSummaries"]]
    assert names == ["name-0-4", "name-0-2", "name-0-0"]
    done = account.client.list_model_invocation_jobs(statusEquals="Completed")["invocationJobSummaries"]
    assert {job["clientRequestToken"] for job in done} == {"t0", "t1", "t2"}
    middle = done[0]["submitTime"] + timedelta(seconds=1)  # the SDK sends whole seconds
    later = account.client.list_model_invocation_jobs(submitTimeAfter=middle)["invocationJobSummaries"]
    assert {job["clientRequestToken"] for job in later} == {"t3", "t4"}


def test_given_no_such_job_when_asked_then_404_and_an_id_works_as_well_as_an_arn(account: Account) -> None:
    arn = account.create("5ub", converse_lines(1))
    assert account.get(arn.rpartition("/")[2])["jobArn"] == arn
    with pytest.raises(ClientError) as caught:
        account.get(arn[:-1] + "-")
    assert code(caught) in (("ResourceNotFoundException", 404), ("ValidationException", 400))


@pytest.mark.parametrize("fault", ["drop_before", "lost_reply", "status:500", "status:429", "cut_body"])
def test_given_a_fault_of_a_call_when_called_then_it_strikes_once(account: Account, fault: str) -> None:
    arn = account.create("5ub", converse_lines(1))
    scenario(account.control, calls=[{"provider": "bedrock", "on": "get", "fault": fault}])
    with pytest.raises((ClientError, BotoCoreError)):
        account.get(arn)
    assert account.get(arn)["jobArn"] == arn
