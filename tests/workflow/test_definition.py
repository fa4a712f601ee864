"""The state machine's definition: valid, in step with the code, and within Step Functions' limits, all computed."""

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
from tallybatch.domain import errors, plan
from tallybatch.domain.canary import waves
from tallybatch.domain.lanes import PIECE_RECORDS
from tallybatch.settings import FUNCTIONS, AnswerShard, PollShard, SubmitShard
from tallybatch.steps.answer_shard import QUOTA_WAIT_MAX_S

PAYLOAD_LIMIT_BYTES = 256 * 1024
HISTORY_LIMIT = 25_000
"""Step Functions quotas: "Maximum input or output size", "Maximum execution history size"."""
WEEK_S = 7 * 24 * 3600
SHARDS = 5_000
MOST_ATTEMPTS = 10
"""The most that a spec may ask for (`retry.max_attempts`)."""
MOST_PARALLEL = 1_000
"""The most that a spec may ask for (`shards.max_parallel`)."""
GROWTH = 1.5
"""By which PollShard lets the pause grow."""
LONGEST_KEY = "k" * 1024
"""An S3 key is at most 1,024 bytes long."""
LONGEST_CAUSE = "c" * 32_768
"""Step Functions quotas: a Cause is cut at 32,768 characters."""

EVENTS = {"Task": 5, "Wait": 2, "Choice": 2, "Map": 4, "Succeed": 2, "Fail": 1}
"""Events that a state adds to its execution's history (API reference, HistoryEvent): entered and exited; for a task
also scheduled, started, succeeded; for a distributed Map also run started and ended, as children have histories of
their own."""
EVENTS_PER_RETRY = 3
"""A failed try of a task: scheduled, started, failed."""
START_AND_END = 2

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


# History


def _next(states: dict[str, Any], name: str, *, choose: str = "") -> str:
    """The state after `name`; from a Choice, `choose`, which must be one of its branches."""
    state = states[name]
    if state["Type"] != "Choice":
        return str(state["Next"])
    branches = {each["Next"] for each in state["Choices"]} | {state.get("Default")}
    assert choose in branches, f"{name} does not lead to {choose}"
    return choose


def _path(states: dict[str, Any], start: str, end: str, choices: dict[str, str]) -> list[str]:
    """States from `start` up to, but without, the next `end`."""
    path, name = [start], _next(states, start, choose=choices.get(start, ""))
    while name != end:
        path.append(name)
        assert len(path) <= len(states), f"no way from {start} to {end}"
        name = _next(states, name, choose=choices.get(name, ""))
    return path


def _events(states: dict[str, Any], path: list[str], *, retries: int = 0) -> int:
    kinds = [states[name]["Type"] for name in path]
    return sum(EVENTS[kind] for kind in kinds) + retries * EVENTS_PER_RETRY * kinds.count("Task")


def _first_wait_s() -> float:
    """The pause before the first poll, as the definition sets it."""
    (submitted,) = [each for each in CHILD["WasSubmitted"]["Choices"] if each["Next"] == "WaitForProvider"]
    found = re.fullmatch(r"\{% (\d+) %\}", submitted["Assign"]["wait_s"])
    assert found is not None
    return float(found.group(1))


def _polls_in(seconds: float) -> int:
    """How often PollShard is called when a provider needs that long; the calls themselves take no time."""
    longest = float(PollShard.model_fields["max_wait_s"].default)
    polls, waited, pause = 0, 0.0, _first_wait_s()
    while waited < seconds:
        waited += pause
        polls += 1
        pause = min(pause * GROWTH, longest)
    return polls


def _events_of_settling() -> int:
    """A lost create that is looked for until its settle window has passed, and then created anew."""
    window, pause = (float(SubmitShard.model_fields[name].default) for name in ("settle_window_s", "unknown_wait_s"))
    loop = _path(CHILD, "SubmitShard", "SubmitShard", {"WasSubmitted": "WaitToSubmit"})
    return int(window / pause + 2) * _events(CHILD, loop)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_week_of_polling_fits_into_one_childs_history(retries: int) -> None:
    loop = _path(CHILD, "WaitForProvider", "WaitForProvider", {"IsTerminal": "WaitForProvider"})
    assert loop == ["WaitForProvider", "PollShard", "IsTerminal"]
    assert _events(CHILD, loop) == 9
    choices = {"HasQuota": "SubmitShard", "WasSubmitted": "WaitForProvider"}
    begin = _path(CHILD, "ReserveQuota", "WaitForProvider", choices)
    finish = ["CollectShard", "ReconcileShard"]
    total = (
        START_AND_END
        + _events_of_settling()
        + _events(CHILD, begin, retries=retries)
        + _polls_in(WEEK_S) * _events(CHILD, loop, retries=retries)
        + _events(CHILD, finish, retries=retries)
    )
    assert 9_000 < total < HISTORY_LIMIT, total


