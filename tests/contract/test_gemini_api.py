"""Gemini's calls: create is sent once and its failures told apart; the others survive a bad day; nothing leaks."""

from __future__ import annotations

import io
import json
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infra.local.simulator.client import SimulatorControl
from infra.local.simulator.server import SimulatorServer
from tallybatch.adapters.providers.gemini import GeminiApi, GeminiFormat
from tallybatch.adapters.providers.gemini.requests import EMBED, GENERATE
from tallybatch.domain.billing import tokens_of
from tallybatch.domain.errors import (
    CreateUnknown,
    Permanent,
    ProviderRefused,
    ProviderUnavailable,
    QuotaRefused,
    ResultsGone,
)
from tallybatch.domain.lines import newline_split
from tallybatch.domain.outcomes import OutcomeClass, RecordResult
from tallybatch.domain.tally import total_usage
from tallybatch.ports import ProviderApi, ProviderJob, ProviderState
from tests.support.gemini import MODEL
from tests.support.loopback import Loopback, Reply, Request, json_reply, serving, unused_port
from tests.support.simulated import GENRE_SCHEMA, scenario

KEY = "5ub" * 20
SECRET = "AIzaVerySecret0123456789"


@pytest.fixture
def api(simulator: SimulatorServer, control: SimulatorControl) -> Iterator[GeminiApi]:
    api = GeminiApi(
        lambda: SECRET, base_url=simulator.gemini_base_url, max_retries=0, sleep=lambda s: void(control.advance(s))
    )
    yield api
    api.close()


def void(_: float) -> None:
    """The virtual clock stands in for sleeping."""


def at(server: Loopback, **settings: Any) -> GeminiApi:
    return GeminiApi(lambda: SECRET, base_url=server.url, sleep=lambda _: None, **settings)


def lines(form: GeminiFormat, count: int) -> bytes:
    system = "" if form.endpoint == EMBED else "You label films."
    made = (form.request_line(f"{n:032x}", system=system, user=f"Title: Film {n}") for n in range(count))
    return b"".join(line + b"\n" for line in made)


def create(api: ProviderApi, file_id: str = "files/1", endpoint: str = GENERATE) -> ProviderJob:
    return api.create(submission_key=KEY, file_id=file_id, endpoint=endpoint, model=MODEL, output_uri="")


def submit(api: GeminiApi, count: int = 20, *, endpoint: str = GENERATE) -> ProviderJob:
    form = GeminiFormat(MODEL, endpoint)
    return create(api, api.upload(f"{KEY}.jsonl", io.BytesIO(lines(form, count)), uri=""), endpoint)


def collect(api: GeminiApi, job: ProviderJob) -> list[RecordResult]:
    parse = GeminiFormat(MODEL).parse
    return [parse(line) for channel in job.channels.values() for line in newline_split(api.download(channel))]


def batch(number: int = 1, **metadata: Any) -> dict[str, Any]:
    name = f"batches/b{number}"
    about = {"displayName": KEY, "state": "BATCH_STATE_PENDING", "createTime": "2026-11-29T10:00:00.123456Z"}
    return {"name": name, "metadata": {**about, "name": name, **metadata}}


def error(code: int, status: str, message: str = "no", **more: Any) -> Reply:
    return json_reply({"error": {"code": code, "message": message, "status": status, **more}}, code)


@pytest.mark.parametrize("endpoint", [GENERATE, EMBED])
def test_given_a_calm_day_when_a_job_runs_then_each_record_has_one_answer_and_the_bill_agrees(
    api: GeminiApi, control: SimulatorControl, endpoint: str
) -> None:
    job = submit(api, 40, endpoint=endpoint)
    assert (job.state, job.marker) == (ProviderState.SUBMITTED, KEY)
    control.advance(1.25)
    running = api.get(job.id)
    assert (running.state, running.counts) == (ProviderState.RUNNING, {"total": 40, "completed": 20, "failed": 0})
    control.advance(60)
    job = api.get(job.id)
    assert (job.state, job.counts) == (ProviderState.DONE, {"total": 40, "completed": 40, "failed": 0})
    results = collect(api, job)
    outcomes = {result.record_id: result.outcome for result in results}
    assert (len(results), outcomes) == (40, dict.fromkeys((f"{n:032x}" for n in range(40)), OutcomeClass.SUCCEEDED))
    assert tokens_of(total_usage([result.usage for result in results])) == control.journal()["tokens_billed"]


