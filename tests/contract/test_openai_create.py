"""Create is sent once, and every way in which it can fail is told apart: done, not done, nobody knows."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

from tallybatch.adapters.providers.common.failures import retry_after_s
from tallybatch.adapters.providers.openai import OpenAIApi
from tallybatch.domain.errors import (
    CreateUnknown,
    NotFound,
    Permanent,
    ProviderRefused,
    ProviderUnavailable,
    QuotaRefused,
)
from tallybatch.ports import ProviderApi, ProviderState
from tests.support.loopback import Loopback, Reply, Request, error_reply, json_reply, serving, unused_port

KEY = "5ub" * 20
SECRET = "sk-proj-verysecret"


def batch(number: int = 1, **changes: Any) -> dict[str, Any]:
    job = {
        "id": f"batch_{number}",
        "object": "batch",
        "endpoint": "/v1/responses",
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": "validating",
        "created_at": 1_795_900_000,
        "metadata": {"tallybatch_submission": KEY},
    }
    return {**job, **changes}


def api(server: Loopback, **settings: Any) -> OpenAIApi:
    return OpenAIApi(lambda: SECRET, base_url=server.url + "/v1", sleep=lambda _: None, **settings)


def create(client: ProviderApi) -> Any:
    return client.create(
        submission_key=KEY, file_id="file-1", endpoint="/v1/responses", model="gpt-5-mini-2025-08-07", output_uri=""
    )


def test_given_a_server_that_answers_when_created_then_the_job_and_its_marker() -> None:
    with serving(lambda _: json_reply(batch())) as server:
        job = create(api(server))
    assert (job.id, job.state, job.marker, job.created_at) == ("batch_1", ProviderState.SUBMITTED, KEY, 1_795_900_000)
    assert json.loads(job.raw) == batch()
    (sent,) = server.journal
    assert (sent.method, sent.path, sent.headers["authorization"]) == ("POST", "/v1/batches", f"Bearer {SECRET}")
    assert json.loads(sent.body) == {
        "completion_window": "24h",
        "endpoint": "/v1/responses",
        "input_file_id": "file-1",
        "metadata": {"tallybatch_submission": KEY},
    }


def commit_then(answer: Reply) -> tuple[list[dict[str, Any]], Callable[[Request], Reply]]:
    """A server that really creates the job and then answers something else."""
    jobs: list[dict[str, Any]] = []

    def serve(request: Request) -> Reply:
        if request.method == "POST":
            jobs.insert(0, batch(len(jobs) + 1))
            return answer
        return json_reply({"object": "list", "data": jobs, "has_more": False})

    return jobs, serve


@pytest.mark.parametrize(
    "answer",
    [
        error_reply(500, "server_error", retry_after_ms="1"),
        error_reply(502),
        error_reply(503, x_should_retry="true", retry_after_ms="1"),
        error_reply(408, retry_after_ms="1"),
        error_reply(409, retry_after_ms="1"),
        error_reply(418),
        Reply(drop=True),
        Reply(200, b'{"id": "batch_1", "obj', cut_after=10, length="500"),
        Reply(200, b"<html>welcome</html>", {"content-type": "text/html"}),
        Reply(200, b"", {"content-type": "application/json"}),
        json_reply({}),
        json_reply({"id": "file-1", "object": "file"}),
        json_reply({"error": {"message": "odd"}}),
        json_reply(batch(metadata={"tallybatch_submission": "another"})),
        Reply(302, b"", {}),
    ],
)
def test_given_a_job_was_created_and_no_good_answer_came_when_asked_then_one_post_unknown_and_found(
    answer: Reply,
) -> None:
    jobs, serve = commit_then(answer)
    with serving(serve) as server:
        client = api(server)
        with pytest.raises(CreateUnknown):
            create(client)
        assert server.count("POST", "/v1/batches") == 1
        found = client.find(KEY, since=1_795_900_000)
    assert len(jobs) == 1
    assert [job.id for job in found.jobs] == ["batch_1"]
    assert found.complete


def test_given_a_server_that_is_slow_to_answer_when_created_then_one_post_and_unknown() -> None:
    def serve(_: Request) -> Reply:
        time.sleep(0.6)
        return json_reply(batch())

    with serving(serve) as server:
        with pytest.raises(CreateUnknown):
            create(api(server, create_timeout_s=0.2))
        assert len(server.journal) == 1


def test_given_nobody_listens_when_created_then_it_was_provably_never_sent() -> None:
    client = OpenAIApi(lambda: SECRET, base_url=f"http://127.0.0.1:{unused_port()}/v1")
    with pytest.raises(ProviderUnavailable, match="not sent"):
        create(client)


def test_given_a_redirect_to_where_nobody_listens_when_created_then_nothing_is_proven() -> None:
    elsewhere = f"http://127.0.0.1:{unused_port()}/v1/batches/batch_1"
    with serving(lambda _: Reply(303, b"", {"location": elsewhere})) as server, pytest.raises(CreateUnknown):
        create(api(server))


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_given_a_refusal_when_created_then_nothing_was_created_and_one_post(status: int) -> None:
    with serving(lambda _: error_reply(status, "invalid_value", "the window is wrong")) as server:
        with pytest.raises(ProviderRefused) as caught:
            create(api(server))
        assert len(server.journal) == 1
    assert f"HTTP {status}" in str(caught.value)
    assert caught.value.account == (status in (401, 402, 403))


@pytest.mark.parametrize(
    ("headers", "wait"),
    [({"retry_after": "600"}, 600), ({"retry_after_ms": "1500"}, 1.5), ({}, None), ({"retry_after": "soon"}, None)],
)
def test_given_a_quota_refusal_when_created_then_one_post_and_the_advised_wait(
    headers: dict[str, str], wait: float | None
) -> None:
    with serving(lambda _: error_reply(429, "rate_limit_exceeded", **headers)) as server:
        with pytest.raises(QuotaRefused) as caught:
            create(api(server))
        assert len(server.journal) == 1
    assert caught.value.retry_after_s == wait


def test_given_an_http_date_when_read_then_seconds_from_now() -> None:
    assert retry_after_s({"retry-after": formatdate(1_000_060, usegmt=True)}, now=1_000_000) == 60
    assert retry_after_s({"retry-after": formatdate(999_000, usegmt=True)}, now=1_000_000) == 0


def test_given_a_spend_cap_when_created_then_an_operator_is_asked_and_waiting_is_not() -> None:
    with (
        serving(lambda _: error_reply(429, "insufficient_quota")) as server,
        pytest.raises(ProviderRefused, match="spend limit") as caught,
    ):
        create(api(server))
    assert caught.value.account


def test_given_no_key_when_created_then_nothing_is_sent() -> None:
    def missing() -> str:
        raise NotFound("there is no such secret")

    with serving(lambda _: json_reply(batch())) as server:
        for key, error in ((missing, NotFound), (lambda: " \n", Permanent)):
            with pytest.raises(error):
                create(OpenAIApi(key, base_url=server.url))
        assert server.journal == []


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500])
def test_given_a_provider_that_quotes_the_key_when_it_fails_then_no_text_of_ours_holds_it(status: int) -> None:
    message = f"Incorrect API key provided: {SECRET} and sk-pr*****cret."
    with (
        serving(lambda _: error_reply(status, "invalid_api_key", message)) as server,
        pytest.raises((ProviderRefused, QuotaRefused, CreateUnknown)) as caught,
    ):
        create(api(server))
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert "sk-pr" not in shown
