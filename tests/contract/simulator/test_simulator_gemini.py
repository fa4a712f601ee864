"""The simulator's Gemini half, seen by the official SDK: files, batches, embeddings, lists, errors."""

from __future__ import annotations

import io
import json
import urllib.request
import warnings
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from google import genai
from google.genai import errors

from infra.local.simulator.client import SimulatorControl
from infra.local.simulator.server import SimulatorServer
from tests.support import gemini
from tests.support.gemini import answer_of, film_lines, line, request, rows, run, start, upload
from tests.support.simulated import GENRE_SCHEMA, scenario


@pytest.fixture(scope="module")
def _gemini(simulator: SimulatorServer) -> Iterator[genai.Client]:
    client = gemini.sdk(simulator.gemini_base_url)
    yield client
    client.close()


@pytest.fixture
def client(_gemini: genai.Client, control: SimulatorControl) -> genai.Client:
    return _gemini


def raw(simulator: SimulatorServer, path: str) -> Any:
    """What the wire holds, where the SDK drops fields."""
    call = urllib.request.Request(simulator.gemini_base_url + path, headers={"x-goog-api-key": "test-key"})  # noqa: S310
    with urllib.request.urlopen(call, timeout=10) as reply:  # noqa: S310
        return json.load(reply)


def test_given_a_file_of_requests_when_run_then_each_key_has_one_answer_in_the_asked_schema_and_the_bill_agrees(
    client: genai.Client, control: SimulatorControl, simulator: SimulatorServer
) -> None:
    job, answers = run(client, control, film_lines(60))
    assert (job.state.name if job.state else "", job.display_name) == ("JOB_STATE_SUCCEEDED", "job")
    assert {row["key"] for row in answers} == {f"row-{number:04}" for number in range(60)}
    validator = jsonschema_rs.validator_for(GENRE_SCHEMA)
    assert all(validator.is_valid(answer_of(row)) for row in answers)
    usage = [row["response"]["usageMetadata"] for row in answers]
    told = {
        "input": sum(row["promptTokenCount"] for row in usage),
        "output": sum(row["candidatesTokenCount"] + row["thoughtsTokenCount"] for row in usage),
        "reasoning": sum(row["thoughtsTokenCount"] for row in usage),
        "cached_input": 0,
    }
    assert told == control.journal()["tokens_billed"]
    assert control.journal()["jobs_per_marker"] == {"job": 1}


def test_given_results_when_read_then_order_of_rows_and_of_their_keys_says_nothing(
    client: genai.Client, control: SimulatorControl
) -> None:
    _, answers = run(client, control, film_lines(60))
    keys = [row["key"] for row in answers]
    assert keys != sorted(keys)
    assert {tuple(row) for row in answers} == {("key", "response"), ("response", "key")}


def test_given_a_job_on_its_way_when_asked_then_int64_are_texts_and_zeros_are_left_out(
    client: genai.Client, control: SimulatorControl, simulator: SimulatorServer
) -> None:
    name = start(client, film_lines(40))
    operation = raw(simulator, f"/v1beta/{name}")
    assert operation["metadata"]["state"] == "BATCH_STATE_PENDING"
    assert "done" not in operation
    control.advance(1.25)
    stats = raw(simulator, f"/v1beta/{name}")["metadata"]["batchStats"]
    assert stats == {"requestCount": "40", "successfulRequestCount": "20", "pendingRequestCount": "20"}
    control.advance(60)
    operation = raw(simulator, f"/v1/{name}")
    assert operation["metadata"]["batchStats"] == {"requestCount": "40", "successfulRequestCount": "40"}
    assert operation["done"] is True
    assert operation["response"]["responsesFile"] == operation["metadata"]["output"]["responsesFile"]


@pytest.mark.parametrize("version", ["v1", "v1beta", "v1alpha"])
def test_given_each_api_version_when_used_then_uploads_and_both_download_paths_work(
    simulator: SimulatorServer, control: SimulatorControl, version: str
) -> None:
    client = gemini.sdk(simulator.gemini_base_url, api_version=version)
    job, answers = run(client, control, film_lines(2))
    assert len(answers) == 2
    assert job.dest is not None
    for path in (f"/download/{version}/{job.dest.file_name}:download", f"/{version}/{job.dest.file_name}:download"):
        call = urllib.request.Request(  # noqa: S310
            f"{simulator.gemini_base_url}{path}?alt=media", headers={"x-goog-api-key": "k", "range": "bytes=5-"}
        )
        with urllib.request.urlopen(call, timeout=10) as reply:  # noqa: S310
            assert reply.status == 206
            assert reply.read() == gemini.raw(client, job)[5:]
    client.close()


