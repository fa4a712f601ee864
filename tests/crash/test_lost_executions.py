"""Deaths that no Retry mends: a child of the Map that is lost for good, and an execution that is stopped and started
again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.contracts import JobInput
from tallybatch.domain.rows import Job
from tests.support.films import classes, films, results, scenario, spec, tokens_of
from tests.support.interrupted import InterruptedPipeline, Interrupter, Killed
from tests.support.pipeline import Pipeline
from tests.support.state_machine import OTHER_RETRIES

T = TypeVar("T")
RECORDS = 10


@pytest.fixture(autouse=True)
def empty_simulator(simulator: SimulatorServer) -> None:
    simulator.control.reset()
    scenario(simulator.control, records=[{"fault": "error_500", "contains": "Film-003."}])


def start(pipeline: Pipeline) -> JobInput:
    pipeline.push_spec(spec(shard_records=5))
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    return JobInput(tenant="acme", job_key=job_key, bucket=pipeline.objects.bucket)


def assert_closed_and_paid_once(pipeline: Pipeline, job: Job) -> None:
    journal = pipeline.simulator.control.journal()
    assert (job.state.value, job.reason, job.counts["succeeded"]) == ("COMPLETED", "", RECORDS)
    assert len({row["business_key"] for row in results(pipeline.objects, job)}) == RECORDS
    assert set(journal["jobs_per_marker"].values()) == {1}
    assert tokens_of(pipeline.certificate(job)) == journal["tokens_billed"]
    assert pipeline.verify(job).ok


class Dying(Pipeline):
    """The first child of the Map dies in the state `where`, in every retry, in the first `rounds` rounds."""

    where = ""
    rounds = 1
    deaths = 0

    def task(self, name: str, call: Callable[[], T]) -> T:
        if name == self.where and self.deaths < self.rounds * (1 + OTHER_RETRIES):
            call = self._die
        return super().task(name, call)

    def _die(self) -> Any:
        self.deaths += 1
        raise Killed("the function is broken")


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("where", ["PollShard", "CollectShard", "ReconcileShard"])
def test_given_a_child_that_is_lost_after_its_job_was_made_when_the_next_round_comes_then_the_same_job_goes_on(
    simulator: SimulatorServer, where: str, rounds: int
) -> None:
    pipeline = Dying(simulator)
    pipeline.where, pipeline.rounds = where, rounds

    request = start(pipeline)
    pipeline.work(request)

    job = pipeline.job(request.job_key)
    assert_closed_and_paid_once(pipeline, job)
    assert len(simulator.control.journal()["creates"]) == 3
    assert pipeline.tasks.count(("ShardMap", "lost")) == rounds
    told = sorted(tuple(rows) for rows in classes(pipeline.objects, job).values())
    assert told == [("retryable", "succeeded")] + [("succeeded",)] * (RECORDS - 1)


def test_given_a_child_that_is_lost_before_its_job_was_made_when_the_next_round_comes_then_its_records_run_again(
    simulator: SimulatorServer,
) -> None:
    pipeline = Dying(simulator)
    pipeline.where = "SubmitShard"

    request = start(pipeline)
    pipeline.work(request)

    job = pipeline.job(request.job_key)
    assert_closed_and_paid_once(pipeline, job)
    assert {(entry.attempt, entry.records) for entry in pipeline.certificate(job).submissions} >= {(1, 5), (2, 5)}


def test_given_polls_that_fail_for_hours_when_they_recover_then_the_same_job_goes_on(
    simulator: SimulatorServer,
) -> None:
    scenario(simulator.control, calls=[{"on": "get", "fault": "status:503", "nth": 2, "count": 30}])
    pipeline = Pipeline(simulator)

    request = start(pipeline)
    pipeline.work(request)

    job = pipeline.job(request.job_key)
    assert_closed_and_paid_once(pipeline, job)
    assert pipeline.tasks.count(("ShardMap", "lost")) >= 2
    assert len(simulator.control.journal()["creates"]) == 2


class Stopped(BaseException):
    """StopExecution: no Retry and no Catch sees it."""


class Stoppable(Pipeline):
    """Its execution is stopped before the task with this number."""

    stop_before = -1
    begun = 0

    def task(self, name: str, call: Callable[[], T]) -> T:
        if self.begun == self.stop_before:
            self.stop_before = -1
            raise Stopped
        self.begun += 1
        return super().task(name, call)


def test_given_an_execution_that_is_stopped_anywhere_when_started_again_then_it_goes_on_from_there(
    simulator: SimulatorServer,
) -> None:
    whole = Stoppable(simulator)
    whole.work(start(whole))
    assert whole.begun > 15

    for number in range(whole.begun):
        simulator.control.reset()
        pipeline = Stoppable(simulator)
        request = start(pipeline)
        pipeline.stop_before = number
        with pytest.raises(Stopped):
            pipeline.work(request)

        pipeline.work(request)

        assert_closed_and_paid_once(pipeline, pipeline.job(request.job_key))
        assert len(simulator.control.journal()["creates"]) == 3


@pytest.mark.parametrize("seed", range(6))
def test_given_deaths_at_random_when_the_job_ends_then_nothing_was_paid_twice(
    simulator: SimulatorServer, seed: int
) -> None:
    pipeline = InterruptedPipeline(simulator)
    storm = Storm(seed)
    pipeline.interrupt(storm)

    request = start(pipeline)
    pipeline.work(request)

    job = pipeline.job(request.job_key)
    assert storm.deaths > 3
    assert_closed_and_paid_once(pipeline, job)


class Storm(Interrupter):
    """Kills one call in fifty, before or after it is carried out; at most two in a row of the same name, for a task
    has three retries and a storm that outlasts them ends the job as FAILED."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)
        self.deaths = 0
        self._killed: list[str] = []

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        quiet = super().around(name, call)

        def counted(*args: Any, **kwargs: Any) -> Any:
            if not self._armed or self._dice.random() > 0.02 or self._killed[-2:] == [name, name]:
                return quiet(*args, **kwargs)
            self.deaths += 1
            self._killed.append(name)
            if self._dice.random() < 0.5:
                quiet(*args, **kwargs)
            raise Killed(name)

        return counted
