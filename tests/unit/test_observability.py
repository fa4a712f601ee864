"""One line per call with ids and counts, whatever happens; never a record, a key or somebody else's words."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tallybatch.domain.errors import BadInput, Problem, TallybatchError
from tallybatch.observability import emit, logger, observed
from tallybatch.settings import SealJob

EVENT = {"tenant": "acme", "job_key": "k", "attempt": 2, "shard_id": "s", "bucket": "b", "title": "SECRET"}
CONTEXT = SimpleNamespace(aws_request_id="request-1")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is logged; the environment is complete."""
    stream = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", stream)
    for name in ("BUCKET", "TABLE", "EVENT_BUS"):
        monkeypatch.setenv(f"TALLYBATCH_{name}", name.lower())
    return stream


def replying(reply: Any) -> Callable[[dict[str, Any], SealJob], Any]:
    def work(event: dict[str, Any], settings: SealJob) -> Any:
        return reply

    return work


def line(log: io.StringIO) -> dict[str, Any]:
    (only,) = log.getvalue().splitlines()
    found: dict[str, Any] = json.loads(only)
    return found


def test_given_a_call_that_works_when_observed_then_one_line_has_function_ids_counts_and_time(log: io.StringIO) -> None:
    @observed(SealJob)
    def handler(event: dict[str, Any], settings: SealJob) -> Any:
        assert event is EVENT
        return {"state": "COMPLETED", "records": 7, "bucket": settings.bucket, "rows": [{"title": "SECRET"}]}

    assert handler(EVENT, CONTEXT)["bucket"] == "bucket"
    logged = line(log)
    assert (logged["message"], logged["level"], logged["service"]) == ("SealJob", "INFO", "tallybatch")
    assert (logged["tenant"], logged["job_key"], logged["attempt"], logged["shard_id"]) == ("acme", "k", 2, "s")
    assert (logged["request_id"], logged["state"], logged["records"]) == ("request-1", "COMPLETED", 7)
    assert 0 <= logged["duration_s"] < 60
    assert logged["rows"] == 1
    assert "SECRET" not in log.getvalue()


@pytest.mark.parametrize("reply", [None, ["SECRET"], "SECRET"])
def test_given_a_reply_that_is_no_mapping_when_observed_then_it_is_returned_and_not_logged(
    log: io.StringIO, reply: Any
) -> None:
    assert observed(SealJob)(replying(reply))({}, None) == reply
    assert line(log)["request_id"] == ""
    assert "SECRET" not in log.getvalue()


def test_given_an_error_of_our_own_when_observed_then_its_words_are_logged_and_it_goes_on(log: io.StringIO) -> None:
    error = BadInput("refused", [Problem("is blank", line=3)], where="inbox/a.jsonl")

    @observed(SealJob)
    def handler(event: dict[str, Any], settings: SealJob) -> Any:
        raise error

    with pytest.raises(BadInput) as caught:
        handler(EVENT, CONTEXT)
    assert caught.value is error
    logged = line(log)
    assert (logged["level"], logged["error"]) == ("WARNING", "BadInput")
    assert logged["reason"] == "inbox/a.jsonl: refused. line 3: is blank"
    assert logged["job_key"] == "k"
    assert "exception" not in logged


def test_given_a_strangers_error_when_observed_then_only_its_kind_is_logged(log: io.StringIO) -> None:
    @observed(SealJob)
    def handler(event: dict[str, Any], settings: SealJob) -> Any:
        raise ValueError("SECRET")

    with pytest.raises(ValueError, match="SECRET"):
        handler(EVENT, CONTEXT)
    logged = line(log)
    assert (logged["error"], logged["reason"]) == ("ValueError", "")
    assert "SECRET" not in log.getvalue()


def test_given_a_very_long_reason_when_observed_then_the_line_is_bounded(log: io.StringIO) -> None:
    @observed(SealJob)
    def handler(event: dict[str, Any], settings: SealJob) -> Any:
        raise TallybatchError("x" * 5000)

    with pytest.raises(TallybatchError):
        handler(EVENT, CONTEXT)
    assert line(log)["reason"] == "x" * 500


def test_given_a_function_that_was_not_called_when_imported_then_no_environment_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TALLYBATCH_BUCKET", raising=False)
    handler = observed(SealJob)(replying({}))
    with pytest.raises(ValueError, match="bucket"):
        handler({}, None)


def test_given_a_warm_function_when_called_again_then_the_environment_is_read_once(
    log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    @observed(SealJob)
    def handler(event: dict[str, Any], settings: SealJob) -> Any:
        return settings

    first = handler({}, None)
    monkeypatch.delenv("TALLYBATCH_BUCKET")
    assert handler({}, None) is first


def test_given_metrics_when_counted_then_each_call_is_one_document_with_its_own_function(
    capsys: pytest.CaptureFixture[str],
) -> None:
    emit("SealJob", counts={"JobsCompleted": 1, "RecordsSucceeded": 3201}, age_s=90)
    emit("FailJob", counts={"JobsFailed": 1})
    first, second = (json.loads(text) for text in capsys.readouterr().out.splitlines())
    (metrics,) = first["_aws"]["CloudWatchMetrics"]
    assert metrics["Namespace"] == "Tallybatch"
    assert metrics["Dimensions"] == [["service", "function"]] or metrics["Dimensions"] == [["function", "service"]]
    assert {(metric["Name"], metric["Unit"]) for metric in metrics["Metrics"]} == {
        ("JobsCompleted", "Count"),
        ("RecordsSucceeded", "Count"),
        ("JobAge", "Seconds"),
    }
    assert (first["function"], first["JobsCompleted"], first["RecordsSucceeded"]) == ("SealJob", [1.0], [3201.0])
    assert (second["function"], second["JobsFailed"]) == ("FailJob", [1.0])
    assert "JobsCompleted" not in second