def test_given_a_server_that_answers_when_created_then_one_call_with_the_marker_and_the_key_in_a_header() -> None:
    with serving(lambda _: json_reply(batch())) as server:
        job = create(at(server))
    assert (job.id, job.state, job.marker) == ("batches/b1", ProviderState.SUBMITTED, KEY)
    assert job.created_at == 1_795_946_400.123456
    (sent,) = server.journal
    assert (sent.method, sent.path) == ("POST", f"/v1beta/models/{MODEL}:batchGenerateContent")
    assert sent.headers["x-goog-api-key"] == SECRET
    assert json.loads(sent.body) == {"batch": {"displayName": KEY, "inputConfig": {"fileName": "files/1"}}}


@pytest.mark.parametrize("fault", ["lost_reply", "reply_500_after", "cut_body"])
def test_given_the_job_exists_and_its_reply_is_lost_when_created_then_unknown_once_and_found(
    api: GeminiApi, control: SimulatorControl, fault: str
) -> None:
    scenario(control, calls=[{"on": "create", "fault": fault}])
    with pytest.raises(CreateUnknown):
        submit(api)
    assert control.journal()["jobs_per_marker"] == {KEY: 1}
    found = api.find(KEY, since=0)
    assert ([job.marker for job in found.jobs], found.complete) == ([KEY], True)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (error(400, "INVALID_ARGUMENT"), ProviderRefused),
        (error(401, "UNAUTHENTICATED"), ProviderRefused),
        (error(403, "PERMISSION_DENIED"), ProviderRefused),
        (error(404, "NOT_FOUND"), ProviderRefused),
        (error(429, "RESOURCE_EXHAUSTED"), QuotaRefused),
        (error(408, "DEADLINE_EXCEEDED"), CreateUnknown),
        (error(409, "ABORTED"), CreateUnknown),
        (error(500, "INTERNAL"), CreateUnknown),
        (error(503, "UNAVAILABLE"), CreateUnknown),
        (Reply(302, headers={"location": "/elsewhere"}), CreateUnknown),
        (Reply(200, b"<html>"), CreateUnknown),
        (json_reply({}), CreateUnknown),
        (json_reply({"error": {"code": 13}}), CreateUnknown),
        (json_reply(batch(displayName="another")), CreateUnknown),
        (Reply(drop=True), CreateUnknown),
        (Reply(200, json.dumps(batch()).encode(), cut_after=20), CreateUnknown),
    ],
)
def test_given_a_reply_to_create_when_it_is_no_job_then_one_call_and_the_right_error(
    reply: Reply, kind: type[Exception]
) -> None:
    with serving(lambda _: reply) as server, pytest.raises(kind) as caught:
        create(at(server))
    assert len(server.journal) == 1
    told = "".join(traceback.format_exception(caught.value))
    assert SECRET not in told


@pytest.mark.parametrize(
    ("reply", "account"),
    [
        (error(400, "INVALID_ARGUMENT"), False),
        (error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), True),
        (error(400, "FAILED_PRECONDITION"), True),
        (error(401, "UNAUTHENTICATED"), True),
        (error(403, "PERMISSION_DENIED"), True),
        (error(404, "NOT_FOUND"), False),
    ],
)
def test_given_a_refused_create_when_judged_then_the_account_is_told_from_the_request(
    reply: Reply, account: bool
) -> None:
    with serving(lambda _: reply) as server, pytest.raises(ProviderRefused) as caught:
        create(at(server))
    assert caught.value.account == account


def test_given_a_slow_server_when_created_then_unknown() -> None:
    def slow(_: Request) -> Reply:
        import time

        time.sleep(0.5)
        return json_reply(batch())

    with serving(slow) as server, pytest.raises(CreateUnknown):
        create(at(server, create_timeout_s=0.1))


def test_given_nobody_listens_when_created_then_it_was_provably_never_sent() -> None:
    api = GeminiApi(lambda: SECRET, base_url=f"http://127.0.0.1:{unused_port()}")
    with pytest.raises(ProviderUnavailable):
        create(api)


@pytest.mark.parametrize(
    "reply",
    [
        error(429, "RESOURCE_EXHAUSTED", details=[{"@type": "google.rpc.RetryInfo", "retryDelay": "37s"}]),
        json_reply({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "no"}}, 429, retry_after="37"),
    ],
)
def test_given_advice_how_long_to_wait_when_quota_is_refused_then_it_is_passed_on(reply: Reply) -> None:
    with serving(lambda _: reply) as server, pytest.raises(QuotaRefused) as caught:
        create(at(server))
    assert caught.value.retry_after_s == 37


