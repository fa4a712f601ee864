"""Prompts, answers and keys stay in the objects made for them: never in a log, an event, a row or a manifest."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from aws_lambda_powertools.logging import formatter

from tallybatch import settings
from tallybatch.contracts import S3Event, ShardItem, SubmitReply
from tallybatch.domain.rows import Job
from tallybatch.observability import logger, observed
from tests.support.films import film, films, plain, scenario, spec
from tests.support.pipeline import API_KEY, Pipeline

RECORD = "canary-in-a-record"
SYSTEM = "canary-in-the-system-prompt"
CANARIES = (RECORD, SYSTEM, API_KEY)
MAY_HOLD_TEXT = re.compile(
    r"(inbox|specs|results)/"
    r"|review/[^/]+/[^/]+/(queue-\d+|sample)\.jsonl"
    r"|jobs/[^/]+/[^/]+/(spec\.yaml|shards/.*|attempts/\d+/[^/]+/(request\.jsonl|raw/(output|error)\.jsonl|outcomes\..*))"
)
"""Everything else of a job is read by people and programs that need not see a prompt."""

BODY = films(8) + b'{"id": "f100", "title": "%b Film-100."}\n' % RECORD.encode()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every log line of this process, of every library, at every level."""
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(self.format(record) + str(record.__dict__))

    keep = Keep(level=logging.DEBUG)
    ours = Keep(level=logging.DEBUG)
    ours.setFormatter(formatter.LambdaPowertoolsFormatter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(keep)
    root.setLevel(logging.DEBUG)
    logger.addHandler(ours)
    yield seen
    root.removeHandler(keep)
    root.setLevel(level)
    logger._logger.removeHandler(ours)


def assert_clean(pipeline: Pipeline, log: list[str]) -> None:
    """No canary where none may be, in whatever the pipeline left behind."""
    rows: list[Any] = []
    for job in pipeline.ledger.jobs():
        rows += [plain(job), *(plain(row) for row in pipeline.ledger.submissions(job.job_key))]
    assert log, "the log was not seen"
    places: dict[str, bytes] = {
        "the log": "\n".join(log).encode(),
        "the events": msgspec.json.encode(pipeline.events.published),
        "the executions": msgspec.json.encode(pipeline.executions.started),
        "the ledger": msgspec.json.encode(rows),
    }
    for info in pipeline.objects.list(""):
        if not MAY_HOLD_TEXT.match(info.key):
            places[info.key] = pipeline.objects.get(info.key)
    for canary in CANARIES:
        found = [name for name, body in places.items() if canary.encode() in body]
        assert found == [], f"{canary} is in {found}"
    everything = b"".join(pipeline.objects.get(info.key) for info in pipeline.objects.list(""))
    assert API_KEY.encode() not in everything


def observed_run(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, body: bytes) -> Job:
    """As `run`, with the decorator that each handler wears around the states of a shard."""
    for name in (
        "BUCKET",
        "TABLE",
        "EVENT_BUS",
        "STATE_MACHINE_ARN",
        "OPENAI_SECRET",
        "GEMINI_SECRET",
        "BEDROCK_ROLE_ARN",
    ):
        monkeypatch.setenv(f"TALLYBATCH_{name}", name.lower())

    @observed(settings.BuildManifest)
    def build(event: Any, _: Any) -> Any:
        return Pipeline.build(pipeline, S3Event.model_validate(event))

    @observed(settings.SubmitShard)
    def submit(event: Any, _: Any) -> Any:
        return Pipeline.submit(pipeline, ShardItem.model_validate(event)).model_dump()

    @observed(settings.ReconcileShard)
    def reconcile(event: Any, _: Any) -> Any:
        return Pipeline.reconcile_shard(pipeline, ShardItem.model_validate(event))

    monkeypatch.setattr(
        pipeline, "submit", lambda item: SubmitReply.model_validate(submit(item.model_dump(), None)), raising=True
    )
    monkeypatch.setattr(pipeline, "reconcile_shard", lambda item: reconcile(item.model_dump(), None), raising=True)
    event = pipeline.upload(body)
    job_key = build(event.model_dump(by_alias=True), None)["job_key"]
    pipeline.execute(job_key)
    return pipeline.job(job_key)


@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"records": [{"fault": "bad_json"}, {"fault": "refusal", "contains": RECORD}]},
        {"records": [{"fault": "duplicate_different"}]},
        {"records": [{"fault": "error_400", "times": "always"}]},
        {"calls": [{"on": "create", "fault": "lost_reply"}, {"on": "get", "fault": "status:500"}]},
        {"calls": [{"on": "upload", "fault": "status:401", "count": "always"}]},
        {"jobs": [{"fault": "fail_validation:invalid_json_line", "count": "always"}]},
    ],
    ids=["calm", "bad answers", "conflicts", "refused requests", "rough calls", "refused key", "refused file"],
)
def test_given_canaries_in_record_and_prompt_when_a_job_ends_then_they_are_only_where_they_belong(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, told: list[str], faults: dict[str, Any]
) -> None:
    scenario(pipeline.simulator.control, **faults)
    pipeline.push_spec(spec(system=SYSTEM, max_attempts=2).replace("genre,", "quote,").replace("genre: {", "quote: {"))

    job = observed_run(pipeline, monkeypatch, BODY)

    assert job.state.value in ("COMPLETED", "PARTIAL", "FAILED")
    assert any("SubmitShard" in line for line in told)
    request = next(info.key for info in pipeline.objects.list("jobs/") if info.key.endswith("request.jsonl"))
    assert RECORD.encode() in pipeline.objects.get(request)
    assert SYSTEM.encode() in pipeline.objects.get(request)
    assert_clean(pipeline, told)
    if not faults:
        answers = [info.key for info in pipeline.objects.list("") if RECORD.encode() in pipeline.objects.get(info.key)]
        assert {"output.jsonl", "results"} <= {part for key in answers for part in key.split("/")}


