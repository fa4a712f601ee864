"""The payloads in events/ do what they say when the steps get them, on stores in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tallybatch import wiring
from tallybatch.contracts import BackfillRequest, FailInput, S3Event
from tallybatch.domain.lifecycle import JobState
from tallybatch.steps import build_manifest, discover_backfill, fail_job
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_misc import ManualClock, MemoryEvents, MemoryExecutions
from tests.support.memory_objects import MemoryBuckets
from tests.support.rows import hexdigest, job

ROOT = Path(__file__).resolve().parents[3]
SPEC = b"{name: film-genre, provider: openai, model: gpt-5-mini-2025-08-07, prompt: {user: 'Title: {{ title }}'}}"
FILM = b'{"id":"tt0113277","title":"Heat"}\n'


def payload(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "events" / name).read_bytes())
    return found


@pytest.mark.parametrize("name", ["object-created", "object-created-special-key", "object-created-without-version"])
def test_given_an_object_created_event_when_built_then_the_job_is_that_of_the_raw_key(name: str) -> None:
    raw = payload(f"s3/{name}.json")
    objects = MemoryBuckets().bucket(raw["detail"]["bucket"]["name"])
    ledger, executions = MemoryLedger(), MemoryExecutions()
    objects.put("specs/acme/film-genre.yaml", SPEC)
    key = raw["detail"]["object"]["key"]
    stored = objects.put(key, FILM)
    raw["detail"]["object"]["etag"] = stored.etag.strip('"')
    if "version-id" in raw["detail"]["object"]:
        raw["detail"]["object"]["version-id"] = stored.version_id

    ports = build_manifest.Ports(objects, ledger, executions, MemoryEvents(), ManualClock(), wiring.formats)
    reply = build_manifest.run(S3Event.model_validate(raw), ports)

    made = ledger.job(reply["job_key"])
    assert made is not None
    assert (made.state, made.expected) == (JobState.VALIDATED, 1)
    assert made.source_uri == objects.uri(key)
    assert made.dataset_version == key.split("/")[3]
    assert [started["job_key"] for started in executions.started.values()] == [made.job_key]


def test_given_an_event_whose_object_was_replaced_when_built_then_it_is_left_to_the_new_ones_event() -> None:
    raw = payload("s3/object-created-without-version.json")
    objects = MemoryBuckets().bucket(raw["detail"]["bucket"]["name"])
    objects.put(raw["detail"]["object"]["key"], FILM)
    ledger = MemoryLedger()
    ports = build_manifest.Ports(objects, ledger, MemoryExecutions(), MemoryEvents(), ManualClock(), wiring.formats)
    assert "replaced" in build_manifest.run(S3Event.model_validate(raw), ports)["ignored"]
    assert list(ledger.jobs()) == []


@pytest.mark.parametrize(
    ("name", "bucket", "keys", "started"),
    [
        (
            "backfill",
            "own",
            [
                "landing/films/2026/01/14/a.jsonl",
                "landing/films/2026/01/15/b c.jsonl",
                "landing/films/2026/01/16/d.jsonl",
            ],
            ["inbox/acme/film-genre/2026-01-14/a.jsonl", "inbox/acme/film-genre/2026-01-15/b c.jsonl"],
        ),
        (
            "backfill-other-bucket",
            "acme-exports",
            ["exports/x/a.jsonl", "exports/a.jsonl.gz", "other/a.jsonl"],
            ["inbox/acme/film-genre/full/a.jsonl.gz", "inbox/acme/film-genre/full/x__a.jsonl"],
        ),
    ],
)
def test_given_a_schedules_payload_when_run_then_its_days_files_come_into_the_inbox_once(
    name: str, bucket: str, keys: list[str], started: list[str]
) -> None:
    buckets = MemoryBuckets()
    for key in keys:
        buckets.bucket(bucket).put(key, FILM)
    ports = discover_backfill.Ports(buckets.bucket("own"), buckets.bucket, MemoryLedger(), ManualClock())
    request = BackfillRequest.model_validate(payload(f"scheduler/{name}.json"))
    assert discover_backfill.run(request, ports).started == started
    again = discover_backfill.run(request, ports)
    assert (again.started, again.seen) == ([], len(started))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("caught-error", "ProviderRefused: job k: the provider refused every shard. invalid_api_key."),
        ("caught-map-error", "States.ItemReaderFailed: Attempting to read the specified S3 object failed"),
        ("caught-timeout", "States.Timeout: "),
    ],
)
def test_given_a_caught_error_when_the_job_fails_then_its_reason_is_the_message_and_not_the_stack(
    name: str, reason: str
) -> None:
    raw = payload(f"stepfunctions/{name}.json")
    assert raw["job_key"] == hexdigest("job")
    ledger, events = MemoryLedger(), MemoryEvents()
    ledger.put_job(job(state=JobState.SUBMITTING), expected_version=None)
    ports = fail_job.Ports(MemoryBuckets().bucket(raw["bucket"]), ledger, events, ManualClock())

    reply = fail_job.run(FailInput.model_validate(raw), ports)

    failed = ledger.job(raw["job_key"])
    assert failed is not None
    assert (reply.state, failed.state) == ("FAILED", JobState.FAILED)
    assert failed.reason.startswith(reason)
    assert "stackTrace" not in failed.reason
    assert events.kinds() == ["JobFailed"]


def test_given_an_error_whose_class_says_nothing_when_the_job_fails_then_its_reason_begins_with_the_message() -> None:
    raw = payload("stepfunctions/caught-error.json")
    cause = json.dumps({"errorType": "Permanent", "errorMessage": "tenant acme, 2026-11: over budget"})
    ledger = MemoryLedger()
    ledger.put_job(job(state=JobState.SUBMITTING), expected_version=None)
    ports = fail_job.Ports(MemoryBuckets().bucket(raw["bucket"]), ledger, MemoryEvents(), ManualClock())

    fail_job.run(FailInput.model_validate({**raw, "error": {"Error": "Permanent", "Cause": cause}}), ports)

    failed = ledger.job(raw["job_key"])
    assert failed is not None and failed.reason == "tenant acme, 2026-11: over budget"
