"""Backfills become schedules that call DiscoverBackfill with a request it can read; Sweep has one of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tallybatch.contracts import BackfillRequest, SweepRequest


def _schedules(template: Mapping[str, Any]) -> dict[str, Any]:
    found = [
        each["Properties"] for each in template["Resources"].values() if each["Type"] == "AWS::Scheduler::Schedule"
    ]
    return {each["Name"]: each for each in found}


def test_each_declared_backfill_is_a_schedule(template: Mapping[str, Any]) -> None:
    schedules = _schedules(template)
    films, quakes = schedules["backfill-daily-films"], schedules["backfill-quakes"]
    assert set(schedules) == {"backfill-daily-films", "backfill-quakes", "sweep"}
    assert films["ScheduleExpression"] == "rate(1 day)"
    assert films["FlexibleTimeWindow"] == {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15}
    assert (films["State"], quakes["State"]) == ("ENABLED", "DISABLED")
    assert quakes["ScheduleExpressionTimezone"] == "Europe/Berlin"
    assert quakes["FlexibleTimeWindow"] == {"Mode": "OFF"}


def test_the_payload_is_a_backfill_request_with_the_planned_time(template: Mapping[str, Any]) -> None:
    payload = json.loads(_schedules(template)["backfill-quakes"]["Target"]["Input"])
    assert set(payload) == set(BackfillRequest.model_fields)
    request = BackfillRequest.model_validate(payload)
    assert (request.tenant, request.spec, request.prefix) == ("geo", "quakes", "raw/{yyyy}/")
    assert (request.source_bucket, request.max_objects) == ("geo-source", 5)
    assert request.dataset_version == "{yyyy}-{mm}-{dd}"
    assert request.time == "<aws.scheduler.scheduled-time>"


def test_a_local_schedule_leaves_the_time_to_the_function(local_template: Mapping[str, Any]) -> None:
    payload = json.loads(_schedules(local_template)["backfill-daily-films"]["Target"]["Input"])
    assert payload["time"] == ""


def test_undelivered_runs_go_to_a_dead_letter_queue_after_a_day(template: Mapping[str, Any]) -> None:
    for schedule in _schedules(template).values():
        target = schedule["Target"]
        assert target["RetryPolicy"] == {"MaximumRetryAttempts": 185, "MaximumEventAgeInSeconds": 86_400}
        queue = target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0]
        assert template["Resources"][queue]["Type"] == "AWS::SQS::Queue"


def test_the_sweep_runs_every_hour_and_never_cancels(template: Mapping[str, Any]) -> None:
    sweep = _schedules(template)["sweep"]
    assert (sweep["ScheduleExpression"], sweep["State"]) == ("rate(1 hour)", "ENABLED")
    assert sweep["Target"]["Arn"]["Fn::GetAtt"][0].startswith("FunctionsSweepFunction")
    assert not SweepRequest.model_validate_json(sweep["Target"]["Input"]).cancel