@pytest.mark.parametrize(
    "bad",
    [
        b'{"id": "f101", "title": "%b' % RECORD.encode(),
        b'{"id": "f101", "title": NaN, "more": "%b"}' % RECORD.encode(),
        b'{"id": "f101", "more": "%b"}' % RECORD.encode(),
        b'{"id": {"a": "%b"}, "title": "x"}' % RECORD.encode(),
        b'{"id": "f101", "title": "\xff %b"}' % RECORD.encode(),
        b'{"id": "f101", "title": "\\ud800 %b"}' % RECORD.encode(),
    ],
)
def test_given_a_canary_in_a_bad_line_when_refused_then_its_reason_does_not_quote_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, told: list[str], bad: bytes
) -> None:
    pipeline.push_spec(spec(system=SYSTEM))

    job = observed_run(pipeline, monkeypatch, film(1) + b"\n" + bad + b"\n")

    assert job.state.value == "FAILED"
    assert_clean(pipeline, told)


@pytest.mark.parametrize(
    "change",
    [
        ("system: You", "systen: You"),
        ("{{ title }}", "{{ title"),
        ("{{ title }}", "{{ title | nonsense }}"),
        ("max_attempts: 3", "max_attempts: many"),
    ],
)
def test_given_a_canary_in_a_spec_that_is_refused_when_dropped_then_its_reason_does_not_quote_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, told: list[str], change: tuple[str, str]
) -> None:
    text = spec().replace(*change).replace("You label films.", SYSTEM).replace('"Title:', f'"{SYSTEM}')
    assert SYSTEM in text
    pipeline.push_spec(text)

    job = observed_run(pipeline, monkeypatch, BODY)

    assert job.state.value == "FAILED"
    assert_clean(pipeline, told)


def test_given_a_changed_prompt_when_refused_then_its_reason_does_not_quote_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    pipeline.push_spec(spec())
    pipeline.run(BODY)
    pipeline.push_spec(spec(system=SYSTEM))

    job = observed_run(pipeline, monkeypatch, BODY)

    assert job.state.value == "FAILED"
    assert_clean(pipeline, told)
