"""The state machine's definition: valid, in step with the code, and with payloads within Step Functions' limits."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from infra.constructs.profiles import PROFILES
from infra.constructs.workflow import DEFINITION
from infra.npm import install_npm_tools, npm_tool
from tallybatch import contracts, handlers
from tallybatch.domain import errors
from tallybatch.settings import FUNCTIONS, AnswerShard

PAYLOAD_LIMIT_BYTES = 256 * 1024
"""Step Functions quotas: "Maximum input or output size"."""
SHARDS = 5_000
MOST_ATTEMPTS = 10
"""The most that a spec may ask for (`retry.max_attempts`)."""
LONGEST_KEY = "k" * 1024
"""An S3 key is at most 1,024 bytes long."""
LONGEST_CAUSE = "c" * 32_768
"""Step Functions quotas: a Cause is cut at 32,768 characters."""

MACHINE: dict[str, Any] = json.loads(DEFINITION.read_text(encoding="utf-8"))
PARENT: dict[str, Any] = MACHINE["States"]
CHILD: dict[str, Any] = PARENT["ShardMap"]["ItemProcessor"]["States"]
PUBLISH_CHILD: dict[str, Any] = PARENT["PublishMap"]["ItemProcessor"]["States"]
ALL_STATES: dict[str, Any] = {**PARENT, **CHILD, **PUBLISH_CHILD}
TASKS = {name: state for name, state in ALL_STATES.items() if state["Type"] == "Task"}
OUTSIDE = {"BuildManifest", "DiscoverBackfill", "Sweep", "ResumeJob", "ResolveReview"}
WORKFLOW_NAMES = {model.function for model in FUNCTIONS} - OUTSIDE


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_asl_validator_accepts_it() -> None:
    install_npm_tools()
    command = [*npm_tool("asl-validator"), "--json-path", str(DEFINITION)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_asl_validator_refuses_a_broken_one(tmp_path: Path) -> None:
    install_npm_tools()
    broken = tmp_path / "broken.asl.json"
    broken.write_text(DEFINITION.read_text(encoding="utf-8").replace('"Next": "IsTerminal"', '"Next": "Nowhere"'))
    command = [*npm_tool("asl-validator"), "--json-path", str(broken)]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode != 0


def test_state_names_are_unique_over_parent_and_children() -> None:
    assert len(ALL_STATES) == len(PARENT) + len(CHILD) + len(PUBLISH_CHILD)


def test_each_task_is_a_function_of_the_same_name() -> None:
    assert set(TASKS) == WORKFLOW_NAMES
    for name, state in TASKS.items():
        assert state["Arguments"]["FunctionName"] == f"${{{name}}}"


def test_each_placeholder_is_a_settings_model() -> None:
    assert set(re.findall(r"\$\{(\w+)\}", DEFINITION.read_text(encoding="utf-8"))) == WORKFLOW_NAMES


@pytest.mark.parametrize("name", sorted(model.function for model in FUNCTIONS))
def test_each_function_has_a_handler_file_of_its_name(name: str) -> None:
    (directory,) = handlers.__path__
    assert (Path(directory) / f"{_snake(name)}.py").is_file()


def _error_names() -> Iterator[tuple[str, str]]:
    for name, state in ALL_STATES.items():
        for rule in [*state.get("Retry", []), *state.get("Catch", [])]:
            for error in rule["ErrorEquals"]:
                yield name, error


def test_every_error_name_is_a_class_of_ours_or_of_aws() -> None:
    ours = {
        name
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, errors.TallybatchError) and each is not errors.TallybatchError
    }
    unknown = {
        (state, error)
        for state, error in _error_names()
        if error not in ours and not re.match(r"(States|Lambda)\.", error)
    }
    assert unknown == set()


def test_a_failing_state_names_an_error_of_ours_or_its_own_name() -> None:
    for name, state in ALL_STATES.items():
        if state["Type"] == "Fail":
            assert hasattr(errors, state["Error"]) or state["Error"] == name


def _retried(state: dict[str, Any]) -> set[str]:
    return {error for rule in state.get("Retry", []) if rule["MaxAttempts"] > 0 for error in rule["ErrorEquals"]}


def test_every_task_retries_and_every_parent_state_that_can_fail_ends_in_fail_job() -> None:
    for name, state in TASKS.items():
        retried = _retried(state)
        assert retried >= {"Retryable", "LedgerBusy", "Lambda.ServiceException"} or "States.ALL" in retried, name
        if name in {"SubmitShard", "AnswerShard", "PollShard", "CollectShard"}:
            assert "ProviderUnavailable" in retried, name
    for name, state in PARENT.items():
        if state["Type"] in {"Task", "Map"} and name != "FailJob":
            assert [rule["Next"] for rule in state["Catch"] if rule["ErrorEquals"] == ["States.ALL"]] == ["FailJob"], (
                name
            )


def test_one_lost_shard_never_loses_the_others_and_no_shard_is_published_by_half() -> None:
    assert PARENT["ShardMap"]["ToleratedFailurePercentage"] == 100
    assert PARENT["PublishMap"]["ToleratedFailurePercentage"] == 0
    assert not any("Retry" in PARENT[name] for name in ("ShardMap", "PublishMap")), (
        "a Map's Retry starts all items anew"
    )


# Payloads


def _longest(model: type[BaseModel], **fields: Any) -> str:
    """A contract as JSON, every text as long as an S3 key, every number as long as a count of shards or more."""
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if annotation is str:
            values[name] = LONGEST_KEY
        elif annotation is int:
            values[name] = 10**9
        elif annotation is bool:
            values[name] = False
        elif get_origin(annotation) is list and get_args(annotation) == (str,):
            values[name] = [LONGEST_KEY] * MOST_ATTEMPTS
        elif get_origin(annotation) is not None and all(isinstance(each, str) for each in get_args(annotation)):
            values[name] = max(get_args(annotation), key=len)
        elif get_origin(annotation) is dict:
            values[name] = {"Error": LONGEST_KEY, "Cause": LONGEST_CAUSE}
        else:
            raise AssertionError(f"{model.__name__}.{name}: how long can {annotation} be?")
    return model.model_validate({**values, **fields}).model_dump_json()


STATE_INPUTS: dict[str, type[BaseModel]] = {
    "AdmitJob": contracts.JobInput,
    "IsAdmitted": contracts.JobInput,
    "WaitForTurn": contracts.JobInput,
    "PlanAttempt": contracts.JobInput,
    "ShardMap": contracts.AttemptPlan,
    "ReconcileJob": contracts.AttemptPlan,
    "IsLastWave": contracts.AttemptPlan,
    "IsClosed": contracts.ReconcileReply,
    "JudgeCanary": contracts.ReconcileReply,
    "IsApproved": contracts.CanaryReply,
    "ApproveCanary": contracts.CanaryReply,
    "WaitBeforeRetry": contracts.ReconcileReply,
    "PublishMap": contracts.ReconcileReply,
    "SealJob": contracts.ReconcileReply,
    "IsComplete": contracts.SealReply,
    "FailJob": contracts.FailInput,
    **dict.fromkeys(set(CHILD), contracts.ShardItem),
    "PublishShard": contracts.PublishItem,
}


@pytest.mark.parametrize("name", sorted(STATE_INPUTS))
def test_no_states_input_comes_near_the_limit(name: str) -> None:
    size = len(_longest(STATE_INPUTS[name]))
    assert size < PAYLOAD_LIMIT_BYTES / 4, f"{name}: {size} bytes"


def test_the_list_of_states_with_inputs_is_complete() -> None:
    assert set(ALL_STATES) - set(STATE_INPUTS) == {"JobCompleted", "JobNotClosed", "JobFailed"}


def test_a_caught_error_fits_beside_the_input_it_is_merged_with() -> None:
    error = {"error": {"Error": LONGEST_KEY, "Cause": LONGEST_CAUSE}}
    for model in (contracts.JobInput, contracts.AttemptPlan, contracts.ReconcileReply, contracts.CanaryReply):
        merged = json.loads(_longest(model)) | error
        assert len(json.dumps(merged)) < PAYLOAD_LIMIT_BYTES / 4


@pytest.mark.parametrize("name", ["ShardMap", "PublishMap"])
def test_shards_are_read_from_s3_and_their_results_stay_small(name: str) -> None:
    state = PARENT[name]
    assert state["ItemReader"]["Resource"] == "arn:aws:states:::s3:getObject"
    assert "ItemsPath" not in state
    assert state["ResultPath"] is None
    ends = [each for each in state["ItemProcessor"]["States"].values() if each.get("End")]
    assert ends
    for end in ends:
        output = re.fullmatch(r"\{% (.*) %\}", end["Output"])
        assert output is not None
        assert json.loads(output.group(1)) == {}
    results = json.dumps([{}] * SHARDS)
    assert len(results) < PAYLOAD_LIMIT_BYTES / 4


def test_the_task_that_waits_for_a_person_ends_in_a_judgement_whatever_wakes_it() -> None:
    state = PARENT["ApproveCanary"]
    assert state["Resource"].endswith(".waitForTaskToken")
    assert state["Next"] == "JudgeCanary"
    assert state["Catch"][0] == {
        "ErrorEquals": ["States.Timeout"], "Output": "{% $states.input %}", "Next": "JudgeCanary"
    }  # fmt: skip
    assert not any("States.Timeout" in rule["ErrorEquals"] for rule in state["Retry"]), "it would ask for another day"
    assert "timeout_s" in state["TimeoutSeconds"]


def test_answering_ends_before_its_function_is_cut_off() -> None:
    """A call that begins at the last moment, and what is done after it, fit into the function's timeout."""
    longest = sum(float(AnswerShard.model_fields[name].default) for name in ("work_s", "call_timeout_s"))
    assert longest + 60 <= PROFILES[AnswerShard].timeout_s
