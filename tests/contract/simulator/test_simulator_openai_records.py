"""Faults of single records: errors, identities, useless answers, dirty files."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import openai
import pytest

from infra.local.simulator.client import SimulatorControl
from tests.support.simulated import (
    answer_of,
    chat_body,
    chat_line,
    chat_lines,
    raw,
    results,
    run,
    scenario,
    start,
)


def record_fault(control: SimulatorControl, fault: str, **more: Any) -> None:
    """It hits the records that hold the word Poison."""
    scenario(control, records=[{"fault": fault, "contains": "Poison", **more}])


def rows_with(client: openai.OpenAI, control: SimulatorControl, texts: list[str]) -> tuple[Any, list[Any], list[Any]]:
    return run(client, control, [chat_line(f"r{number}", text) for number, text in enumerate(texts)])


POISONED = ["Title: A", "Title: Poison", "Title: B", "Title: C"]


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("error_400", 400, "context_length_exceeded"),
        ("error_429", 429, "rate_limit_exceeded"),
        ("error_500", 500, "server_error"),
        ("error_503", 503, "service_unavailable"),
        ("error_in_body", 200, "server_error"),
    ],
)
def test_given_an_error_when_run_then_it_hides_in_the_response_and_a_retry_succeeds(
    client: openai.OpenAI, control: SimulatorControl, fault: str, status: int, code: str
) -> None:
    record_fault(control, fault)
    batch, rows, errors = rows_with(client, control, POISONED)
    assert len(rows) == 3
    assert [(row["custom_id"], row["error"]) for row in errors] == [("r1", None)]
    assert errors[0]["response"]["status_code"] == status
    assert errors[0]["response"]["body"]["error"]["code"] == code
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (3, 1)
    _, rows, errors = run(client, control, [chat_line("another-id", "Title: Poison")])
    assert (len(rows), errors) == (1, [])
    assert control.journal()["record_faults"] == {fault: 1}


def test_given_a_fault_for_always_when_retried_then_it_stays_and_hits_direct_calls_too(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    record_fault(control, "error_400", times="always")
    for _ in range(2):
        assert len(rows_with(client, control, POISONED)[2]) == 1
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**chat_body("Title: Poison"))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("duplicate_same", {"r0": 1, "r1": 2, "r2": 1, "r3": 1}),
        ("duplicate_different", {"r0": 1, "r1": 2, "r2": 1, "r3": 1}),
        ("missing", {"r0": 1, "r2": 1, "r3": 1}),
        ("swapped_id", {"r0": 1, "r1": 1, "r2": 1, "r3": 1}),
        ("success_and_error", {"r0": 1, "r1": 1, "r2": 1, "r3": 1}),
    ],
)
def test_given_faults_of_identity_when_run_then_ids_occur_as_announced(
    client: openai.OpenAI, control: SimulatorControl, fault: str, expected: dict[str, int]
) -> None:
    calm = {row["custom_id"]: answer_of(row) for row in rows_with(client, control, POISONED)[1]}
    record_fault(control, fault)
    batch, rows, errors = rows_with(client, control, POISONED)
    assert Counter(row["custom_id"] for row in rows) == expected
    poisoned = [answer_of(row) for row in rows if row["custom_id"] == "r1"]
    if fault == "duplicate_same":
        assert poisoned == [calm["r1"]] * 2
    elif fault == "duplicate_different":
        assert poisoned[0] != poisoned[1]
        used = sum(row["response"]["body"]["usage"]["completion_tokens"] for row in rows)
        assert batch.usage is not None
        assert batch.usage.output_tokens == used
    elif fault == "swapped_id":
        answers = {row["custom_id"]: answer_of(row) for row in rows}
        assert sum(answers[name] != calm[name] for name in calm) == 2
        assert sorted(map(str, answers.values())) == sorted(map(str, calm.values()))
    elif fault == "success_and_error":
        assert [(row["custom_id"], row["response"]["status_code"]) for row in errors] == [("r1", 500)]


def test_given_an_unknown_id_when_run_then_it_comes_on_top_of_all_known_ones(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    record_fault(control, "unknown_id")
    _, rows, _ = rows_with(client, control, POISONED)
    ids = {row["custom_id"] for row in rows}
    assert ids > {"r0", "r1", "r2", "r3"}
    assert len(ids) == len(rows) == 5


@pytest.mark.parametrize(
    ("fault", "response"),
    [("status_zero", {"status_code": 0, "request_id": "", "body": {}}), ("null_response", None)],
)
def test_given_an_empty_envelope_when_run_then_it_is_in_the_error_file(
    client: openai.OpenAI, control: SimulatorControl, fault: str, response: Any
) -> None:
    record_fault(control, fault)
    _, rows, errors = rows_with(client, control, POISONED)
    assert len(rows) == 3
    assert [(row["custom_id"], row["response"], row["error"]) for row in errors] == [("r1", response, None)]


@pytest.mark.parametrize(
    ("fault", "finish", "readable"),
    [
        ("refusal", "stop", False),
        ("length", "length", False),
        ("content_filter", "content_filter", False),
        ("bad_json", "stop", False),
        ("bad_schema", "stop", True),
    ],
)
def test_given_a_useless_answer_when_run_then_it_is_billed_like_any_other(
    client: openai.OpenAI, control: SimulatorControl, fault: str, finish: str, readable: bool
) -> None:
    record_fault(control, fault)
    batch, rows, errors = rows_with(client, control, POISONED)
    assert errors == []
    body = next(row["response"]["body"] for row in rows if row["custom_id"] == "r1")
    choice = body["choices"][0]
    assert choice["finish_reason"] == finish
    assert (choice["message"]["refusal"] is not None) == (fault == "refusal")
    if readable:
        assert "genre" not in json.loads(choice["message"]["content"])
    else:
        with pytest.raises(ValueError, match=r"Expecting|Unterminated|delimiter"):
            json.loads(choice["message"]["content"] or "")
    assert batch.usage is not None
    assert batch.usage.input_tokens == sum(row["response"]["body"]["usage"]["prompt_tokens"] for row in rows)


def test_given_another_model_or_separators_when_run_then_the_answer_shows_it(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    record_fault(control, "wrong_model")
    rows = rows_with(client, control, POISONED)[1]
    assert len({row["response"]["body"]["model"] for row in rows}) == 2
    record_fault(control, "u2028")
    batch = rows_with(client, control, POISONED)[0]
    data = raw(client, batch.output_file_id)
    assert data.count(b"\n") == 4
    assert len(data.decode().splitlines()) == 6
    assert all(json.loads(text) for text in data.split(b"\n") if text)


@pytest.mark.parametrize("fault", ["garbage_line", "truncated_last_line", "crlf", "blank_lines", "bom"])
def test_given_a_dirty_file_when_read_then_its_bytes_are_as_announced(
    client: openai.OpenAI, control: SimulatorControl, fault: str
) -> None:
    record_fault(control, fault)
    job = start(client, [chat_line(f"r{number}", text) for number, text in enumerate(POISONED)])
    control.advance(60)
    data = raw(client, client.batches.retrieve(job.id).output_file_id)
    lines = data.split(b"\n")
    if fault == "garbage_line":
        garbage = [text for text in lines if text.startswith(b"<html>")]
        assert len(garbage) == 1
        with pytest.raises(UnicodeDecodeError):
            garbage[0].decode()
    elif fault == "truncated_last_line":
        assert lines[-1].startswith(b'{"id"')
        assert not lines[-1].endswith(b"}")
        assert len(lines) == 4
    elif fault == "crlf":
        assert data.count(b"\r\n") == 1
    elif fault == "blank_lines":
        assert sum(not text.strip() for text in lines[:-1]) == 2
    else:
        assert data.startswith(b"\xef\xbb\xbf{")


def test_given_odd_envelopes_when_read_then_the_body_is_a_string_or_the_error_key_absent(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    record_fault(control, "body_as_string")
    rows = rows_with(client, control, POISONED)[1]
    assert [type(row["response"]["body"]) for row in rows if row["custom_id"] == "r1"] == [str]
    record_fault(control, "no_error_key")
    rows = rows_with(client, control, POISONED)[1]
    assert [row["custom_id"] for row in rows if "error" not in row] == ["r1"]


def test_given_rates_when_many_records_run_then_about_that_share_is_hit_and_a_second_run_is_clean(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    control.set_scenario("demo")
    with pytest.raises(openai.APIConnectionError):
        start(client, chat_lines(1_000))
    (batch,) = client.batches.list().data
    control.advance(60)
    batch = client.batches.retrieve(batch.id)
    errors = results(client, batch.error_file_id)
    rows = results(client, batch.output_file_id)
    statuses = Counter(row["response"]["status_code"] for row in errors)
    assert set(statuses) == {429, 500}
    assert 8 <= len(errors) <= 36
    assert 2 <= 1_000 - len(rows) - len(errors) <= 22
    _, rows, errors = run(client, control, chat_lines(1_000))
    assert (len(rows), errors) == (1_000, [])
