"""What the simulator refuses, and when: bad files in `validating`, quotas, the hourly cap."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from infra.local.simulator.client import SimulatorControl
from tests.support.simulated import (
    CHAT,
    chat_body,
    chat_line,
    chat_lines,
    line,
    run,
    scenario,
    start,
)

GOOD = chat_line("good", "Title: M")
EMBED = "/v1/embeddings"
DEEP = json.loads("[" * 300 + "]" * 300)


def request(**change: Any) -> bytes:
    whole = {"custom_id": "x", "method": "POST", "url": CHAT, "body": chat_body("hello"), **change}
    return json.dumps({key: value for key, value in whole.items() if value != "absent"}).encode()


@pytest.mark.parametrize(
    ("bad", "code", "param"),
    [
        (b"{not json", "invalid_json_line", None),
        (b'{"custom_id": "\xff"}', "invalid_json_line", None),
        ("{}".encode("utf-16"), "invalid_json_line", None),
        (b"[]", "invalid_request", None),
        (request(custom_id="absent"), "missing_required_parameter", "custom_id"),
        (request(method="absent"), "missing_required_parameter", "method"),
        (request(url="absent"), "missing_required_parameter", "url"),
        (request(body="absent"), "missing_required_parameter", "body"),
        (request(body={"messages": []}), "missing_required_parameter", "body.model"),
        (request(custom_id=7), "invalid_request", "custom_id"),
        (request(body="text"), "invalid_request", "body"),
        (request(body=chat_body("x", deep=DEEP)), "invalid_request", "body"),
        (request(method="GET"), "invalid_method", "method"),
        (request(url=EMBED), "invalid_url", "url"),
        (request(body=chat_body("x", stream=True)), "streaming_unsupported", "body.stream"),
        (request(custom_id="good"), "duplicate_custom_id", "custom_id"),
        (request(body=chat_body("x", model="gpt-5")), "mismatched_model", "body.model"),
    ],
)
def test_given_a_bad_line_when_validated_then_the_job_fails_with_its_code_and_line(
    client: openai.OpenAI, control: SimulatorControl, bad: bytes, code: str, param: str | None
) -> None:
    batch = start(client, [GOOD, b"", bad, chat_line("other", "Title: N")])
    assert batch.status == "validating"
    control.advance(1)
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert (batch.output_file_id, batch.error_file_id, batch.in_progress_at) == (None, None, None)
    assert batch.errors is not None
    errors = batch.errors.data or []
    assert [(error.code, error.line, error.param) for error in errors] == [(code, 3, param)]
    assert errors[0].message
    assert control.journal()["tokens_billed"]["input"] == 0


def test_given_several_bad_lines_when_validated_then_each_is_named(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    batch, _, _ = run(client, control, [b"{", GOOD, request(method="PUT"), GOOD])
    assert batch.errors is not None
    assert [(error.code, error.line) for error in batch.errors.data or []] == [
        ("invalid_json_line", 1),
        ("invalid_method", 3),
        ("duplicate_custom_id", 4),
    ]


@pytest.mark.parametrize(
    ("keys", "lines", "endpoint", "code", "line_number"),
    [
        ({}, [b" "], CHAT, "empty_file", None),
        ({}, [line("a", CHAT, chat_body("x", model="no-such-model"))], CHAT, "model_not_found", 1),
        ({"limits": {"max_requests": 2}}, chat_lines(3), CHAT, "too_many_tasks", None),
        (
            {"limits": {"max_embedding_inputs": 2}},
            [line("a", EMBED, {"model": "text-embedding-3-small", "input": ["a", "b", "c"]})],
            EMBED,
            "too_many_tasks",
            None,
        ),
        ({"quota": {"enqueued_tokens": {"*": 3}}}, chat_lines(1), CHAT, "token_limit_exceeded", None),
        ({"quota": {"spend_cap_tokens": 0}}, chat_lines(1), CHAT, "billing_hard_limit_reached", None),
        (
            {"jobs": [{"fault": "fail_validation:billing_hard_limit_reached"}]},
            chat_lines(1),
            CHAT,
            "billing_hard_limit_reached",
            None,
        ),
    ],
)
def test_given_a_file_that_may_not_run_when_validated_then_the_job_names_the_reason(
    client: openai.OpenAI,
    control: SimulatorControl,
    keys: dict[str, Any],
    lines: list[bytes],
    endpoint: str,
    code: str,
    line_number: int | None,
) -> None:
    scenario(control, **keys)
    batch, _, _ = run(client, control, lines, endpoint=endpoint)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert [(error.code, error.line) for error in batch.errors.data or []] == [(code, line_number)]


def test_given_an_input_file_deleted_in_time_when_validated_then_it_cannot_be_found(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    batch = start(client, chat_lines(1))
    client.files.delete(batch.input_file_id)
    control.advance(1)
    assert control.journal()["batches"][batch.id]["errors"] == ["file_not_found"]


def test_given_a_file_over_the_size_limit_when_created_then_400(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(control, limits={"max_file_bytes": 100})
    with pytest.raises(openai.BadRequestError, match="too large"):
        start(client, chat_lines(3))


def test_given_a_token_quota_when_the_first_job_ends_then_the_second_fits(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(control, quota={"enqueued_tokens": {"gpt-5-mini": 60}, "release_delay_s": 30})
    first = start(client, chat_lines(10))
    control.advance(1)
    second = start(client, chat_lines(10))
    control.advance(10)
    assert client.batches.retrieve(first.id).status == "completed"
    assert client.batches.retrieve(second.id).status == "failed"
    still_held = start(client, chat_lines(10))
    control.advance(10)
    assert client.batches.retrieve(still_held.id).status == "failed"
    control.advance(30)
    assert run(client, control, chat_lines(10))[0].status == "completed"


def test_given_the_hourly_cap_when_it_is_reached_then_429_until_an_hour_has_passed(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(control, quota={"creates_per_hour": 2})
    start(client, chat_lines(1))
    control.advance(600)
    start(client, chat_lines(1))
    with pytest.raises(openai.RateLimitError) as refused:
        start(client, chat_lines(1))
    assert refused.value.code == "rate_limit_exceeded"
    wait_s = int(refused.value.response.headers["retry-after"])
    assert 2_990 <= wait_s <= 3_001
    control.advance(wait_s)
    start(client, chat_lines(1))
    assert len(control.journal()["creates"]) == 3
