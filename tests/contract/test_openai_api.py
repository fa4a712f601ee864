"""The calls that may be repeated: upload, find, get, cancel, delete, against a real HTTP server."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tallybatch.adapters.providers.openai import OpenAIApi
from tallybatch.domain.errors import ProviderRefused, ProviderUnavailable
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.ports import JobError, ProviderState
from tests.support.loopback import Loopback, Reply, Request, error_reply, json_reply, serving

KEY = "5ub" * 20
NOW = 1_795_900_000


def api(server: Loopback, **settings: Any) -> OpenAIApi:
    settings = {"max_retries": 0, "sleep": lambda _: None, **settings}
    return OpenAIApi(lambda: "sk-test", base_url=server.url + "/v1", **settings)


def batch(name: str = "batch_1", *, age_s: float = 0, marker: str = "", **changes: Any) -> dict[str, Any]:
    job = {"id": name, "object": "batch", "status": "in_progress", "created_at": int(NOW - age_s)}
    return {**job, "metadata": {"tallybatch_submission": marker} if marker else None, **changes}


class TestUpload:
    def test_given_a_file_when_uploaded_then_its_bytes_name_and_purpose_arrive(self) -> None:
        body = b'{"custom_id":"a"}\n' * 1000
        with serving(lambda _: json_reply({"id": "file-7", "object": "file"})) as server:
            assert api(server).upload("5ub.jsonl", io.BytesIO(body)) == "file-7"
        (sent,) = server.journal
        assert sent.path == "/v1/files"
        assert body in sent.body
        assert b'filename="5ub.jsonl"' in sent.body
        assert b'name="purpose"\r\n\r\nbatch\r\n' in sent.body

    def test_given_a_passing_fault_when_uploaded_then_the_whole_file_is_sent_again(self) -> None:
        replies = iter([error_reply(500, retry_after_ms="1"), json_reply({"id": "file-7"})])
        with serving(lambda _: next(replies)) as server:
            assert api(server, max_retries=2).upload("x.jsonl", io.BytesIO(b"line\n")) == "file-7"
        assert [b"line\n" in sent.body for sent in server.journal] == [True, True]

    @pytest.mark.parametrize(
        ("reply", "error"),
        [
            (error_reply(500), ProviderUnavailable),
            (error_reply(429), ProviderUnavailable),
            (Reply(drop=True), ProviderUnavailable),
            (Reply(200, b"<html>"), ProviderUnavailable),
            (json_reply({"id": "file-7", "status": "error"}), ProviderUnavailable),
            (error_reply(400), ProviderRefused),
            (error_reply(401), ProviderRefused),
        ],
    )
    def test_given_a_failure_when_uploaded_then_it_is_told_who_must_act(
        self, reply: Reply, error: type[Exception]
    ) -> None:
        with serving(lambda _: reply) as server, pytest.raises(error):
            api(server).upload("x.jsonl", io.BytesIO(b"SECRET"))


def pages(*listed: list[dict[str, Any]], endless: bool = False) -> Iterator[Reply]:
    for number, data in enumerate(listed):
        more = endless or number < len(listed) - 1
        yield json_reply(
            {"object": "list", "data": data, "last_id": data[-1]["id"] if data else None, "has_more": more}
        )


class TestFind:
    def test_given_many_pages_when_searched_then_each_is_walked_by_its_cursor(self) -> None:
        listing = pages([batch("a"), batch("b", marker="other")], [batch("c", marker=KEY)], [batch("d", marker=KEY)])
        with serving(lambda _: next(listing)) as server:
            found = api(server).find(KEY, since=NOW)
        assert ([job.id for job in found.jobs], found.jobs_seen, found.pages, found.complete) == (
            ["c", "d"],
            4,
            3,
            True,
        )
        queries = [parse_qs(urlsplit(sent.path).query) for sent in server.journal]
        assert [query.get("after") for query in queries] == [None, ["b"], ["c"]]
        assert {query["limit"][0] for query in queries} == {"100"}

    def test_given_jobs_that_are_too_old_when_searched_then_the_walk_ends_at_a_page_of_only_those(self) -> None:
        listing = pages([batch("a"), batch("b", age_s=5000)], [batch("c", marker=KEY)], [batch("d", age_s=5000)], [])
        with serving(lambda _: next(listing)) as server:
            found = api(server).find(KEY, since=NOW)
        assert ([job.id for job in found.jobs], found.pages, found.complete) == (["c"], 3, True)

    def test_given_a_provider_clock_behind_ours_when_searched_then_its_job_is_found(self) -> None:
        listing = pages([batch("a", age_s=600)], [batch("b", age_s=600, marker=KEY)])
        with serving(lambda _: next(listing)) as server:
            assert len(api(server).find(KEY, since=NOW).jobs) == 1

    def test_given_pages_that_shift_when_searched_then_each_job_counts_once(self) -> None:
        listing = pages([batch("a"), batch("b", marker=KEY)], [batch("b", marker=KEY), batch("c")])
        with serving(lambda _: next(listing)) as server:
            found = api(server).find(KEY, since=NOW)
        assert ([job.id for job in found.jobs], found.jobs_seen) == (["b"], 3)

    def test_given_an_empty_page_that_promises_more_when_searched_then_it_ends_and_proves_nothing(self) -> None:
        with serving(lambda _: json_reply({"data": [], "has_more": True})) as server:
            found = api(server).find(KEY, since=NOW)
        assert (found.jobs, found.complete) == ((), False)
        assert len(server.journal) == 3

    def test_given_an_empty_page_once_when_searched_then_the_walk_goes_on(self) -> None:
        listing = iter([json_reply({"data": [], "has_more": True}), *pages([batch("a", marker=KEY)])])
        with serving(lambda _: next(listing)) as server:
            found = api(server).find(KEY, since=NOW)
        assert ([job.id for job in found.jobs], found.complete) == (["a"], True)

    def test_given_the_same_page_for_ever_when_searched_then_it_ends_and_proves_nothing(self) -> None:
        with serving(lambda _: json_reply({"data": [batch("a")], "has_more": True})) as server:
            found = api(server).find(KEY, since=NOW)
        assert not found.complete
        assert len(server.journal) < 10

    def test_given_a_list_without_end_when_searched_then_time_bounds_it(self) -> None:
        numbers = itertools.count()
        ticks = itertools.count(step=10)
        with serving(lambda _: json_reply({"data": [batch(f"b{next(numbers)}")], "has_more": True})) as server:
            found = api(server, monotonic=lambda: float(next(ticks))).find(KEY, since=NOW)
        assert not found.complete
        assert found.pages == len(server.journal) < 20

    def test_given_an_item_that_cannot_be_read_when_searched_then_the_rest_is_and_absence_is_not_proven(self) -> None:
        listing = pages([batch("a", marker=KEY), {"id": "", "metadata": 7}])
        with serving(lambda _: next(listing)) as server:
            found = api(server).find(KEY, since=NOW)
        assert ([job.id for job in found.jobs], found.complete) == (["a"], False)

    def test_given_a_failing_list_when_searched_then_unavailable(self) -> None:
        for reply in (error_reply(500), Reply(200, b"<html>"), Reply(drop=True)):
            with serving(lambda _, reply=reply: reply) as server, pytest.raises(ProviderUnavailable):  # type: ignore[misc]
                api(server).find(KEY, since=NOW)


class TestGet:
    @pytest.mark.parametrize(
        ("status", "state"),
        [
            ("validating", ProviderState.SUBMITTED),
            ("in_progress", ProviderState.RUNNING),
            ("finalizing", ProviderState.FINALIZING),
            ("cancelling", ProviderState.CANCELLING),
            ("completed", ProviderState.DONE),
            ("cancelled", ProviderState.CANCELLED),
            ("expired", ProviderState.EXPIRED),
            ("failed", ProviderState.FAILED),
            ("pausing", ProviderState.UNKNOWN),
        ],
    )
    def test_given_a_status_when_read_then_its_state(self, status: str, state: ProviderState) -> None:
        with serving(lambda _: json_reply(batch(status=status))) as server:
            job = api(server).get("batch_1")
        assert (job.state, job.raw_state) == (state, status)
        assert server.journal[0].path == "/v1/batches/batch_1"

    @pytest.mark.parametrize("status", ["completed", "expired", "cancelled", "failed"])
    @pytest.mark.parametrize(
        ("output", "error", "channels"),
        [
            ("file-o", "file-e", {"output": "file-o", "error": "file-e"}),
            (None, "file-e", {"error": "file-e"}),
            ("file-o", "", {"output": "file-o"}),
            (None, None, {}),
        ],
    )
    def test_given_any_end_when_read_then_every_file_there_is_is_a_channel(
        self, status: str, output: str | None, error: str | None, channels: dict[str, str]
    ) -> None:
        counts = {"total": 10, "completed": 1, "failed": 0}
        raw = batch(status=status, output_file_id=output, error_file_id=error, request_counts=counts)
        with serving(lambda _: json_reply(raw)) as server:
            job = api(server).get("batch_1")
        assert (job.channels, job.counts) == (channels, counts)

    def test_given_a_bare_object_when_read_then_nothing_is_made_up(self) -> None:
        with serving(lambda _: Reply(200, b'{"id":"batch_1", "status":"completed"}')) as server:
            job = api(server).get("batch_1")
        assert (job.marker, job.channels, job.counts, job.errors, job.created_at) == ("", {}, {}, (), 0)
        assert job.raw == b'{"id":"batch_1", "status":"completed"}'

    def test_given_a_failed_validation_when_read_then_each_error_with_its_line(self) -> None:
        data = [
            {"code": "invalid_json_line", "message": "bad", "param": None, "line": 3},
            {"code": "duplicate_custom_id", "message": None, "line": None},
        ]
        with serving(lambda _: json_reply(batch(status="failed", errors={"object": "list", "data": data}))) as server:
            job = api(server).get("batch_1")
        assert job.errors == (JobError("invalid_json_line", "bad", 3), JobError("duplicate_custom_id", "", 0))
        assert (job.quota_refused, job.failure) == (False, OutcomeClass.PERMANENT)

    @pytest.mark.parametrize(
        ("code", "file_id", "failure"),
        [
            ("model_not_found", None, OutcomeClass.PERMANENT),
            ("too_many_tasks", None, OutcomeClass.PERMANENT),
            ("billing_hard_limit_reached", None, OutcomeClass.RETRYABLE),
            ("token_limit_exceeded", None, None),
            ("file_not_found", None, None),
            ("a_word_of_tomorrow", None, None),
            ("model_not_found", "file-o", None),
        ],
    )
    def test_given_a_job_that_failed_when_read_then_its_records_fail_with_it_only_for_a_reason_that_stays(
        self, code: str, file_id: str | None, failure: OutcomeClass | None
    ) -> None:
        body = batch(status="failed", errors={"data": [{"code": code}]}, output_file_id=file_id)
        with serving(lambda _: json_reply(body)) as server:
            assert api(server).get("batch_1").failure is failure

    def test_given_the_token_limit_when_read_then_it_is_a_quota_refusal_unless_there_are_results(self) -> None:
        errors = {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached", "line": None}]}
        with serving(lambda _: json_reply(batch(status="failed", errors=errors))) as server:
            assert api(server).get("batch_1").quota_refused
        with serving(lambda _: json_reply(batch(status="failed", errors=errors, output_file_id="file-o"))) as server:
            assert not api(server).get("batch_1").quota_refused

    def test_given_the_provider_keeps_saying_not_found_when_read_then_gone(self) -> None:
        with serving(lambda _: error_reply(404)) as server:
            job = api(server).get("batch_1")
        assert (job.id, job.state, len(server.journal)) == ("batch_1", ProviderState.GONE, 3)
        assert b"error" in job.raw

    def test_given_not_found_for_a_moment_when_read_then_the_job_is_there(self) -> None:
        replies = iter([error_reply(404), json_reply(batch())])
        with serving(lambda _: next(replies)) as server:
            assert api(server).get("batch_1").state is ProviderState.RUNNING

    @pytest.mark.parametrize(
        ("reply", "error"),
        [
            (Reply(404, b"<html>no route</html>"), ProviderUnavailable),
            (error_reply(500), ProviderUnavailable),
            (error_reply(429), ProviderUnavailable),
            (Reply(drop=True), ProviderUnavailable),
            (Reply(200, b"<html>"), ProviderUnavailable),
            (json_reply({"object": "list", "data": []}), ProviderUnavailable),
            (error_reply(401), ProviderRefused),
            (error_reply(403), ProviderRefused),
        ],
    )
    def test_given_an_answer_that_tells_nothing_when_read_then_no_state_is_made_up(
        self, reply: Reply, error: type[Exception]
    ) -> None:
        with serving(lambda _: reply) as server, pytest.raises(error):
            api(server).get("batch_1")


class TestCancel:
    def test_given_a_running_job_when_cancelled_then_cancelling(self) -> None:
        with serving(lambda _: json_reply(batch(status="cancelling"))) as server:
            assert api(server).cancel("batch_1").state is ProviderState.CANCELLING
        assert (server.journal[0].method, server.journal[0].path) == ("POST", "/v1/batches/batch_1/cancel")

    @pytest.mark.parametrize("status", [400, 409])
    def test_given_a_job_that_has_ended_when_cancelled_then_it_is_read_again(self, status: int) -> None:
        def serve(request: Request) -> Reply:
            return error_reply(status) if request.method == "POST" else json_reply(batch(status="completed"))

        with serving(serve) as server:
            assert api(server).cancel("batch_1").state is ProviderState.DONE

    def test_given_no_such_job_when_cancelled_then_gone(self) -> None:
        with serving(lambda _: error_reply(404)) as server:
            assert api(server).cancel("batch_1").state is ProviderState.GONE

    def test_given_a_fault_when_cancelled_then_unavailable(self) -> None:
        with serving(lambda _: error_reply(503)) as server, pytest.raises(ProviderUnavailable):
            api(server).cancel("batch_1")


class TestDelete:
    def test_given_a_file_when_deleted_then_true_and_when_absent_false(self) -> None:
        replies = iter([json_reply({"id": "file-1", "object": "file", "deleted": True}), error_reply(404)])
        with serving(lambda _: next(replies)) as server:
            assert api(server).delete_file("file-1")
            assert not api(server).delete_file("file-1")
        assert {(sent.method, sent.path) for sent in server.journal} == {("DELETE", "/v1/files/file-1")}

    def test_given_no_confirmation_when_deleted_then_unavailable(self) -> None:
        gateway = Reply(404, b"<html>no route</html>")
        for reply in (json_reply({"deleted": False}), error_reply(500), gateway):
            with serving(lambda _, reply=reply: reply) as server, pytest.raises(ProviderUnavailable):  # type: ignore[misc]
                api(server).delete_file("file-1")