def test_given_an_empty_key_when_called_then_a_permanent_error_and_no_call() -> None:
    with serving(lambda _: json_reply(batch())) as server, pytest.raises(Permanent, match="empty"):
        create(GeminiApi(lambda: " ", base_url=server.url))
    assert server.journal == []


def test_given_mime_types_that_are_refused_when_uploaded_then_the_next_is_tried_and_remembered(
    api: GeminiApi, control: SimulatorControl
) -> None:
    scenario(control, gemini={"mime_types": ["text/plain"]})
    for _ in range(2):
        assert api.upload("a.jsonl", io.BytesIO(b"{}\n"), uri="").startswith("files/")
    assert control.journal()["calls"]["gemini.upload"] == 5


def test_given_a_body_that_cannot_seek_when_uploaded_then_it_arrives_whole(
    api: GeminiApi, control: SimulatorControl
) -> None:
    class Stream(io.RawIOBase):
        def __init__(self) -> None:
            self._rest = io.BytesIO(b"x" * 100_000)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            return self._rest.readinto(buffer)

    api.upload("a.jsonl", Stream(), uri="")  # type: ignore[arg-type]
    assert [entry["bytes"] for entry in control.journal()["uploads"]] == [100_000]


def test_given_uploads_answered_with_200_and_an_error_when_sent_then_it_is_a_failure(
    api: GeminiApi, control: SimulatorControl
) -> None:
    scenario(control, gemini={"upload_error_bodies": 10})
    with pytest.raises(ProviderUnavailable, match="did not take the file"):
        api.upload("a.jsonl", io.BytesIO(b"{}\n"), uri="")


def test_given_an_upload_that_is_refused_when_sent_then_nothing_of_the_reply_leaks() -> None:
    leak = f"bad key {SECRET}"
    with serving(lambda _: error(403, "PERMISSION_DENIED", leak)) as server, pytest.raises(ProviderRefused) as caught:
        at(server).upload("a.jsonl", io.BytesIO(b"{}\n"), uri="")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("metadata", "more", "state"),
    [
        ({"state": "JOB_STATE_SUCCEEDED"}, {}, ProviderState.DONE),
        ({"state": "BATCH_STATE_EXPIRED"}, {"done": True}, ProviderState.EXPIRED),
        ({"state": "BATCH_STATE_CANCELLED"}, {"done": True}, ProviderState.CANCELLED),
        ({"state": "BATCH_STATE_DREAMING"}, {}, ProviderState.UNKNOWN),
        ({"state": ""}, {}, ProviderState.UNKNOWN),
        ({"state": ""}, {"done": True, "error": {"code": 13}}, ProviderState.FAILED),
        ({"state": ""}, {"done": True, "response": {"responsesFile": "files/x"}}, ProviderState.DONE),
    ],
)
def test_given_a_state_in_either_spelling_when_read_then_normalised(
    metadata: dict[str, Any], more: dict[str, Any], state: ProviderState
) -> None:
    with serving(lambda _: json_reply({**batch(**metadata), **more})) as server:
        assert at(server).get("batches/b1").state is state


@pytest.mark.parametrize("place", ["metadata", "response"])
def test_given_the_output_in_either_place_when_read_then_its_channel(place: str) -> None:
    output = {"responsesFile": "files/batch-9"}
    shown = batch(state="BATCH_STATE_SUCCEEDED")
    if place == "response":
        shown["response"] = output
    else:
        shown["metadata"]["output"] = output
    with serving(lambda _: json_reply(shown)) as server:
        assert at(server).get("batches/b1").channels == {"output": "files/batch-9"}


@pytest.mark.parametrize(
    ("code", "quota", "failure"),
    [(3, False, OutcomeClass.PERMANENT), (8, True, None), (9, False, OutcomeClass.RETRYABLE), (13, False, None)],
)
def test_given_a_failed_job_when_read_then_its_reason_decides(
    code: int, quota: bool, failure: OutcomeClass | None
) -> None:
    shown = {**batch(state="BATCH_STATE_FAILED"), "done": True, "error": {"code": code, "message": f"key {SECRET}"}}
    with serving(lambda _: json_reply(shown)) as server:
        job = at(server).get("batches/b1")
    assert (job.quota_refused, job.failure) == (quota, failure)
    assert SECRET not in job.errors[0].message


def test_given_a_quota_failure_after_rows_ran_when_read_then_it_is_no_refusal() -> None:
    stats = {"requestCount": "5", "successfulRequestCount": "2"}
    shown = {**batch(state="BATCH_STATE_FAILED", batchStats=stats), "done": True, "error": {"code": 8}}
    with serving(lambda _: json_reply(shown)) as server:
        job = at(server).get("batches/b1")
    assert (job.quota_refused, job.counts) == (False, {"total": 5, "completed": 2, "failed": 0})


