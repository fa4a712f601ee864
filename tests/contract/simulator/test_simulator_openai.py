"""The simulator seen through the official OpenAI SDK, on a day when nothing goes wrong."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

import jsonschema_rs
import openai
import pytest

from infra.local.simulator.answers import GENRES
from infra.local.simulator.client import SimulatorControl
from infra.local.simulator.server import SimulatorServer
from tests.support.simulated import (
    CHAT,
    GENRE_SCHEMA,
    MARKER,
    answer_of,
    chat_body,
    chat_line,
    chat_lines,
    line,
    raw,
    results,
    run,
    start,
    upload,
)

DAY_S = 86_400


def test_given_a_file_when_it_is_uploaded_then_metadata_and_bytes_come_back(client: openai.OpenAI) -> None:
    data = "first\n\u2028 zweite Zeile\r\n".encode()
    file = client.files.create(
        file=("in put.jsonl", data), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert (file.bytes, file.filename, file.purpose, file.status) == (len(data), "in put.jsonl", "batch", "processed")
    assert file.expires_at == file.created_at + 3600
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).content == data
    assert [item.id for item in client.files.list(purpose="batch")] == [file.id]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError) as refused:
        client.files.content(file.id)
    assert refused.value.type == "invalid_request_error"
    assert refused.value.request_id


def test_given_a_file_with_a_life_when_time_passes_then_its_content_is_gone(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    default = upload(client, [b"{}"])
    short = client.files.create(
        file=("a.jsonl", b"{}"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    ).id
    control.advance(3601)
    with pytest.raises(openai.NotFoundError):
        client.files.content(short)
    assert client.files.content(default).content == b"{}\n"
    control.advance(30 * DAY_S)
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(default)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("bytes=0-3", b"0123"), ("bytes=6-", b"6789\n"), ("bytes=-3", b"89\n"), ("bytes=8-99", b"89\n")],
)
def test_given_a_range_when_content_is_read_then_only_that_part_comes(
    client: openai.OpenAI, asked: str, expected: bytes
) -> None:
    file_id = upload(client, [b"0123456789"])
    answer = client.files.with_raw_response.content(file_id, extra_headers={"range": asked})
    assert answer.status_code == 206
    assert answer.content == expected
    assert answer.headers["content-range"].endswith("/11")


def test_given_a_range_behind_the_end_when_content_is_read_then_416(client: openai.OpenAI) -> None:
    file_id = upload(client, [b"0123456789"])
    with pytest.raises(openai.APIStatusError) as refused:
        client.files.content(file_id, extra_headers={"range": "bytes=11-"})
    assert refused.value.status_code == 416


def test_given_a_batch_when_time_passes_then_it_walks_through_its_states(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    batch = start(client, chat_lines(40), metadata={MARKER: "sub-1", "shard": "3"})
    assert (batch.status, batch.metadata) == ("validating", {MARKER: "sub-1", "shard": "3"})
    assert batch.expires_at == batch.created_at + DAY_S
    seen = []
    for seconds in (0.6, 0.7, 0.8, 0.4):
        control.advance(seconds)
        batch = client.batches.retrieve(batch.id)
        assert batch.request_counts is not None
        seen.append((batch.status, batch.request_counts.total, batch.request_counts.completed))
    assert [status for status, _, _ in seen] == ["in_progress", "in_progress", "finalizing", "completed"]
    assert all(total == 40 for _, total, _ in seen)
    assert 0 < seen[0][2] < seen[1][2] < seen[2][2] == 40
    assert batch.model == "gpt-5-mini-2025-08-07"
    assert batch.error_file_id is None
    stamps = (batch.created_at, batch.in_progress_at, batch.finalizing_at, batch.completed_at)
    assert all(isinstance(stamp, int) for stamp in stamps)
    assert sorted(stamps, key=lambda stamp: stamp or 0) == list(stamps)

    rows = results(client, batch.output_file_id)
    assert {row["custom_id"] for row in rows} == {f"row-{number:04}" for number in range(40)}
    assert [row["custom_id"] for row in rows] != sorted(row["custom_id"] for row in rows)
    assert all(jsonschema_rs.is_valid(GENRE_SCHEMA, answer_of(row)) for row in rows)
    assert {answer_of(row)["genre"] for row in rows} <= set(GENRES)
    usages = [row["response"]["body"]["usage"] for row in rows]
    assert batch.usage is not None
    assert batch.usage.input_tokens == sum(usage["prompt_tokens"] for usage in usages) > 0
    assert batch.usage.output_tokens == sum(usage["completion_tokens"] for usage in usages) > 0
    journal = control.journal()
    assert journal["jobs_per_marker"] == {"sub-1": 1}
    assert journal["creates"][0]["metadata"] == {MARKER: "sub-1", "shard": "3"}
    billed = {"input": batch.usage.input_tokens, "cached_input": 0, "output": batch.usage.output_tokens, "reasoning": 0}
    assert journal["tokens_billed"] == journal["tokens_per_marker"]["sub-1"] == billed
    assert journal["batches"][batch.id]["state"] == "completed"


def test_given_the_same_requests_when_they_run_twice_then_answers_are_the_same(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    def answers() -> dict[str, Any]:
        return {row["custom_id"]: answer_of(row) for row in run(client, control, chat_lines(30))[1]}

    first = answers()
    assert len({answer["genre"] for answer in first.values()}) > 3
    assert answers() == first


def test_given_an_endpoint_when_called_directly_then_the_answer_is_that_of_the_batch(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    text = "Title: Metropolis"
    asked: Any = {"format": {"type": "json_schema", "name": "answer", "schema": GENRE_SCHEMA, "strict": True}}
    in_batch = run(
        client,
        control,
        [line("a", "/v1/responses", {"model": "gpt-5-mini", "input": text, "text": asked})],
        endpoint="/v1/responses",
    )[1][0]["response"]["body"]
    direct = client.responses.create(model="gpt-5-mini", input=text, text=asked)
    assert in_batch["output"][0]["content"][0]["text"] == direct.output_text
    assert jsonschema_rs.is_valid(GENRE_SCHEMA, json.loads(direct.output_text))
    assert direct.usage is not None
    assert in_batch["usage"]["input_tokens"] == direct.usage.input_tokens
    assert in_batch["usage"]["total_tokens"] == direct.usage.total_tokens
    assert direct.usage.input_tokens == math.ceil(len(text) / 4)
    assert (direct.status, direct.model) == ("completed", "gpt-5-mini-2025-08-07")
    chat = client.chat.completions.create(**chat_body(text))
    assert json.loads(chat.choices[0].message.content or "")["genre"] == json.loads(direct.output_text)["genre"]
    assert control.journal()["tokens_billed"]["output"] > direct.usage.output_tokens


def test_given_texts_when_embedded_then_vectors_depend_on_the_text_alone(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    texts = ["first text", "second text", "first text"]
    body = {"model": "text-embedding-3-small", "input": texts, "dimensions": 64}
    lines = [
        line("floats", "/v1/embeddings", {**body, "encoding_format": "float"}),
        line("base64", "/v1/embeddings", {**body, "encoding_format": "base64"}),
    ]
    batch, rows, errors = run(client, control, lines, endpoint="/v1/embeddings")
    assert errors == []
    bodies = {row["custom_id"]: row["response"]["body"] for row in rows}
    direct = client.embeddings.create(model="text-embedding-3-small", input=texts, dimensions=64)
    vectors = [item.embedding for item in direct.data]
    assert vectors[0] == vectors[2] != vectors[1]
    assert math.isclose(sum(value * value for value in vectors[0]), 1, rel_tol=1e-5)
    assert [item["index"] for item in bodies["floats"]["data"]] == [0, 1, 2]
    assert bodies["floats"]["data"][1]["embedding"] == pytest.approx(vectors[1], abs=1e-6)
    packed = base64.b64decode(bodies["base64"]["data"][1]["embedding"])
    assert list(struct.unpack("<64f", packed)) == pytest.approx(vectors[1], abs=1e-6)
    assert direct.usage.prompt_tokens == 3 + 3 + 3
    assert batch.usage is not None
    assert (batch.usage.input_tokens, batch.usage.output_tokens) == (18, 0)
    assert len(client.embeddings.create(model="text-embedding-3-large", input="x").data[0].embedding) == 3072


def test_given_a_small_output_limit_when_answered_then_the_answer_is_cut_and_says_so(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(**chat_body("Title: M", max_completion_tokens=2))
    assert chat.choices[0].finish_reason == "length"
    assert len(chat.choices[0].message.content or "") <= 8
    response = client.responses.create(model="gpt-5", input="Title: M", max_output_tokens=1)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_given_many_batches_when_listed_then_pages_come_newest_first(client: openai.OpenAI) -> None:
    file_id = upload(client, chat_lines(1))
    ids = [client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h").id for _ in range(45)]
    first = client.batches.list()
    assert ([item.id for item in first.data], first.has_more) == (ids[:-21:-1], True)
    middle = client.batches.list(limit=10, after=first.data[-1].id)
    assert [item.id for item in middle.data] == ids[-21:-31:-1]
    late = client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h").id
    assert [item.id for item in client.batches.list(limit=10, after=first.data[-1].id).data] == ids[-21:-31:-1]
    assert [item.id for item in client.batches.list(limit=7)] == [late, *reversed(ids)]
    for limit in (0, 101):
        with pytest.raises(openai.BadRequestError):
            client.batches.list(limit=limit)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"endpoint": "/v1/nothing"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": "file-none"}, "input_file_id"),
        ({"metadata": {f"k{number}": "v" for number in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 60}}, "output_expires_after"),
        ({"extra_body": {"idempotency": "x"}}, "idempotency"),
    ],
)
def test_given_a_wrong_parameter_when_created_then_400_names_it_and_nothing_exists(
    client: openai.OpenAI, control: SimulatorControl, change: dict[str, Any], param: str
) -> None:
    call = {"input_file_id": upload(client, chat_lines(1)), "endpoint": CHAT, "completion_window": "24h", **change}
    with pytest.raises(openai.BadRequestError) as refused:
        client.batches.create(**call)
    assert refused.value.param == param
    assert control.journal()["creates"] == []


def test_given_metadata_at_its_limits_when_created_then_it_is_kept(client: openai.OpenAI) -> None:
    metadata = {f"{number:02}" + "k" * 62: "v" * 512 for number in range(16)}
    batch = start(client, chat_lines(1), metadata=metadata)
    assert client.batches.retrieve(batch.id).metadata == metadata


def test_given_output_expires_after_when_it_passes_then_results_are_gone(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    batch = client.batches.create(
        input_file_id=upload(client, chat_lines(2)),
        endpoint=CHAT,
        completion_window="24h",
        output_expires_after={"anchor": "created_at", "seconds": 3600},
    )
    control.advance(100)
    batch = client.batches.retrieve(batch.id)
    assert batch.output_file_id is not None
    file = client.files.retrieve(batch.output_file_id)
    assert file.purpose == "batch_output"
    assert file.expires_at == file.created_at + 3600
    control.advance(3700)
    with pytest.raises(openai.NotFoundError):
        client.files.content(batch.output_file_id)


def test_given_a_stranger_when_asked_then_404_and_without_a_key_401(
    client: openai.OpenAI, simulator: SimulatorServer
) -> None:
    for call in (client.batches.retrieve, client.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            call("batch_none")
    with pytest.raises(openai.NotFoundError) as refused:
        client.get("/nowhere", cast_to=object)
    assert refused.value.code == "unknown_url"
    assert refused.value.request_id
    with pytest.raises(openai.AuthenticationError):
        client.with_options(default_headers={"Authorization": ""}).batches.list()


def test_given_a_running_batch_when_cancelled_then_what_was_done_is_kept_and_billed(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    batch = start(client, chat_lines(100))
    control.advance(0.5 + 0.75)
    batch = client.batches.cancel(batch.id)
    assert batch.status == "cancelling"
    assert client.batches.cancel(batch.id).status == "cancelling"
    control.advance(5)
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "cancelled"
    assert batch.cancelled_at is not None
    rows = results(client, batch.output_file_id)
    assert len(rows) == 50
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.completed) == (100, 50)
    assert batch.error_file_id is None
    used = sum(row["response"]["body"]["usage"]["prompt_tokens"] for row in rows)
    assert control.journal()["tokens_billed"]["input"] == used
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)


def test_given_a_batch_in_validation_when_cancelled_then_it_ends_without_files(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    batch = client.batches.cancel(start(client, chat_lines(3)).id)
    control.advance(5)
    batch = client.batches.retrieve(batch.id)
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("cancelled", None, None)


def test_given_lines_with_crlf_and_blanks_when_run_then_they_are_read(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    lines = [chat_line("a", "one") + b"\r", b"", b"  ", chat_line("b", "two \u2028 \u0085 three")]
    batch, rows, _ = run(client, control, lines)
    assert batch.status == "completed"
    assert {row["custom_id"] for row in rows} == {"a", "b"}


def test_given_3201_records_when_executed_then_each_has_a_line(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    batch = start(client, chat_lines(3_201))
    control.advance(60)
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "completed"
    assert raw(client, batch.output_file_id).count(b"\n") == 3_201