def test_given_a_large_file_when_uploaded_in_parts_then_it_arrives_whole(
    client: genai.Client, control: SimulatorControl
) -> None:
    body = b"x" * (8 * 1024 * 1024 + 17)
    file = client.files.upload(file=io.BytesIO(body), config={"mime_type": "text/plain"})
    assert file.size_bytes == len(body)
    assert control.journal()["uploads"][-1]["bytes"] == len(body)
    assert [listed.name for listed in client.files.list()] == [file.name]
    client.files.delete(name=file.name or "")
    with pytest.raises(errors.ClientError) as caught:
        client.files.get(name=file.name or "")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


def test_given_a_result_file_when_its_record_is_asked_for_then_its_id_is_too_long(
    client: genai.Client, control: SimulatorControl
) -> None:
    job, _ = run(client, control, film_lines(1))
    assert job.dest is not None
    with pytest.raises(errors.ClientError) as caught:
        client.files.get(name=job.dest.file_name or "")
    assert caught.value.code == 400


def test_given_embeddings_when_run_then_unit_vectors_of_the_asked_length_and_tokens_as_texts(
    client: genai.Client, control: SimulatorControl
) -> None:
    lines = [
        line(f"e-{number}", {"content": {"parts": [{"text": f"Film {number}"}]}, "output_dimensionality": 64})
        for number in range(5)
    ]
    src = upload(client, lines)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        job = client.batches.create_embeddings(
            model="gemini-embedding-001", src={"file_name": src}, config={"display_name": "vectors"}
        )
    control.advance(60)
    found = rows(client, client.batches.get(name=job.name or ""))
    assert {row["key"] for row in found} == {f"e-{number}" for number in range(5)}
    assert {len(row["response"]["embedding"]["values"]) for row in found} == {64}
    assert all(isinstance(row["response"]["tokenCount"], str) for row in found)


def test_given_inline_requests_when_run_then_their_answers_are_in_the_operation_but_not_in_the_list(
    client: genai.Client, control: SimulatorControl, simulator: SimulatorServer
) -> None:
    said = [{"role": "user", "parts": [{"text": "hi"}]}]
    inlined = [{"contents": said, "metadata": {"key": f"i-{number}"}} for number in (1, 2)]
    job = client.batches.create(model=gemini.MODEL, src=inlined)  # type: ignore[arg-type]
    control.advance(60)
    done = client.batches.get(name=job.name or "")
    assert done.dest is not None
    assert {item.metadata["key"] for item in done.dest.inlined_responses or [] if item.metadata} == {"i-1", "i-2"}
    (listed,) = raw(simulator, "/v1beta/batches?pageSize=10")["operations"]
    assert "output" not in listed["metadata"]


def test_given_many_jobs_when_listed_then_every_page_leads_on_newest_first(
    client: genai.Client, control: SimulatorControl, simulator: SimulatorServer
) -> None:
    names = [start(client, film_lines(1), name=f"job-{number}") for number in range(5)]
    assert [job.name for job in client.batches.list(config={"page_size": 2})] == names[::-1]
    scenario(control, gemini={"list_needs_page_size": True})
    assert raw(simulator, "/v1beta/batches") == {}


def test_given_the_same_create_twice_when_sent_then_two_jobs(client: genai.Client, control: SimulatorControl) -> None:
    src = upload(client, film_lines(1))
    for _ in range(2):
        client.batches.create(model=gemini.MODEL, src=src, config={"display_name": "same"})
    assert control.journal()["jobs_per_marker"] == {"same": 2}


def test_given_a_lost_reply_when_created_then_the_job_is_there(client: genai.Client, control: SimulatorControl) -> None:
    scenario(control, calls=[{"on": "create", "fault": "lost_reply"}])
    with pytest.raises(Exception, match="disconnected"):
        start(client, film_lines(1), name="lost")
    assert control.journal()["jobs_per_marker"] == {"lost": 1}


