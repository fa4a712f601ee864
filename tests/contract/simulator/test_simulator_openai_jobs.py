"""Faults of calls and of whole jobs, and the control API."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import openai
import pytest

from infra.local.simulator.client import SimulatorControl
from infra.local.simulator.scenario import scenario_names
from infra.local.simulator.server import SimulatorServer
from tallybatch.domain.errors import BadInput, ProviderUnavailable
from tests.support.simulated import (
    CHAT,
    MARKER,
    chat_line,
    chat_lines,
    raw,
    results,
    run,
    scenario,
    start,
    upload,
)

GOOD = chat_line("good", "Title: M")


def test_given_a_lost_reply_when_created_then_exactly_one_batch_exists(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(control, calls=[{"on": "create", "fault": "lost_reply"}])
    with pytest.raises(openai.APIConnectionError):
        start(client, chat_lines(2), metadata={MARKER: "sub-lost"})
    found = [batch for batch in client.batches.list() if (batch.metadata or {}).get(MARKER) == "sub-lost"]
    assert len(found) == 1
    assert control.journal()["jobs_per_marker"] == {"sub-lost": 1}
    control.advance(60)
    assert client.batches.retrieve(found[0].id).status == "completed"


def test_given_a_connection_dropped_before_create_then_no_batch_exists(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(control, calls=[{"on": "create", "fault": "drop_before"}])
    with pytest.raises(openai.APIConnectionError):
        start(client, chat_lines(1))
    assert client.batches.list().data == []


def test_given_a_slow_create_when_the_client_gives_up_then_the_batch_exists_all_the_same(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(control, calls=[{"on": "create", "fault": "delay_s:0.3"}])
    file_id = upload(client, chat_lines(1))
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.1).batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h", metadata={MARKER: "sub-slow"}
        )
    assert client.batches.list().data == []
    time.sleep(0.4)
    assert control.journal()["jobs_per_marker"] == {"sub-slow": 1}


def test_given_a_late_reply_when_the_client_gives_up_then_the_batch_is_there_already(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(control, calls=[{"on": "create", "fault": "late_reply_s:0.6"}])
    file_id = upload(client, chat_lines(1))
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.2).batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h", metadata={MARKER: "sub-late"}
        )
    assert control.journal()["jobs_per_marker"] == {"sub-late": 1}


def test_given_strangers_that_create_while_pages_are_read_when_walked_then_ours_is_on_a_later_page(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    ours = start(client, [GOOD])
    scenario(control, calls=[{"on": "list", "count": "always", "fault": "strangers:120"}])
    first = client.batches.list(limit=100)
    second = client.batches.list(limit=100, after=first.data[-1].id)
    assert ours.id not in {batch.id for batch in first.data}
    assert {batch.id for batch in first.data}.isdisjoint(batch.id for batch in second.data)
    assert [batch.id for batch in second.data][-1] == ours.id
    assert len(control.journal()["creates"]) == 1


def test_given_a_connection_dropped_in_a_large_upload_then_no_file_exists(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(control, calls=[{"on": "upload", "fault": "drop_before"}])
    with pytest.raises(openai.APIConnectionError):
        upload(client, [b"x" * 5_000_000])
    assert client.files.list().data == []


def test_given_500_after_create_when_the_sdk_retries_by_itself_then_three_batches_are_made(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(control, calls=[{"on": "create", "count": "always", "fault": "reply_500_after", "retry_after_s": 0.01}])
    file_id = upload(client, chat_lines(1))
    careless = client.with_options(max_retries=openai.DEFAULT_MAX_RETRIES)
    with pytest.raises(openai.InternalServerError):
        careless.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h", metadata={MARKER: "sub-500"}
        )
    assert control.journal()["jobs_per_marker"] == {"sub-500": 3}


@pytest.mark.parametrize("kind", ["upload", "get", "list", "cancel", "create"])
def test_given_a_status_on_the_nth_call_when_called_then_only_that_call_fails(
    client: openai.OpenAI, control: SimulatorControl, kind: str
) -> None:
    batch = start(client, [GOOD])
    calls: dict[str, Callable[[], object]] = {
        "upload": lambda: upload(client, [GOOD]),
        "get": lambda: client.batches.retrieve(batch.id),
        "list": lambda: client.batches.list(),
        "cancel": lambda: client.batches.cancel(batch.id),
        "create": lambda: client.batches.create(
            input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"
        ),
    }
    scenario(control, calls=[{"on": kind, "nth": 2, "fault": "status:503", "retry_after_s": 600}])
    calls[kind]()
    with pytest.raises(openai.InternalServerError) as refused:
        calls[kind]()
    assert refused.value.status_code == 503
    assert refused.value.response.headers["retry-after"] == "600"
    calls[kind]()


def test_given_a_cut_body_when_downloaded_then_the_client_notices_and_the_next_read_is_whole(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    file_id = upload(client, chat_lines(50))
    scenario(control, calls=[{"on": "content", "fault": "cut_body"}])
    with pytest.raises(openai.APIConnectionError):
        client.files.content(file_id)
    assert client.files.content(file_id).content.count(b"\n") == 50


def test_given_an_empty_page_when_listed_then_it_still_says_that_there_is_more(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    start(client, [GOOD])
    scenario(control, calls=[{"on": "list", "fault": "empty_page"}])
    page = client.batches.list()
    assert (page.data, page.has_more) == ([], True)
    assert len(client.batches.list().data) == 1


def job_fault(control: SimulatorControl, fault: str, **more: Any) -> None:
    scenario(control, jobs=[{"fault": fault, **more}])


def test_given_an_expiry_when_the_job_ends_then_paid_rows_and_unpaid_rows_add_up(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    job_fault(control, "expire", done=0.6)
    batch, rows, errors = run(client, control, chat_lines(100))
    assert batch.status == "expired"
    assert batch.expired_at == batch.expires_at
    assert (len(rows), len(errors)) == (60, 40)
    assert all(row["response"] is None and row["error"]["code"] == "batch_expired" for row in errors)
    assert not {row["custom_id"] for row in rows} & {row["custom_id"] for row in errors}
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (60, 0)
    assert batch.usage is not None
    assert control.journal()["tokens_billed"]["output"] == batch.usage.output_tokens


def test_given_a_stuck_job_when_the_window_ends_then_it_expires(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    job_fault(control, "stuck")
    batch, _, _ = run(client, control, chat_lines(10))
    assert batch.status == "in_progress"
    control.advance(86_400)
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "expired"
    assert len(results(client, batch.output_file_id)) == 5


def test_given_a_cancel_by_the_provider_when_rows_are_left_then_they_are_named_if_asked(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(control, jobs=[{"fault": "cancel", "done": 0.5}], cancelled_rows="error_line")
    batch, rows, errors = run(client, control, chat_lines(10))
    assert batch.status == "cancelled"
    assert len(rows) == 5
    assert Counter(row["error"]["code"] for row in errors) == {"batch_cancelled": 5}


def test_given_a_vanishing_job_when_it_is_asked_for_then_404_for_ever(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    job_fault(control, "vanish")
    batch = start(client, chat_lines(3))
    control.advance(0.6)
    assert client.batches.retrieve(batch.id).status == "in_progress"
    control.advance(60)
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve(batch.id)
    assert client.batches.list().data == []


@pytest.mark.parametrize(
    ("fault", "moments", "expected"),
    [
        ("unknown_state", [0.6, 1.6], ["waiting_for_capacity", "finalizing"]),
        ("backwards", [2.05, 0.15], ["finalizing", "in_progress"]),
    ],
)
def test_given_odd_states_when_polled_then_they_show_and_the_job_still_completes(
    client: openai.OpenAI, control: SimulatorControl, fault: str, moments: list[float], expected: list[str]
) -> None:
    job_fault(control, fault)
    batch = start(client, chat_lines(3))
    seen = []
    for seconds in moments:
        control.advance(seconds)
        seen.append(str(client.batches.retrieve(batch.id).status))
    assert seen == expected
    control.advance(60)
    assert client.batches.retrieve(batch.id).status == "completed"


def test_given_only_an_error_file_when_completed_then_there_is_no_output_file(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    job_fault(control, "only_error_file")
    batch, rows, errors = run(client, control, chat_lines(3))
    assert (batch.status, batch.output_file_id, rows) == ("completed", None, [])
    assert [row["response"]["status_code"] for row in errors] == [500, 500, 500]


def test_given_file_faults_when_completed_then_ids_counts_and_contents_are_off(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    scenario(
        control,
        jobs=[
            {"nth": 1, "fault": "empty_string_ids"},
            {"nth": 1, "fault": "wrong_counts"},
            {"nth": 2, "fault": "results_gone"},
            {"nth": 3, "fault": "content_404_for_s:120"},
        ],
    )
    first, rows, _ = run(client, control, chat_lines(3))
    assert first.error_file_id == ""
    assert first.request_counts is not None
    assert first.request_counts.completed != len(rows)
    gone = start(client, chat_lines(3))
    late = start(client, chat_lines(3))
    control.advance(60)
    for batch in (gone, late):
        with pytest.raises(openai.NotFoundError):
            client.files.content(client.batches.retrieve(batch.id).output_file_id or "none")
    control.advance(120)
    assert len(results(client, client.batches.retrieve(late.id).output_file_id)) == 3


def test_given_an_invisible_job_when_listed_then_it_shows_up_later(
    client: openai.OpenAI, control: SimulatorControl
) -> None:
    job_fault(control, "invisible_in_list_for_s:30")
    batch = start(client, chat_lines(1))
    assert client.batches.list().data == []
    assert client.batches.retrieve(batch.id).id == batch.id
    control.advance(30)
    assert [item.id for item in client.batches.list()] == [batch.id]


def test_given_a_scenario_with_an_unknown_key_when_set_then_the_error_names_file_and_key(
    control: SimulatorControl, tmp_path: Any
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nrecords:\n  - {fault: missing, rat: 0.5}\n")
    with pytest.raises(BadInput) as refused:
        control.set_scenario(path)
    for part in (str(path), "records.0.rat", "unknown key", "did you mean 'rate'"):
        assert part in str(refused.value)
    assert control.health()["scenario"] == "calm"
    path.write_text("name: mine\n")
    control.set_scenario(path)
    assert control.health()["scenario"] == "mine"


def test_given_every_shipped_scenario_when_set_then_it_loads(control: SimulatorControl) -> None:
    assert {"calm", "demo"} < set(scenario_names())
    for name in scenario_names():
        control.set_scenario(name)
        assert control.health()["scenario"] == name


def test_given_a_reset_when_asked_then_nothing_is_left(client: openai.OpenAI, control: SimulatorControl) -> None:
    run(client, control, chat_lines(2))
    control.reset()
    assert client.batches.list().data == []
    assert client.files.list().data == []
    journal = control.journal()
    assert (journal["creates"], journal["batches"], journal["tokens_billed"]["input"]) == ([], {}, 0)


def test_given_a_journal_directory_when_things_happen_then_they_are_appended_as_lines(tmp_path: Any) -> None:
    with SimulatorServer("calm", journal_dir=tmp_path, clock_scale=1_000) as server:
        with openai.OpenAI(api_key="k", base_url=server.openai_base_url, max_retries=0) as client:
            batch = start(client, chat_lines(2), metadata={MARKER: "sub-9", "note": "x"})
            client.batches.retrieve(batch.id)
        server.control.advance(60)
        entries = [json.loads(text) for text in (tmp_path / "openai.jsonl").read_bytes().splitlines()]
        billed = server.control.journal()["tokens_billed"]
    assert [entry["kind"] for entry in entries] == ["uploads", "creates", "bills", "finished"]
    assert entries[1]["metadata"] == {MARKER: "sub-9", "note": "x"}
    assert entries[2]["tokens"] == billed
    with pytest.raises(ProviderUnavailable):
        server.control.health()


@pytest.mark.parametrize("name", scenario_names())
def test_given_a_shipped_scenario_when_a_patient_client_submits_then_the_job_ends_and_ids_add_up(
    client: openai.OpenAI, control: SimulatorControl, name: str
) -> None:
    control.set_scenario(name)
    patient = client.with_options(max_retries=2)
    file_id = upload(patient, chat_lines(400))
    with contextlib.suppress(openai.APIError):
        client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
    control.advance(600)
    (batch,) = patient.batches.list().data
    assert batch.status in ("completed", "expired")
    assert batch.output_file_id
    data = raw(patient, batch.output_file_id) + b"\n" + raw(patient, batch.error_file_id)
    ids = set()
    for text in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        with contextlib.suppress(ValueError):
            ids.add(json.loads(text)["custom_id"])
    submitted = {f"row-{number:04}" for number in range(400)}
    expected_loss = {"demo": 0.03, "dirty-results": 0.02}.get(name, 0)
    assert len(submitted & ids) >= 400 * (1 - expected_loss)
    assert bool(ids - submitted) == (name == "identity")
