"""The adapter's calls through the official SDK: create is sent once and every failure is told apart; results in S3."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tallybatch.adapters.providers.bedrock import BedrockApi
from tallybatch.domain.errors import (
    CreateUnknown,
    ProviderRefused,
    ProviderUnavailable,
    QuotaRefused,
    ResultsGone,
)
from tallybatch.domain.outcomes import OutcomeClass, Usage
from tallybatch.ports import ProviderState
from tests.support.bedrock import NOVA, ROLE_ARN, bedrock_client
from tests.support.loopback import Loopback, Reply, Request, json_reply, serving, unused_port
from tests.support.memory_objects import MemoryObjects

KEY = "5ub0" * 16
ARN = "arn:aws:bedrock:us-east-1:123456789012:model-invocation-job/abcdefghij12"
OUT = "s3://bucket/provider/acme/job/5ub/"
NOW = 1_795_900_000.0


def api(server: Loopback | str, objects: MemoryObjects | None = None, *, timeout_s: float = 5) -> BedrockApi:
    url = server if isinstance(server, str) else server.url
    clients = [bedrock_client(url, timeout_s=timeout_s) for _ in range(2)]
    return BedrockApi(clients[0], clients[1], objects or MemoryObjects(), ROLE_ARN, sleep=lambda _: None)


def refusal(status: int, name: str, message: str = "words", **headers: str) -> Reply:
    body = json.dumps({"message": message}).encode()
    return Reply(status, body, {"x-amzn-errortype": name, "content-type": "application/json", **headers})


def job(**changed: Any) -> dict[str, Any]:
    return {
        "jobArn": ARN,
        "jobName": f"tallybatch-{KEY}"[:63],
        "clientRequestToken": KEY,
        "status": "InProgress",
        "submitTime": "2026-11-29T10:00:00Z",
        "outputDataConfig": {"s3OutputDataConfig": {"s3Uri": OUT}},
        **changed,
    }


def create(client: BedrockApi, **changed: Any) -> Any:
    asked: dict[str, Any] = {
        "submission_key": KEY,
        "file_id": "s3://bucket/jobs/a/request.jsonl",
        "endpoint": "Converse",
        "model": NOVA,
        "output_uri": OUT,
        "deadline_s": 48 * 3600,
    }
    return client.create(**{**asked, **changed})


def test_given_a_service_that_answers_when_created_then_the_request_is_the_contracts() -> None:
    with serving(lambda _: json_reply({"jobArn": ARN})) as server:
        made = create(api(server))
    (sent,) = server.journal
    assert (made.id, made.state, made.marker) == (ARN, ProviderState.SUBMITTED, KEY)
    assert (sent.method, sent.path) == ("POST", "/model-invocation-job")
    assert json.loads(sent.body) == {
        "jobName": f"tallybatch-{KEY}"[:63],
        "clientRequestToken": KEY,
        "roleArn": ROLE_ARN,
        "modelId": NOVA,
        "modelInvocationType": "Converse",
        "inputDataConfig": {
            "s3InputDataConfig": {"s3InputFormat": "JSONL", "s3Uri": "s3://bucket/jobs/a/request.jsonl"}
        },
        "outputDataConfig": {"s3OutputDataConfig": {"s3Uri": OUT}},
        "timeoutDurationInHours": 48,
    }


@pytest.mark.parametrize(("deadline_s", "hours"), [(60, 24), (24 * 3600 + 1, 25), (30 * 24 * 3600, 168)])
def test_given_a_deadline_when_created_then_hours_within_the_services_bounds(deadline_s: float, hours: int) -> None:
    with serving(lambda _: json_reply({"jobArn": ARN})) as server:
        create(api(server), deadline_s=deadline_s)
    assert json.loads(server.journal[0].body)["timeoutDurationInHours"] == hours


UNKNOWN = [
    refusal(500, "InternalServerException"),
    refusal(503, "ServiceUnavailableException"),
    refusal(408, "RequestTimeoutException"),
    refusal(409, "Odd"),
    Reply(drop=True),
    Reply(200, b'{"jobArn": "arn', cut_after=5, length="500"),
    Reply(200, b"<html>"),
    json_reply({}),
    Reply(302, b""),
]


@pytest.mark.parametrize("answer", UNKNOWN)
def test_given_no_trustworthy_answer_when_created_then_one_request_and_nobody_knows(answer: Reply) -> None:
    with serving(lambda _: answer) as server:
        with pytest.raises(CreateUnknown):
            create(api(server))
        assert len(server.journal) == 1


def test_given_a_service_that_is_slow_when_created_then_one_request_and_nobody_knows() -> None:
    def serve(_: Request) -> Reply:
        time.sleep(0.6)
        return json_reply({"jobArn": ARN})

    with serving(serve) as server:
        with pytest.raises(CreateUnknown):
            create(api(server, timeout_s=0.2))
        assert len(server.journal) == 1


def test_given_nobody_listens_when_created_then_it_was_provably_never_sent() -> None:
    with pytest.raises(ProviderUnavailable, match="not sent"):
        create(api(f"http://127.0.0.1:{unused_port()}"))


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "ValidationException"),
        (400, "ExpiredTokenException"),
        (403, "AccessDeniedException"),
        (403, "UnrecognizedClientException"),
        (404, "ResourceNotFoundException"),
    ],
)
def test_given_a_refusal_when_created_then_nothing_was_created(status: int, name: str) -> None:
    with serving(lambda _: refusal(status, name)) as server, pytest.raises(ProviderRefused, match=name) as caught:
        create(api(server))
    assert len(server.journal) == 1
    assert caught.value.account == (name not in ("ValidationException", "ResourceNotFoundException"))


@pytest.mark.parametrize(
    ("status", "name", "headers", "wait"),
    [
        (400, "ServiceQuotaExceededException", {}, None),
        (429, "ThrottlingException", {"retry-after": "77"}, 77),
        (400, "ThrottlingException", {"retry-after": "soon"}, None),
    ],
)
def test_given_no_quota_when_created_then_it_is_for_later_although_it_may_be_a_400(
    status: int, name: str, headers: dict[str, str], wait: float | None
) -> None:
    with serving(lambda _: refusal(status, name, **headers)) as server, pytest.raises(QuotaRefused) as caught:
        create(api(server))
    assert caught.value.retry_after_s == wait


@pytest.mark.parametrize("token", [KEY, "another"])
def test_given_a_conflict_when_created_then_only_the_job_with_our_token_is_adopted(token: str) -> None:
    def serve(request: Request) -> Reply:
        if request.method == "POST":
            return refusal(400, "ConflictException")
        return json_reply({"invocationJobSummaries": [job(clientRequestToken=token)]})

    with serving(serve) as server:
        if token == KEY:
            assert create(api(server)).id == ARN
        else:
            with pytest.raises(CreateUnknown):
                create(api(server))


def test_given_no_role_when_created_then_nothing_is_sent() -> None:
    with serving(lambda _: json_reply({})) as server:
        client = bedrock_client(server.url)
        with pytest.raises(ProviderRefused, match="ROLE_ARN"):
            create(BedrockApi(client, client, MemoryObjects(), ""))
    assert server.journal == []


def test_given_pages_of_jobs_when_searched_then_the_token_decides_and_not_the_name() -> None:
    pages = {
        "": {"invocationJobSummaries": [job(jobArn="other", clientRequestToken="x")], "nextToken": "2"},
        "2": {"invocationJobSummaries": [job()]},
    }
    with serving(
        lambda sent: json_reply(pages[parse_qs(urlsplit(sent.path).query).get("nextToken", [""])[0]])
    ) as server:
        found = api(server).find(KEY, since=NOW)
    assert ([each.id for each in found.jobs], found.jobs_seen, found.pages, found.complete) == ([ARN], 2, 2, True)
    query = parse_qs(urlsplit(server.journal[0].path).query)
    assert query["nameContains"] == [f"tallybatch-{KEY}"[:63]]
    assert "submitTimeAfter" in query


def test_given_an_item_that_cannot_be_read_when_searched_then_absence_is_not_proven() -> None:
    with serving(lambda _: json_reply({"invocationJobSummaries": [{"jobArn": 7}]})) as server:
        assert not api(server).find(KEY, since=NOW).complete


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("Submitted", ProviderState.SUBMITTED),
        ("Validating", ProviderState.SUBMITTED),
        ("Scheduled", ProviderState.QUEUED),
        ("InProgress", ProviderState.RUNNING),
        ("Stopping", ProviderState.CANCELLING),
        ("Completed", ProviderState.DONE),
        ("PartiallyCompleted", ProviderState.DONE),
        ("Stopped", ProviderState.CANCELLED),
        ("Expired", ProviderState.EXPIRED),
        ("Failed", ProviderState.FAILED),
        ("Hibernating", ProviderState.UNKNOWN),
    ],
)
def test_given_a_status_when_read_then_its_state_and_an_unknown_one_is_not_terminal(
    status: str, state: ProviderState
) -> None:
    with serving(lambda _: json_reply(job(status=status, brandNew=1))) as server:
        found = api(server).get(ARN)
    assert (found.state, found.raw_state, found.marker, found.created_at) == (state, status, KEY, 1_795_946_400)
    assert json.loads(found.raw)["brandNew"] == 1
    assert unquote(server.journal[0].path) == f"/model-invocation-job/{ARN}"


def test_given_no_such_job_when_heard_three_times_then_it_is_gone() -> None:
    with serving(lambda _: refusal(404, "ResourceNotFoundException")) as server:
        assert api(server).get(ARN).state is ProviderState.GONE
    assert len(server.journal) == 3


@pytest.mark.parametrize("answer", [refusal(500, "InternalServerException"), Reply(drop=True), Reply(200, b"{}")])
def test_given_no_answer_when_read_then_unavailable_and_not_gone(answer: Reply) -> None:
    with serving(lambda _: answer) as server, pytest.raises(ProviderUnavailable):
        api(server).get(ARN)


def test_given_a_job_that_has_ended_when_read_then_its_files_are_listed_and_the_manifest_fills_its_counts() -> None:
    objects = MemoryObjects()
    base = "provider/acme/job/5ub/abcdefghij12/"
    told = {
        "totalRecordCount": 9,
        "successRecordCount": 8,
        "errorRecordCount": 1,
        "inputTokenCount": 70,
        "outputTokenCount": 30,
    }
    for name, body in {
        "b.jsonl.out": b"b",
        "a.jsonl.out": b"a",
        "x.tmp": b"",
        "manifest.json.out": json.dumps(told).encode(),
    }.items():
        objects.write_as_user(base + name, body)
    with serving(lambda _: json_reply(job(status="Stopped", totalRecordCount=0))) as server:
        client = api(server, objects)
        found = client.get(ARN)
    assert dict(found.channels) == {
        "output-0": base + "a.jsonl.out",
        "output-1": base + "b.jsonl.out",
        "meta-manifest": base + "manifest.json.out",
    }
    assert dict(found.counts) == {"total": 9, "completed": 8, "failed": 1}
    assert found.usage == Usage(input=70, output=30)
    assert b"".join(client.download(found.channels["output-1"])) == b"b"
    with pytest.raises(ResultsGone):
        list(client.download(base + "c.jsonl.out"))


def test_given_a_failed_job_without_output_when_read_then_its_message_gives_the_class() -> None:
    message = "contains less records (7) than the required minimum of: 100"
    with serving(lambda _: json_reply(job(status="Failed", message=message))) as server:
        found = api(server).get(ARN)
    assert (found.failure, found.errors[0].code) == (OutcomeClass.RETRYABLE, "below_minimum")


@pytest.mark.parametrize("name", ["ConflictException", "ValidationException"])
def test_given_a_job_that_has_ended_when_stopped_then_the_400_is_swallowed_after_a_look(name: str) -> None:
    def serve(request: Request) -> Reply:
        return refusal(400, name) if request.method == "POST" else json_reply(job(status="Completed"))

    with serving(serve) as server:
        assert api(server).cancel(ARN).state is ProviderState.DONE


def test_given_no_right_to_stop_when_stopped_then_it_is_told() -> None:
    with serving(lambda _: refusal(403, "AccessDeniedException")) as server, pytest.raises(ProviderRefused):
        api(server).cancel(ARN)
