"""`local up` deploys the real, synthesised stack beside the real simulator, and the two are joined."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.local import loopback, stack
from infra.local.commands import app
from infra.local.stack import LocalStatus
from tallybatch.domain.errors import BadInput
from tallybatch.settings import FUNCTIONS

pytestmark = pytest.mark.xdist_group("e2e")


def test_given_the_stack_is_up_when_status_is_asked_then_it_is_what_up_said(
    local_stack: LocalStatus, local_state_dir: Path
) -> None:
    result = CliRunner().invoke(app, ["status", "--json", "--state-dir", str(local_state_dir)])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == local_stack.to_json()
    assert None not in local_stack.to_json().values()


def test_given_the_stack_is_up_when_up_again_then_it_is_the_same(
    local_stack: LocalStatus, local_state_dir: Path
) -> None:
    assert stack.up(local_state_dir, scenario="calm") == local_stack


def test_given_the_stack_is_up_when_functions_are_listed_then_each_is_there_and_openai_is_the_simulator(
    local_stack: LocalStatus,
) -> None:
    assert local_stack.endpoint_url
    pages = loopback.Aws(local_stack.endpoint_url).lambda_.get_paginator("list_functions").paginate()
    told = {
        each["FunctionName"].rpartition("-")[2]: each["Environment"]["Variables"]
        for page in pages
        for each in page["Functions"]
    }
    assert {model.function for model in FUNCTIONS} <= set(told)
    callers = {name for name, variables in told.items() if "OPENAI_BASE_URL" in variables}
    assert callers == {"SubmitShard", "AnswerShard", "PollShard", "CollectShard", "Sweep"}
    assert {told[name]["OPENAI_BASE_URL"] for name in callers} == {f"{local_stack.simulator_url}/openai/v1"}
    assert {told[name]["GOOGLE_GEMINI_BASE_URL"] for name in callers} == {f"{local_stack.simulator_url}/gemini"}
    assert told["SubmitShard"]["TALLYBATCH_SETTLE_WINDOW_S"] == "3"


def test_given_the_stack_is_up_when_the_bucket_is_asked_then_it_has_the_lifecycle_and_key_that_the_emulator_drops(
    local_stack: LocalStatus,
) -> None:
    assert local_stack.endpoint_url
    assert local_stack.bucket
    s3 = loopback.Aws(local_stack.endpoint_url).s3
    rules = s3.get_bucket_lifecycle_configuration(Bucket=local_stack.bucket)["Rules"]
    assert any("inbox" in rule["ID"] for rule in rules)
    encryption = s3.get_bucket_encryption(Bucket=local_stack.bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert encryption[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"


def test_given_a_scenario_that_does_not_exist_when_up_then_it_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no-such-scenario"):
        stack.up(tmp_path / "state", scenario="no-such-scenario")
    assert stack.status(tmp_path / "state").state == "down"