def test_a_week_of_waiting_for_a_rate_fits_into_one_childs_history() -> None:
    loop = _path(CHILD, "AnswerShard", "AnswerShard", {"WasAnswered": "WaitToAnswer"})
    assert loop == ["AnswerShard", "WasAnswered", "WaitToAnswer"]
    refusals_of_all_records = 5 * PIECE_RECORDS
    """Until the pause has grown to its longest, for each record."""
    rounds = WEEK_S / QUOTA_WAIT_MAX_S + refusals_of_all_records
    assert START_AND_END + rounds * _events(CHILD, loop) < HISTORY_LIMIT


def test_answering_ends_before_its_function_is_cut_off() -> None:
    """A call that begins at the last moment, and what is done after it, fit into the function's timeout."""
    longest = sum(float(AnswerShard.model_fields[name].default) for name in ("work_s", "call_timeout_s"))
    assert longest + 60 <= PROFILES[AnswerShard].timeout_s


def test_polling_every_minute_would_not_fit() -> None:
    """The bound is a real one: what the growing pause is for."""
    assert WEEK_S / 60 * 9 > HISTORY_LIMIT


def test_a_poll_that_fails_for_all_of_its_retries_still_leaves_room() -> None:
    most = sum(rule["MaxAttempts"] for rule in CHILD["PollShard"]["Retry"])
    assert _polls_in(WEEK_S) * 9 + 100 * most * EVENTS_PER_RETRY < HISTORY_LIMIT


def test_all_attempts_and_every_retry_fit_into_the_parents_history() -> None:
    last = {"IsLastWave": "ReconcileJob"}
    round_ = _path(PARENT, "PlanAttempt", "PlanAttempt", {**last, "IsClosed": "WaitBeforeRetry"})
    assert round_ == ["PlanAttempt", "ShardMap", "IsLastWave", "ReconcileJob", "IsClosed", "WaitBeforeRetry"]
    closing = _path(PARENT, "PublishMap", "JobCompleted", {"IsComplete": "JobCompleted"})
    retries = sum(rule["MaxAttempts"] for rule in PARENT["PlanAttempt"]["Retry"])
    further_waves = len(waves(SHARDS, MOST_PARALLEL)) - 1
    total = (
        START_AND_END
        + MOST_ATTEMPTS * _events(PARENT, round_, retries=retries)
        + MOST_ATTEMPTS * further_waves * _events(PARENT, _wave(), retries=retries)
        + MOST_ATTEMPTS * _events(PARENT, [*_judging(), *_asking()], retries=retries)
        + _events(PARENT, [*closing, "JobCompleted"], retries=retries)
    )
    assert total < HISTORY_LIMIT / 5, total


def _wave() -> list[str]:
    return _path(PARENT, "PlanAttempt", "PlanAttempt", {"IsLastWave": "PlanAttempt"})


def _judging() -> list[str]:
    return _path(PARENT, "JudgeCanary", "WaitBeforeRetry", {"IsApproved": "WaitBeforeRetry"})


def _asking() -> list[str]:
    return ["ApproveCanary", *_path(PARENT, "JudgeCanary", "ApproveCanary", {"IsApproved": "ApproveCanary"})]


def test_what_a_plan_says_of_histories_is_what_the_definition_says() -> None:
    round_ = _path(PARENT, "PlanAttempt", "PlanAttempt", {"IsLastWave": "ReconcileJob", "IsClosed": "WaitBeforeRetry"})
    closing = [*_path(PARENT, "PublishMap", "JobCompleted", {"IsComplete": "JobCompleted"}), "JobCompleted"]
    shard = [*_path(CHILD, "SubmitShard", "WaitForProvider", {"WasSubmitted": "WaitForProvider"}), "CollectShard"]
    loop = _path(CHILD, "WaitForProvider", "WaitForProvider", {"IsTerminal": "WaitForProvider"})
    assert _events(PARENT, round_) == plan.ATTEMPT_EVENTS
    assert _events(PARENT, _wave()) == plan.WAVE_EVENTS
    assert _events(PARENT, _judging()) == plan.JUDGE_EVENTS
    assert _events(PARENT, _asking()) == plan.ASK_EVENTS
    assert _events(PARENT, closing) == plan.END_EVENTS
    assert _events(CHILD, [*shard, "ReconcileShard"]) == plan.SHARD_EVENTS
    assert _events(CHILD, loop) == plan.POLL_EVENTS
    assert (_first_wait_s(), GROWTH) == (plan.FIRST_PAUSE_S, plan.PAUSE_GROWTH)
    assert float(PollShard.model_fields["max_wait_s"].default) == plan.LONGEST_PAUSE_S
    assert plan.polls_in(WEEK_S) == _polls_in(WEEK_S)


def test_the_task_that_waits_for_a_person_ends_in_a_judgement_whatever_wakes_it() -> None:
    state = PARENT["ApproveCanary"]
    assert state["Resource"].endswith(".waitForTaskToken")
    assert state["Next"] == "JudgeCanary"
    assert state["Catch"][0] == {
        "ErrorEquals": ["States.Timeout"], "Output": "{% $states.input %}", "Next": "JudgeCanary"
    }  # fmt: skip
    assert not any("States.Timeout" in rule["ErrorEquals"] for rule in state["Retry"]), "it would ask for another day"
    assert "timeout_s" in state["TimeoutSeconds"]