def answers(*replies: Reply) -> Callable[[Request], Reply]:
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def test_given_404_three_times_when_read_then_gone_and_after_one_not() -> None:
    missing = error(404, "NOT_FOUND")
    with serving(answers(missing)) as server:
        assert at(server).get("batches/b1").state is ProviderState.GONE
    assert len(server.journal) == 3
    with serving(answers(missing, json_reply(batch()))) as server:
        assert at(server).get("batches/b1").state is ProviderState.SUBMITTED


@pytest.mark.parametrize(
    "reply", [Reply(404, b"<html>"), error(503, "UNAVAILABLE"), Reply(200, b"[]"), Reply(drop=True)]
)
def test_given_an_answer_that_tells_nothing_when_read_then_unavailable(reply: Reply) -> None:
    with serving(lambda _: reply) as server, pytest.raises(ProviderUnavailable):
        at(server).get("batches/b1")


def test_given_a_passing_fault_when_read_then_repeated() -> None:
    with serving(answers(error(503, "UNAVAILABLE"), Reply(drop=True), json_reply(batch()))) as server:
        assert at(server).get("batches/b1").id == "batches/b1"


def test_given_many_jobs_when_looked_for_then_all_pages_with_their_size_are_walked(
    api: GeminiApi, control: SimulatorControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallybatch.adapters.providers.gemini.api.PAGE_SIZE", 2)
    scenario(control, gemini={"list_needs_page_size": True})
    for _ in range(5):
        submit(api, 1)
    found = api.find(KEY, since=0)
    assert (len(found.jobs), found.jobs_seen, found.pages, found.complete) == (5, 5, 3, True)
    assert api.find("absent", since=0).jobs == ()


def test_given_a_running_job_when_cancelled_then_it_ends_with_what_it_had(
    api: GeminiApi, control: SimulatorControl
) -> None:
    job = submit(api, 40)
    control.advance(1.25)
    assert api.cancel(job.id).state is ProviderState.RUNNING
    control.advance(5)
    ended = api.cancel(job.id)
    assert ended.state is ProviderState.CANCELLED
    assert 0 < len(collect(api, ended)) < 40
    assert api.delete_job(job.id)
    assert not api.delete_job(job.id)


@pytest.mark.parametrize("fault", ["cut_body", "status:503", "status:404", "drop_before"])
def test_given_a_download_that_breaks_when_read_then_whole_all_the_same(
    api: GeminiApi, control: SimulatorControl, fault: str
) -> None:
    scenario(control, calls=[{"on": "content", "fault": fault}])
    job = submit(api, 40)
    control.advance(60)
    assert len(collect(api, api.get(job.id))) == 40


def test_given_results_that_are_not_readable_yet_when_read_then_waited_for_and_when_gone_then_said_so(
    api: GeminiApi, control: SimulatorControl
) -> None:
    scenario(control, jobs=[{"fault": "content_404_for_s:3"}, {"nth": 2, "fault": "results_gone"}])
    late, gone = submit(api, 5), submit(api, 5)
    control.advance(2.3)
    assert len(collect(api, api.get(late.id))) == 5
    with pytest.raises(ResultsGone):
        collect(api, api.get(gone.id))


def test_given_files_when_deleted_then_true_once(api: GeminiApi, control: SimulatorControl) -> None:
    file_id = api.upload("a.jsonl", io.BytesIO(b"{}\n"), uri="")
    assert (api.delete_file(file_id), api.delete_file(file_id)) == (True, False)


def test_given_a_job_that_has_ended_when_its_results_are_deleted_then_the_job_goes_with_them(
    api: GeminiApi, control: SimulatorControl
) -> None:
    started = submit(api, 3)
    assert api.result_files(api.get(started.id)) == {}
    control.advance(60)
    (named,) = api.result_files(api.get(started.id)).values()
    assert (api.delete_file(named), api.delete_file(named)) == (True, False)
    assert api.result_files(api.get(started.id)) == {"job": started.id}


def test_given_an_answer_in_a_schema_when_collected_then_it_is_json(api: GeminiApi, control: SimulatorControl) -> None:
    form = GeminiFormat(MODEL, GENERATE, {}, GENRE_SCHEMA)
    job = create(api, api.upload("a.jsonl", io.BytesIO(lines(form, 3)), uri=""))
    control.advance(60)
    assert all(set(json.loads(row.answer or "")) == {"genre", "confidence"} for row in collect(api, api.get(job.id)))
