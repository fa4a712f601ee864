"""The longest executions fit into Step Functions' history, counted event by event from the definition itself."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

from infra.constructs.workflow import DEFINITION
from tallybatch.domain import plan
from tallybatch.domain.canary import waves
from tallybatch.domain.lanes import PIECE_RECORDS
from tallybatch.domain.quota_rows import Amount, Hold
from tallybatch.domain.quotas import pause_s
from tallybatch.settings import PollShard, SubmitShard
from tallybatch.steps.answer_shard import QUOTA_WAIT_MAX_S

HISTORY_LIMIT = 25_000
"""Step Functions quotas: "Maximum execution history size"."""
SHARDS = 5_000
MOST_ATTEMPTS = 10
"""The most that a spec may ask for (`retry.max_attempts`)."""
WEEK_S = 7 * 24 * 3600
MOST_PARALLEL = 1_000
"""The most that a spec may ask for (`shards.max_parallel`)."""
GROWTH = 1.5
"""By which PollShard lets the pause grow."""
EVENTS = {"Task": 5, "Wait": 2, "Choice": 2, "Map": 4, "Succeed": 2, "Fail": 1}
"""Events that a state adds to its execution's history (API reference, HistoryEvent): entered and exited; for a task
also scheduled, started, succeeded; for a distributed Map also run started and ended, as children have histories of
their own."""
EVENTS_PER_RETRY = 3
"""A failed try of a task: scheduled, started, failed."""
START_AND_END = 2

PARENT: dict[str, Any] = json.loads(DEFINITION.read_text(encoding="utf-8"))["States"]
CHILD: dict[str, Any] = PARENT["ShardMap"]["ItemProcessor"]["States"]


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


def _waits_in(seconds: float) -> int:
    """How often one asks for quota that comes after so long."""
    hold = Hold(
        pool="openai",
        model="m",
        tenant="t",
        job_key="j",
        attempt=1,
        shard_id="s",
        rank=1,
        amount=Amount(jobs=1),
        asked_at=0,
    )
    asked, now = 0, 0
    while now < seconds:
        now += pause_s(hold, now, 1)
        asked += 1
        hold = replace(hold, near=asked)
    return asked


def test_a_week_of_waiting_for_quota_and_a_week_of_polling_fit_into_one_childs_history() -> None:
    waiting = _path(CHILD, "ReserveQuota", "ReserveQuota", {"HasQuota": "WaitForQuota"})
    assert waiting == ["ReserveQuota", "HasQuota", "WaitForQuota"]
    polling = _path(CHILD, "WaitForProvider", "WaitForProvider", {"IsTerminal": "WaitForProvider"})
    total = (
        START_AND_END
        + _waits_in(WEEK_S) * _events(CHILD, waiting)
        + _events_of_settling()
        + _polls_in(WEEK_S) * _events(CHILD, polling)
    )
    assert 18_000 < total < HISTORY_LIMIT, total


def test_a_week_of_waiting_to_begin_fits_into_the_parents_history() -> None:
    loop = _path(PARENT, "AdmitJob", "AdmitJob", {"IsAdmitted": "WaitForTurn"})
    assert loop == ["AdmitJob", "IsAdmitted", "WaitForTurn"]
    assert _waits_in(WEEK_S) * _events(PARENT, loop) < 0.6 * HISTORY_LIMIT


def test_quota_that_was_refused_is_reserved_anew() -> None:
    assert _path(CHILD, "SubmitShard", "ReserveQuota", {"WasSubmitted": "WaitForQuota"})
    assert _path(CHILD, "PollShard", "ReserveQuota", {"IsTerminal": "WaitForQuota"})
