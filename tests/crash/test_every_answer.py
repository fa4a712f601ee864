"""A function that asks records one by one may die at any call that leaves it: at most one answer is paid for twice."""

from __future__ import annotations

from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.contracts import JobInput
from tallybatch.domain.rows import Job
from tallybatch.ports import OnDemand, ProviderApi
from tests.support.films import films, results, scenario, spec, tokens_of
from tests.support.interrupted import InterruptedPipeline, Interrupter
from tests.support.pipeline import Pipeline

COUNT = 4
SLICES = 4
"""Tests into which the points are dealt, so that several workers share them."""


@pytest.fixture(scope="module")
def clients(simulator: SimulatorServer) -> tuple[ProviderApi, OnDemand]:
    """One of each for all jobs: making one costs more than a whole small job."""
    pipeline = Pipeline(simulator)
    return pipeline.provider, pipeline.on_demand


class Run:
    """A few films on the on-demand lane: dropped, run to the end, and what came of it."""

    def __init__(
        self, simulator: SimulatorServer, clients: tuple[ProviderApi, OnDemand], interrupter: Interrupter
    ) -> None:
        simulator.control.reset()
        scenario(simulator.control)
        self.pipeline = InterruptedPipeline(simulator, provider=clients[0], on_demand=clients[1])
        self.pipeline.interrupt(interrupter)
        self.interrupter = interrupter
        self.pipeline.push_spec(spec() + "lane: on_demand\n")
        event = self.pipeline.upload(films(COUNT))
        built = self.pipeline.task("BuildManifest", lambda: self.pipeline.build(event))
        ((_, payload),) = self.pipeline.executions.started.items()
        self.pipeline.work(JobInput.model_validate(payload))
        self.job: Job = self.pipeline.job(built["job_key"])
        self.journal = simulator.control.journal()

    @property
    def calls(self) -> int:
        return int(self.journal["calls"].get("openai.sync", 0))

    def answers(self) -> list[dict[str, Any]]:
        volatile = {"provider_request_id", "raw", "notes"}
        rows = results(self.pipeline.objects, self.job)
        return [{name: value for name, value in row.items() if name not in volatile} for row in rows]


@pytest.fixture(scope="module")
def undisturbed(simulator: SimulatorServer, clients: tuple[ProviderApi, OnDemand]) -> Run:
    return Run(simulator, clients, Interrupter())


def test_given_no_crash_when_the_job_runs_then_each_record_is_asked_once(undisturbed: Run) -> None:
    calls = undisturbed.interrupter.calls
    assert calls.count("OpenAIOnDemand.answer") == COUNT == undisturbed.calls
    assert (undisturbed.job.state.value, undisturbed.job.attempt) == ("COMPLETED", 1)
    assert tokens_of(undisturbed.pipeline.certificate(undisturbed.job)) == undisturbed.journal["tokens_billed"]


@pytest.mark.parametrize("part", range(SLICES))
def test_given_a_crash_at_any_call_when_the_task_is_retried_then_only_a_lost_answer_is_asked_for_again(
    simulator: SimulatorServer, clients: tuple[ProviderApi, OnDemand], undisturbed: Run, part: int
) -> None:
    expected = undisturbed.answers()
    once = undisturbed.journal["tokens_billed"]["input"] // COUNT
    for point in undisturbed.interrupter.points()[part::SLICES]:
        run = Run(simulator, clients, Interrupter(point))

        where = f"dying {point[1]} call {point[0]}, {run.interrupter.struck}"
        assert run.interrupter.struck == undisturbed.interrupter.calls[point[0]], where
        assert (run.job.state.value, run.job.reason, run.job.attempt) == ("COMPLETED", "", 1), where
        assert run.pipeline.verify(run.job).difference == "", where
        assert run.answers() == expected, where
        lost = sum(row.anomalies.get("reply_lost", 0) for row in run.pipeline.ledger.submissions(run.job.job_key))
        billed, booked = run.journal["tokens_billed"], tokens_of(run.pipeline.certificate(run.job))
        assert lost <= 1, where
        assert COUNT <= run.calls <= COUNT + lost, where
        if run.calls == COUNT + lost:
            assert booked == billed, where
        else:
            assert abs(booked["input"] - billed["input"] - once) < once, f"{where}: nobody can tell that it never left"
        if run.interrupter.struck == "OpenAIOnDemand.answer":
            assert (lost, run.calls) == (1, COUNT + (point[1] == "after")), where
