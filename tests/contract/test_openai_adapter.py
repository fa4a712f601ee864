"""Both halves of the OpenAI provider against the simulator: from prompts to parsed answers, on bad days too."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from infra.local.simulator.client import SimulatorControl
from infra.local.simulator.server import SimulatorServer
from tallybatch.adapters.providers.openai import OpenAIApi, OpenAIFormat
from tallybatch.adapters.providers.openai.requests import CHAT, EMBEDDINGS, RESPONSES
from tallybatch.domain.billing import tokens_of
from tallybatch.domain.errors import CreateUnknown, ProviderUnavailable, QuotaRefused, ResultsGone
from tallybatch.domain.lines import newline_split
from tallybatch.domain.outcomes import OutcomeClass, RecordResult
from tallybatch.domain.tally import total_usage
from tallybatch.ports import ProviderApi, ProviderFormat, ProviderJob, ProviderState
from tests.support.simulated import GENRE_SCHEMA

MODEL = "gpt-5-mini-2025-08-07"
KEY = "5ub" * 20
CREATES = "calls: [{on: create, fault: %s}]"


@pytest.fixture
def api(simulator: SimulatorServer, control: SimulatorControl) -> Iterator[OpenAIApi]:
    api = OpenAIApi(
        lambda: "test-key", base_url=simulator.openai_base_url, max_retries=0, sleep=lambda s: void(control.advance(s))
    )
    yield api
    api.close()


def void(_: float) -> None:
    """The virtual clock stands in for sleeping."""


def lines(form: ProviderFormat, count: int, *, system: str = "You label films.") -> list[bytes]:
    return [form.request_line(f"{number:032x}", system=system, user=f"Title: Film {number}") for number in range(count)]


def submit(api: ProviderApi, requests: list[bytes], *, endpoint: str = RESPONSES, key: str = KEY) -> ProviderJob:
    file_id = api.upload(f"{key}.jsonl", io.BytesIO(b"\n".join(requests) + b"\n"), uri="")
    return api.create(submission_key=key, file_id=file_id, endpoint=endpoint, model=MODEL, output_uri="")


def collect(api: ProviderApi, form: ProviderFormat, job: ProviderJob) -> tuple[list[RecordResult], int]:
    """Every line of every channel that reads, and how many do not."""
    results, unreadable = [], 0
    for channel in job.channels.values():
        for line in newline_split(api.download(channel)):
            try:
                results.append(form.parse(line))
            except ValueError:
                unreadable += bool(line.strip())
    return results, unreadable


def scenario(control: SimulatorControl, text: str) -> None:
    control.set_scenario_text(f"name: test\n{text}")


@pytest.mark.parametrize(
    ("endpoint", "system"), [(RESPONSES, "You label films."), (CHAT, "You label films."), (EMBEDDINGS, "")]
)
def test_given_a_calm_day_when_a_job_runs_then_each_record_has_one_answer_and_the_bill_agrees(
    api: OpenAIApi, control: SimulatorControl, endpoint: str, system: str
) -> None:
    schema = None if endpoint == EMBEDDINGS else GENRE_SCHEMA
    form = OpenAIFormat(MODEL, endpoint, {}, schema)
    job = submit(api, lines(form, 40, system=system), endpoint=endpoint)
    assert (job.state, job.marker) == (ProviderState.SUBMITTED, KEY)
    control.advance(60)
    job = api.get(job.id)
    assert (job.state, job.counts) == (ProviderState.DONE, {"total": 40, "completed": 40, "failed": 0})
    results, unreadable = collect(api, form, job)
    assert (Counter(result.outcome for result in results), unreadable) == ({OutcomeClass.SUCCEEDED: 40}, 0)
    assert {result.record_id for result in results} == {f"{number:032x}" for number in range(40)}
    assert {result.model_version for result in results} == {MODEL}
    for result in results:
        answer = json.loads(result.answer or "")
        assert isinstance(answer, list if endpoint == EMBEDDINGS else dict)
    assert tokens_of(total_usage([result.usage for result in results])) == control.journal()["tokens_billed"]


@pytest.mark.parametrize("fault", ["lost_reply", "reply_500_after", "cut_body"])
def test_given_the_job_exists_and_its_reply_is_lost_when_created_then_one_create_unknown_and_found(
    api: OpenAIApi, control: SimulatorControl, fault: str
) -> None:
    scenario(control, CREATES % fault)
    requests = lines(OpenAIFormat(MODEL), 3)
    before = control.health()["time"]
    with pytest.raises(CreateUnknown):
        submit(api, requests)
    assert control.journal()["jobs_per_marker"] == {KEY: 1}
    found = api.find(KEY, since=before)
    assert (len(found.jobs), found.complete) == (1, True)
    assert found.jobs[0].marker == KEY


def test_given_the_connection_drops_before_anything_is_done_when_created_then_unknown_and_proven_absent(
    api: OpenAIApi, control: SimulatorControl
) -> None:
    scenario(control, CREATES % "drop_before")
    with pytest.raises(CreateUnknown):
        submit(api, lines(OpenAIFormat(MODEL), 3))
    found = api.find(KEY, since=control.health()["time"])
    assert (found.jobs, found.complete) == ((), True)


def test_given_a_quota_refusal_when_created_then_the_wait_and_no_job(api: OpenAIApi, control: SimulatorControl) -> None:
    scenario(control, 'calls: [{on: create, fault: "status:429", retry_after_s: 600}]')
    with pytest.raises(QuotaRefused) as refused:
        submit(api, lines(OpenAIFormat(MODEL), 3))
    assert refused.value.retry_after_s == 600
    assert control.journal()["jobs_per_marker"] == {}


def test_given_more_jobs_than_a_page_holds_when_searched_then_found_on_the_last(
    api: OpenAIApi, control: SimulatorControl
) -> None:
    file_id = api.upload("x.jsonl", io.BytesIO(lines(OpenAIFormat(MODEL), 1)[0]))
    since = control.health()["time"]
    for number in range(130):
        api.create(submission_key=f"key-{number}", file_id=file_id, endpoint=RESPONSES)
    found = api.find("key-0", since=since)
    assert ([job.marker for job in found.jobs], found.jobs_seen, found.pages) == (["key-0"], 130, 2)


def test_given_an_empty_page_when_searched_then_the_walk_goes_on(api: OpenAIApi, control: SimulatorControl) -> None:
    since = control.health()["time"]
    submit(api, lines(OpenAIFormat(MODEL), 1))
    scenario(control, "calls: [{on: list, fault: empty_page}]")
    found = api.find(KEY, since=since)
    assert (len(found.jobs), found.complete) == (1, True)


def test_given_a_quota_of_enqueued_tokens_when_validated_then_failed_for_quota(
    api: OpenAIApi, control: SimulatorControl
) -> None:
    scenario(control, 'quota: {enqueued_tokens: {"*": 1}}')
    job = submit(api, lines(OpenAIFormat(MODEL), 5))
    control.advance(60)
    job = api.get(job.id)
    assert (job.state, job.quota_refused, job.channels) == (ProviderState.FAILED, True, {})


def test_given_a_file_that_fails_validation_when_read_then_the_line_is_named(
    api: OpenAIApi, control: SimulatorControl
) -> None:
    first, *_ = lines(OpenAIFormat(MODEL), 1)
    job = submit(api, [first, first])
    control.advance(60)
    job = api.get(job.id)
    assert (job.state, job.quota_refused) == (ProviderState.FAILED, False)
    assert [(error.code, error.line) for error in job.errors] == [("duplicate_custom_id", 2)]


@pytest.mark.parametrize(
    ("rule", "state", "rest"),
    [
        ("{fault: expire, done: 0.5}", ProviderState.EXPIRED, OutcomeClass.EXPIRED),
        ("{fault: cancel, done: 0.5}", ProviderState.CANCELLED, OutcomeClass.CANCELLED),
    ],
)
def test_given_a_job_that_ends_early_when_collected_then_what_is_paid_is_kept(
    api: OpenAIApi, control: SimulatorControl, rule: str, state: ProviderState, rest: OutcomeClass
) -> None:
    scenario(control, f"cancelled_rows: error_line\njobs: [{rule}]")
    form = OpenAIFormat(MODEL)
    job = submit(api, lines(form, 20))
    control.advance(90_000)
    job = api.get(job.id)
    results, _ = collect(api, form, job)
    assert job.state is state
    assert Counter(result.outcome for result in results) == {OutcomeClass.SUCCEEDED: 10, rest: 10}


def test_given_a_running_job_when_cancelled_then_it_ends_cancelled_and_a_second_cancel_changes_nothing(
    api: OpenAIApi, control: SimulatorControl
) -> None:
    job = submit(api, lines(OpenAIFormat(MODEL), 5))
    control.advance(1)
    assert api.cancel(job.id).state is ProviderState.CANCELLING
    control.advance(60)
    assert api.cancel(job.id).state is ProviderState.CANCELLED


def test_given_a_job_that_vanishes_when_read_then_gone(api: OpenAIApi, control: SimulatorControl) -> None:
    scenario(control, "jobs: [{fault: vanish}]")
    job = submit(api, lines(OpenAIFormat(MODEL), 2))
    control.advance(60)
    assert api.get(job.id).state is ProviderState.GONE


def test_given_a_state_nobody_knows_when_read_then_unknown_and_not_terminal(
    api: OpenAIApi, control: SimulatorControl
) -> None:
    scenario(control, "jobs: [{fault: unknown_state}]")
    job = submit(api, lines(OpenAIFormat(MODEL), 2))
    seen = set()
    for _ in range(40):
        control.advance(0.1)
        seen.add(api.get(job.id).state)
    assert ProviderState.UNKNOWN in seen


FAULTS = {
    "error_400": OutcomeClass.PERMANENT,
    "error_429": OutcomeClass.RETRYABLE,
    "error_500": OutcomeClass.RETRYABLE,
    "error_503": OutcomeClass.RETRYABLE,
    "error_in_body": OutcomeClass.RETRYABLE,
    "refusal": OutcomeClass.REFUSED,
    "length": OutcomeClass.TRUNCATED,
    "content_filter": OutcomeClass.REFUSED,
    "status_zero": OutcomeClass.RETRYABLE,
    "null_response": OutcomeClass.RETRYABLE,
    "body_as_string": OutcomeClass.SUCCEEDED,
    "no_error_key": OutcomeClass.SUCCEEDED,
    "u2028": OutcomeClass.SUCCEEDED,
    "crlf": OutcomeClass.SUCCEEDED,
    "blank_lines": OutcomeClass.SUCCEEDED,
    "bom": OutcomeClass.SUCCEEDED,
    "bad_json": OutcomeClass.SUCCEEDED,
}


@pytest.mark.parametrize("endpoint", [RESPONSES, CHAT])
@pytest.mark.parametrize(("fault", "outcome"), FAULTS.items())
def test_given_a_fault_on_every_record_when_collected_then_its_class(
    api: OpenAIApi, control: SimulatorControl, endpoint: str, fault: str, outcome: OutcomeClass
) -> None:
    scenario(control, f"records: [{{fault: {fault}}}]")
    form = OpenAIFormat(MODEL, endpoint, {}, GENRE_SCHEMA)
    job = submit(api, lines(form, 4), endpoint=endpoint)
    control.advance(60)
    results, unreadable = collect(api, form, api.get(job.id))
    assert (Counter(result.outcome for result in results), unreadable) == ({outcome: 4}, 0)


@pytest.mark.parametrize(("fault", "unreadable"), [("garbage_line", 4), ("truncated_last_line", 1), ("missing", 0)])
def test_given_lines_that_hold_no_record_when_collected_then_they_are_counted_and_nothing_is_made_up(
    api: OpenAIApi, control: SimulatorControl, fault: str, unreadable: int
) -> None:
    scenario(control, f"records: [{{fault: {fault}}}]")
    form = OpenAIFormat(MODEL)
    job = submit(api, lines(form, 4))
    control.advance(60)
    results, counted = collect(api, form, api.get(job.id))
    assert counted == unreadable
    assert len(results) <= 4


def test_given_a_download_that_is_cut_when_collected_then_it_goes_on(api: OpenAIApi, control: SimulatorControl) -> None:
    form = OpenAIFormat(MODEL)
    job = submit(api, lines(form, 50))
    control.advance(60)
    job = api.get(job.id)
    whole = b"".join(api.download(job.channels["output"]))
    scenario(control, "calls: [{on: content, fault: cut_body, count: 2}]")
    assert b"".join(api.download(job.channels["output"])) == whole
    assert whole.count(b"\n") == 50


def test_given_results_not_readable_yet_when_collected_then_they_are_waited_for(
    api: OpenAIApi, control: SimulatorControl
) -> None:
    scenario(control, 'jobs: [{fault: "content_404_for_s:3"}]')
    form = OpenAIFormat(MODEL)
    job = submit(api, lines(form, 5))
    for _ in range(40):
        control.advance(0.1)
        job = api.get(job.id)
        if job.state is ProviderState.DONE:
            break
    results, _ = collect(api, form, job)
    assert len(results) == 5


def test_given_results_that_are_gone_when_collected_then_gone_or_unavailable_but_never_empty(
    api: OpenAIApi, control: SimulatorControl
) -> None:
    scenario(control, "jobs: [{fault: results_gone}]")
    job = submit(api, lines(OpenAIFormat(MODEL), 5))
    control.advance(60)
    job = api.get(job.id)
    with pytest.raises((ResultsGone, ProviderUnavailable)):
        b"".join(api.download(job.channels["output"]))


def test_given_a_job_is_done_when_its_files_are_deleted_then_they_are_gone(
    api: OpenAIApi, control: SimulatorControl
) -> None:
    job = submit(api, lines(OpenAIFormat(MODEL), 2))
    control.advance(60)
    output = api.get(job.id).channels["output"]
    assert api.delete_file(output)
    assert not api.delete_file(output)
    with pytest.raises(ResultsGone):
        b"".join(api.download(output))