def test_given_a_running_job_when_cancelled_then_what_was_done_is_there(
    client: genai.Client, control: SimulatorControl
) -> None:
    name = start(client, film_lines(40))
    control.advance(1.25)
    client.batches.cancel(name=name)
    assert client.batches.get(name=name).state == "JOB_STATE_RUNNING"
    control.advance(5)
    job = client.batches.get(name=name)
    assert job.state == "JOB_STATE_CANCELLED"
    assert 0 < len(rows(client, job)) < 40
    client.batches.delete(name=name)
    with pytest.raises(errors.ClientError):
        client.batches.get(name=name)


def test_given_a_stuck_job_when_48_hours_have_passed_then_it_expired_without_results_and_bill(
    client: genai.Client, control: SimulatorControl
) -> None:
    scenario(control, jobs=[{"fault": "stuck", "done": 0.5}])
    name = start(client, film_lines(10))
    control.advance(47 * 3600)
    assert client.batches.get(name=name).state == "JOB_STATE_RUNNING"
    control.advance(2 * 3600)
    job = client.batches.get(name=name)
    assert (job.state, job.dest) == ("JOB_STATE_EXPIRED", None)
    assert control.journal()["tokens_billed"]["output"] == 0


def test_given_faults_when_records_run_then_each_has_its_gemini_shape(
    client: genai.Client, control: SimulatorControl
) -> None:
    faults = ["error_400", "error_429", "error_500", "error_503", "refusal", "length", "content_filter", "wrong_model"]
    scenario(control, records=[{"fault": fault, "contains": f"{fault}."} for fault in faults])
    _, found = run(client, control, [line(fault, request(f"{fault}.")) for fault in faults])
    by_key = {row["key"]: row for row in found}
    assert [by_key[fault]["error"]["code"] for fault in faults[:4]] == [3, 8, 13, 14]
    assert by_key["refusal"]["response"]["promptFeedback"] == {"blockReason": "SAFETY"}
    assert "candidates" not in by_key["refusal"]["response"]
    assert by_key["length"]["response"]["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert by_key["content_filter"]["response"]["candidates"] == [{"finishReason": "SAFETY", "index": 0}]
    assert by_key["wrong_model"]["response"]["modelVersion"] != gemini.MODEL


@pytest.mark.parametrize(
    "keys",
    [
        {"gemini": {"concurrent_jobs": 1}},
        {"quota": {"enqueued_tokens": {gemini.MODEL: 12}}},
        {"quota": {"creates_per_hour": 1}},
    ],
    ids=["concurrent jobs", "enqueued tokens", "creates"],
)
def test_given_a_limit_when_exceeded_then_429_and_no_job(
    client: genai.Client, control: SimulatorControl, keys: dict[str, Any]
) -> None:
    scenario(control, **keys)
    start(client, film_lines(1), name="first")
    with pytest.raises(errors.ClientError) as caught:
        start(client, film_lines(3), name="second")
    assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")
    assert control.journal()["jobs_per_marker"] == {"first": 1}


def test_given_a_file_with_a_bad_line_when_run_then_the_job_fails_and_says_where(
    client: genai.Client, control: SimulatorControl, simulator: SimulatorServer
) -> None:
    name = start(client, [*film_lines(1), b'{"key":"x"}'])
    control.advance(60)
    operation = raw(simulator, f"/v1beta/{name}")
    assert operation["metadata"]["state"] == "BATCH_STATE_FAILED"
    assert operation["error"]["code"] == 3
    assert "Line 2" in operation["error"]["message"]


def test_given_uploads_answered_with_an_error_when_sent_then_the_sdk_finds_no_file(
    client: genai.Client, control: SimulatorControl
) -> None:
    scenario(control, gemini={"upload_error_bodies": 1, "mime_types": ["text/plain"]})
    with pytest.raises(errors.ClientError, match="MIME"):
        upload(client, film_lines(1))
    with pytest.raises(KeyError, match="file"):
        upload(client, film_lines(1), mime_type="text/plain")


def test_given_no_key_when_called_then_403(simulator: SimulatorServer, control: SimulatorControl) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{simulator.gemini_base_url}/v1beta/batches", timeout=10)  # noqa: S310
    assert caught.value.code == 403
