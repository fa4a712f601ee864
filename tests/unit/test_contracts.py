"""Every file in events/ is a payload as it really comes, and parses by the contract of the function that gets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tallybatch.contracts import (
    AttemptPlan,
    BackfillRequest,
    Contract,
    FailInput,
    JobInput,
    PollReply,
    PublishItem,
    ReconcileReply,
    S3Event,
    ShardItem,
    SubmitReply,
    SweepRequest,
)
from tallybatch.domain.layout import JobKeys, parse_inbox_key

EVENTS = Path(__file__).resolve().parents[2] / "events"
CONTRACTS: dict[str, type[Contract]] = {
    "s3/object-created.json": S3Event,
    "s3/object-created-multipart.json": S3Event,
    "s3/object-created-special-key.json": S3Event,
    "s3/object-created-without-version.json": S3Event,
    "scheduler/backfill.json": BackfillRequest,
    "scheduler/backfill-other-bucket.json": BackfillRequest,
    "scheduler/sweep.json": SweepRequest,
    "stepfunctions/attempt-plan.json": AttemptPlan,
    "stepfunctions/caught-error.json": FailInput,
    "stepfunctions/caught-map-error.json": FailInput,
    "stepfunctions/caught-timeout.json": FailInput,
    "stepfunctions/job-input.json": JobInput,
    "stepfunctions/publish-item.json": PublishItem,
    "stepfunctions/shard-item.json": ShardItem,
    "stepfunctions/shard-item-polled.json": ShardItem,
}


def payload(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EVENTS / name).read_bytes())
    return found


def test_given_the_files_in_events_when_listed_then_each_has_a_contract() -> None:
    files = {path.relative_to(EVENTS).as_posix() for path in EVENTS.rglob("*") if path.is_file()}
    assert files == set(CONTRACTS)


@pytest.mark.parametrize("name", sorted(CONTRACTS))
def test_given_a_payload_when_parsed_then_every_field_of_the_contract_keeps_its_value(name: str) -> None:
    contract, raw = CONTRACTS[name], payload(name)
    parsed = contract.model_validate(raw)
    assert contract.model_validate_json(json.dumps(raw)) == parsed
    assert contract.model_validate(parsed.model_dump(by_alias=True)) == parsed
    for field, value in parsed.model_dump(mode="json").items():
        if field in raw and field != "detail":
            assert value == raw[field], field


@pytest.mark.parametrize("name", sorted(name for name in CONTRACTS if name.startswith("s3/")))
def test_given_an_object_created_event_when_parsed_then_the_key_is_raw_and_in_the_inbox(name: str) -> None:
    raw = payload(name)
    dropped = S3Event.model_validate(raw).detail.object
    assert dropped.key == raw["detail"]["object"]["key"]
    assert (dropped.size, dropped.etag) == (raw["detail"]["object"]["size"], raw["detail"]["object"]["etag"])
    assert parse_inbox_key(dropped.key).tenant == "acme"


def test_given_a_key_with_spaces_plus_percent_and_unicode_when_parsed_then_nothing_is_decoded() -> None:
    event = S3Event.model_validate(payload("s3/object-created-special-key.json"))
    place = parse_inbox_key(event.detail.object.key)
    assert place.dataset_version == "week 3+4"
    assert place.name == "100%25 é films+more (v1).jsonl"


def test_given_an_event_with_and_without_a_version_when_parsed_then_the_version_is_it_or_empty() -> None:
    with_version = S3Event.model_validate(payload("s3/object-created.json")).detail.object
    without = S3Event.model_validate(payload("s3/object-created-without-version.json")).detail.object
    assert with_version.version_id == "IYV3p45BT0ac8hjHg1houSdS1a.Mro8e"
    assert without.version_id == ""


def test_given_what_the_steps_hand_on_when_compared_with_the_payloads_then_the_fields_are_the_same() -> None:
    """The payloads between states are our own: nothing is missing from them, and nothing is made up."""
    own = ("job-input.json", "attempt-plan.json", "shard-item.json", "publish-item.json")
    for name in own:
        contract = CONTRACTS[f"stepfunctions/{name}"]
        assert set(payload(f"stepfunctions/{name}")) == set(contract.model_fields), name
    plan = AttemptPlan.model_validate(payload("stepfunctions/attempt-plan.json"))
    assert plan.items_key == JobKeys(plan.tenant, plan.job_key).items(plan.attempt)
    publish = PublishItem.model_validate(payload("stepfunctions/publish-item.json"))
    assert all(key.startswith(JobKeys(publish.tenant, publish.job_key).prefix) for key in publish.outcomes)


JOB_PAYLOADS = ("job-input", "attempt-plan", "caught-error", "caught-map-error", "caught-timeout")


@pytest.mark.parametrize("name", JOB_PAYLOADS)
def test_given_the_output_of_a_state_when_it_is_the_next_ones_input_then_it_is_understood(name: str) -> None:
    """Inputs of PlanAttempt, ReconcileJob, SealJob and FailJob all say which job."""
    raw = payload(f"stepfunctions/{name}.json")
    job = JobInput.model_validate(raw)
    assert (job.tenant, job.job_key, job.bucket, job.attempt) == (
        raw["tenant"], raw["job_key"], raw["bucket"], raw["attempt"],
    )  # fmt: skip
    assert FailInput.model_validate(raw).job_key == raw["job_key"]


@pytest.mark.parametrize(
    ("contract", "raw"),
    [
        (S3Event, {"detail": {"bucket": {"name": "b"}, "object": {}}}),
        (S3Event, {"detail": {"object": {"key": "inbox/a"}}}),
        (S3Event, {"Records": [{"s3": {"object": {"key": "inbox/a"}}}]}),
        (JobInput, {"tenant": "acme", "bucket": "b"}),
        (JobInput, {"tenant": "acme", "job_key": "k", "bucket": "b", "attempt": "two"}),
        (ShardItem, {"tenant": "acme", "job_key": "k", "attempt": 1, "shard_id": "s"}),
        (BackfillRequest, {"tenant": "acme", "spec": "s"}),
        (BackfillRequest, {"tenant": "acme", "spec": "s", "prefix": "p", "max_objects": 0}),
        (BackfillRequest, {"tenant": "acme", "spec": "s", "prefix": "p", "max_objects": 10_001}),
        (BackfillRequest, {"tenant": "acme", "spec": "s", "prefix": "p", "days_back": -1}),
        (BackfillRequest, {"tenant": "acme", "spec": "s", "prefix": "p", "days_back": 367}),
        (SweepRequest, {"lookback_hours": 0}),
        (SweepRequest, {"lookback_hours": 8761}),
        (SubmitReply, {"status": "perhaps"}),
        (PollReply, {"status": "submitted"}),
        (ReconcileReply, {"tenant": "a", "job_key": "k", "bucket": "b", "attempt": 1, "verdict": "open"}),
    ],
)
def test_given_a_payload_that_breaks_its_contract_when_parsed_then_it_is_refused(
    contract: type[Contract], raw: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError):
        contract.model_validate(raw)


def test_given_a_parsed_payload_when_somebody_tries_to_change_it_then_it_stays() -> None:
    job = JobInput.model_validate(payload("stepfunctions/job-input.json"))
    with pytest.raises(ValidationError, match="frozen"):
        job.attempt = 2
