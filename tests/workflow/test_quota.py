"""Quota along the line: reserved before a submit, given back at every end, mended by the sweep if nobody could."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from infra.local.simulator.server import SimulatorServer
from tallybatch.contracts import JobInput, ShardItem
from tallybatch.domain.quota_rows import Amount
from tallybatch.domain.quotas import ADMISSION, ALL
from tallybatch.ports import QuotaMove
from tallybatch.steps import cancel_job
from tests.support.films import MODELS, films, report, scenario, spec
from tests.support.interrupted import InterruptedPipeline, Interrupter, Killed, Mode
from tests.support.pipeline import Pipeline
from tests.support.state_machine import RETRYABLE_RETRIES

MODEL = MODELS["openai"][0]


def set_limits(pipeline: Pipeline, name: str = "openai", **settings: Any) -> None:
    pool = pipeline.ledger.quota_pool(name)
    assert pipeline.ledger.move_quota(replace(pool, **settings), QuotaMove())


def held(pipeline: Pipeline, name: str = "openai") -> dict[str, bool]:
    """By shard (or job), whether it is reserved and not waiting."""
    return {hold.shard_id or hold.job_key: hold.reserved_at > 0 for hold in pipeline.ledger.quota_holds(name)}


def planned(pipeline: Pipeline, count: int = 4, **changed: Any) -> tuple[JobInput, list[ShardItem]]:
    """A job whose first attempt is planned."""
    pipeline.push_spec(spec("openai", **{"shard_records": 2, **changed}))
    job_key = pipeline.drop(films(count))["job_key"]
    request = JobInput(tenant="acme", job_key=job_key, bucket=pipeline.objects.bucket)
    assert pipeline.admit(request).status == "go"
    return request, pipeline.items(pipeline.plan(request))


def nothing_is_held(pipeline: Pipeline) -> bool:
    names = ("openai", ADMISSION)
    return not any(held(pipeline, name) for name in names) and not any(
        pipeline.ledger.quota_pool(name).used for name in names
    )


def test_a_job_gives_everything_back_and_a_reservation_costs_two_transactions(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[QuotaMove] = []
    real = pipeline.ledger.move_quota

    def counted(pool: Any, move: QuotaMove) -> bool:
        moves.append(move)
        return real(pool, move)

    monkeypatch.setattr(pipeline.ledger, "move_quota", counted)
    pipeline.push_spec(spec("openai", shard_records=2))
    job = pipeline.run(films(6))
    assert job.state == "COMPLETED"
    assert [("take" if move.take else "give") for move in moves] == ["take", *["take", "give"] * 3, "give"]
    assert nothing_is_held(pipeline)


def test_what_is_reserved_is_what_the_manifest_estimates(pipeline: Pipeline) -> None:
    request, items = planned(pipeline, limits=", priority: high")
    assert [item.priority for item in items] == ["high", "high"]
    assert all(item.tokens > 0 and item.model == MODEL for item in items)
    for _ in range(3):
        assert pipeline.reserve(items[0]).status == "go"
    used = pipeline.ledger.quota_pool("openai").used
    assert used == {MODEL: {"acme": Amount(items[0].tokens, 1, 2)}}, "once, however often it is asked for"
    assert items[0].job_key == request.job_key


def test_a_shard_waits_until_another_has_ended_at_its_provider(pipeline: Pipeline) -> None:
    set_limits(pipeline, limits={MODEL: {"jobs": 1}})
    _, (first, second) = planned(pipeline)
    assert pipeline.reserve(first).status == "go"
    pipeline.submit(first)
    waiting = pipeline.reserve(second)
    assert (waiting.status, waiting.position) == ("wait", 1)
    assert waiting.wait_s > 0
    pipeline.wait(60)
    assert pipeline.reserve(second).status == "wait", "time alone frees nothing"
    assert pipeline.poll(first).status == "terminal"
    assert pipeline.reserve(second).status == "go"


def test_given_the_provider_refuses_asynchronously_then_its_part_is_given_back_and_the_pool_slows_down(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, jobs=[{"fault": "fail_validation:token_limit_exceeded"}])
    _, (first, second) = planned(pipeline)
    assert pipeline.reserve(first).status == "go"
    pipeline.submit(first)
    pipeline.wait(60)
    assert pipeline.poll(first).status == "resubmit"
    pool = pipeline.ledger.quota_pool("openai")
    assert (pool.used, pool.slow[MODEL].ceiling.jobs) == ({}, 1)
    assert held(pipeline) == {first.shard_id: False}
    waiting = pipeline.reserve(first)
    assert (waiting.status, waiting.wait_s) == ("wait", 60)
    assert pipeline.reserve(second).status == "go", "nothing is kept for it while it pauses"
    pipeline.submit(second)
    pipeline.wait(60)
    pipeline.poll(second)
    assert pipeline.reserve(first).status == "go"


def test_given_create_is_refused_for_quota_then_the_job_completes_later_and_nothing_is_held(
    pipeline: Pipeline,
) -> None:
    scenario(
        pipeline.simulator.control,
        calls=[{"on": "create", "fault": "status:429", "retry_after_s": 90, "should_retry": False, "count": 2}],
    )
    pipeline.push_spec(spec("openai", shard_records=2))
    job = pipeline.run(films(4))
    assert job.state == "COMPLETED"
    assert pipeline.ledger.quota_pool("openai").slow[MODEL].at > 0
    assert nothing_is_held(pipeline)


def test_a_shard_larger_than_the_whole_quota_stops_the_job_before_anything_is_spent(pipeline: Pipeline) -> None:
    set_limits(pipeline, limits={MODEL: {"tokens": 100}})
    pipeline.push_spec(spec("openai", shard_records=2))
    job = pipeline.run(films(4))
    assert job.state == "FAILED"
    assert "the limit for gpt-5-mini-2025-08-07 is 100" in job.reason
    assert "tallybatch quota set openai gpt-5-mini-2025-08-07 --tokens N" in job.reason
    assert pipeline.simulator.control.journal()["creates"] == []
    assert nothing_is_held(pipeline)


@pytest.mark.parametrize("how", ["cancelled", "late"])
def test_a_shard_that_waits_when_its_job_is_to_end_leaves_the_line(pipeline: Pipeline, how: str) -> None:
    set_limits(pipeline, limits={MODEL: {"jobs": 1}})
    request, (first, second) = planned(pipeline, deadline="1h")
    pipeline.reserve(first)
    pipeline.submit(first)
    assert pipeline.reserve(second).status == "wait"
    if how == "cancelled":
        cancel_job.run(request.job_key, pipeline.ledger, pipeline.clock)
    else:
        pipeline.wait(3600)
    assert pipeline.reserve(second).status == "go"
    assert pipeline.submit(second).status == ("cancelled" if how == "cancelled" else "refused")
    assert held(pipeline) == {first.shard_id: True}


def test_waiting_ends_at_the_deadline_at_the_latest(pipeline: Pipeline) -> None:
    set_limits(pipeline, limits={MODEL: {"jobs": 0}})
    _, (first, _) = planned(pipeline, deadline="1m")
    pipeline.wait(55)
    assert pipeline.reserve(first).wait_s == 5


def test_a_job_that_ends_at_its_deadline_without_ever_getting_quota_holds_nothing(pipeline: Pipeline) -> None:
    set_limits(pipeline, limits={MODEL: {"jobs": 0}})
    pipeline.push_spec(spec("openai", shard_records=2, deadline="3h"))
    job = pipeline.run(films(4))
    assert (job.state, job.counts["succeeded"]) == ("FAILED", 0) or job.state == "PARTIAL"
    assert pipeline.simulator.control.journal()["creates"] == []
    assert nothing_is_held(pipeline)


def test_a_job_that_its_provider_refuses_until_the_deadline_ends_with_it_and_names_its_records(
    pipeline: Pipeline,
) -> None:
    scenario(
        pipeline.simulator.control,
        jobs=[{"fault": "fail_validation:token_limit_exceeded", "nth": number} for number in range(1, 100)],
    )
    pipeline.push_spec(spec("openai", shard_records=2, deadline="3h"))
    began = pipeline.clock.now()
    job = pipeline.run(films(4))
    assert pipeline.clock.now() - began < 3 * 3600 + 60
    assert (job.state, job.counts["failed"]) == ("FAILED", 4)
    assert not any(error for _, error in pipeline.tasks)
    assert not any("provider's jobs" in step for step in report(pipeline.objects, job)["next_steps"])
    assert nothing_is_held(pipeline)


def test_so_many_jobs_are_at_work_and_the_next_begins_when_one_is_sealed(pipeline: Pipeline) -> None:
    set_limits(pipeline, ADMISSION, limits={ALL: {"jobs": 1}})
    pipeline.push_spec(spec("openai"))
    keys = [pipeline.drop(films(2, first=10 * n), version=f"v{n}")["job_key"] for n in (1, 2)]
    requests = [JobInput(tenant="acme", job_key=key, bucket=pipeline.objects.bucket) for key in keys]
    assert pipeline.admit(requests[0]).status == "go"
    assert pipeline.admit(requests[1]).status == "wait"
    pipeline.work(requests[0])
    assert pipeline.admit(requests[1]).status == "go"
    assert pipeline.job(keys[0]).state == "COMPLETED"


# Leaks


@pytest.mark.parametrize("sections", ["", "canary: {records: 2, min_acceptance: 0.1}"])
def test_shards_that_are_lost_before_their_submission_do_not_keep_the_quota_from_their_own_retry(
    pipeline: Pipeline, sections: str
) -> None:
    set_limits(pipeline, limits={MODEL: {"jobs": 1}})
    canary = 1 if sections else 0
    lost = {"on": "upload", "fault": "status:500", "nth": canary + 1, "count": RETRYABLE_RETRIES + 1}
    scenario(pipeline.simulator.control, calls=[lost])
    pipeline.push_spec(spec("openai", shard_records=2, sections=sections))
    began = pipeline.clock.now()
    job = pipeline.run(films(6))
    assert ("ShardMap", "lost") in pipeline.tasks
    assert (job.state, job.counts["succeeded"]) == ("COMPLETED", 6)
    assert pipeline.clock.now() - began < 3600
    assert nothing_is_held(pipeline)


def test_the_sweep_gives_back_what_an_ended_job_left_and_nothing_else(pipeline: Pipeline) -> None:
    request, (first, second) = planned(pipeline)
    for item in (first, second):
        pipeline.reserve(item)
    pipeline.submit(first)
    assert pipeline.sweep().released == [], "the job is at work"
    job = pipeline.job(request.job_key)
    assert pipeline.ledger.put_job(replace(job, state="FAILED"), expected_version=job.version)
    told = pipeline.sweep().released
    assert sorted(word.split()[0] for word in told) == [ADMISSION, "openai"]
    assert held(pipeline) == {first.shard_id: True}, "it runs at the provider"
    pipeline.wait(60)
    assert len(pipeline.sweep().released) == 1
    assert nothing_is_held(pipeline)
    assert pipeline.sweep().released == []


def test_the_sweep_keeps_what_may_be_out_when_the_provider_does_not_tell(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "lost_reply"}])
    request, (first, _) = planned(pipeline)
    pipeline.reserve(first)
    assert pipeline.submit(first).status == "unknown"
    job = pipeline.job(request.job_key)
    assert pipeline.ledger.put_job(replace(job, state="FAILED"), expected_version=job.version)
    scenario(pipeline.simulator.control, calls=[{"on": "list", "fault": "status:500", "count": "always"}])
    pipeline.sweep()
    assert held(pipeline) == {first.shard_id: True}
    scenario(pipeline.simulator.control)
    pipeline.wait(60)
    pipeline.sweep()
    assert held(pipeline) == {}


def test_killed_at_any_call_around_a_reservation_nothing_leaks_and_nothing_is_counted_twice(
    simulator: SimulatorServer,
) -> None:
    """Reserve, submit and poll, killed at each of their calls, and repeated as Step Functions does."""
    points: list[tuple[int, Mode]] = [(-1, "before")]
    for number, point in enumerate(points):
        simulator.control.reset()
        line = InterruptedPipeline(simulator)
        set_limits(line, limits={MODEL: {"jobs": 1}})
        _, (first, _) = planned(line)
        line.interrupt(killer := Interrupter(point))
        repeated(killer, line.reserve, first)
        while repeated(killer, line.submit, first).status == "unknown":
            line.wait(60)
        line.wait(60)
        repeated(killer, line.poll, first)
        assert held(line) == {}, f"left over after a kill {point[1]} {killer.struck}"
        assert line.ledger.quota_pool("openai").used == {}
        assert len(simulator.control.journal()["creates"]) == 1
        assert bool(killer.struck) == bool(number)
        if number == 0:
            points += killer.points()
    assert len(points) > 40


def repeated(killer: Interrupter, step: Callable[[ShardItem], Any], item: ShardItem) -> Any:
    with killer.armed():
        try:
            return step(item)
        except Killed:
            pass
    return step(item)
