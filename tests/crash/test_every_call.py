"""A function may die at any call that leaves it: every such place of a job is tried, and each job ends the same."""

from __future__ import annotations

from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.adapters.providers.openai import OpenAIApi
from tallybatch.contracts import JobInput
from tallybatch.domain.rows import Job
from tallybatch.ports import ProviderApi
from tests.support.films import films, results, scenario, tokens_of
from tests.support.interrupted import InterruptedPipeline, Interrupter
from tests.support.pipeline import API_KEY

SPEC = """\
{name: genre, provider: openai, model: gpt-5-mini-2025-08-07, prompt: {user: "{{ title }}"},
 retry: {max_attempts: 3, backoff: 1m}, shards: {max_records: 5}}
"""
FASTEST = {"validating": 0, "in_progress": 0, "finalizing": 0, "cancelling": 0}
SLICES = 6
"""Tests into which the points are dealt, so that several workers share them."""


@pytest.fixture(scope="module")
def provider(simulator: SimulatorServer) -> ProviderApi:
    """One client for all jobs: making one costs more than a whole small job."""
    return OpenAIApi(
        lambda: API_KEY, base_url=simulator.openai_base_url, timeout_s=5, max_retries=0, sleep=lambda _: None
    )


class Run:
    """Two shards of five films, of which one fails once: dropped, run to the end, and what came of it."""

    def __init__(self, simulator: SimulatorServer, provider: ProviderApi, interrupter: Interrupter) -> None:
        simulator.control.reset()
        scenario(simulator.control, records=[{"fault": "error_500", "contains": "Film-003."}], durations=FASTEST)
        self.pipeline = InterruptedPipeline(simulator, provider=provider)
        self.pipeline.interrupt(interrupter)
        self.interrupter = interrupter
        self.pipeline.push_spec(SPEC)
        event = self.pipeline.upload(films(10))
        self.built = self.pipeline.task("BuildManifest", lambda: self.pipeline.build(event))
        ((_, payload),) = self.pipeline.executions.started.items()
        self.pipeline.work(JobInput.model_validate(payload))
        self.job: Job = self.pipeline.job(self.built["job_key"])
        self.journal = simulator.control.journal()

    def answers(self) -> list[dict[str, Any]]:
        """The published lines, without what the provider numbers afresh and where its bytes lie."""
        volatile = {"provider_job_id", "provider_request_id", "raw"}
        rows = results(self.pipeline.objects, self.job)
        return [{name: value for name, value in row.items() if name not in volatile} for row in rows]


@pytest.fixture(scope="module")
def undisturbed(simulator: SimulatorServer, provider: ProviderApi) -> Run:
    return Run(simulator, provider, Interrupter())


def test_given_no_crash_when_the_job_runs_then_its_calls_are_counted(undisturbed: Run) -> None:
    calls, points = undisturbed.interrupter.calls, undisturbed.interrupter.points()
    print(f"{len(calls)} calls, {len(points)} places to die at")  # noqa: T201
    assert {name.split(".")[0] for name in calls} == {
        "MemoryObjects", "MemoryLedger", "OpenAIApi", "MemoryEvents", "MemoryExecutions",
    }  # fmt: skip
    assert len(points) > 200
    assert (undisturbed.job.state.value, undisturbed.job.attempt) == ("COMPLETED", 2)
    assert len(undisturbed.journal["creates"]) == 3


@pytest.mark.parametrize("part", range(SLICES))
def test_given_a_crash_at_any_call_when_the_task_is_retried_then_the_job_ends_as_if_nothing_had_happened(
    simulator: SimulatorServer, provider: ProviderApi, undisturbed: Run, part: int
) -> None:
    expected = undisturbed.answers()
    for point in undisturbed.interrupter.points()[part::SLICES]:
        run = Run(simulator, provider, Interrupter(point))

        where = f"dying {point[1]} call {point[0]}, {run.interrupter.struck}"
        assert run.interrupter.struck == undisturbed.interrupter.calls[point[0]], where
        assert (run.job.state.value, run.job.reason, run.job.attempt) == ("COMPLETED", "", 2), where
        assert run.pipeline.verify(run.job).difference == "", where
        assert run.answers() == expected, where
        assert_paid_once(run, where)
        if run.interrupter.struck == "OpenAIApi.create":
            generations = [row.generation for row in run.pipeline.ledger.submissions(run.job.job_key)]
            assert max(generations) == (2 if point[1] == "before" else 1), where


def assert_paid_once(run: Run, where: str) -> None:
    jobs_per_marker = run.journal["jobs_per_marker"]
    assert set(jobs_per_marker.values()) == {1}, where
    assert len(run.journal["creates"]) == 3, where
    certificate = run.pipeline.certificate(run.job)
    assert tokens_of(certificate) == run.journal["tokens_billed"], where
    assert {entry.submission_key for entry in certificate.submissions} == set(jobs_per_marker), where
    for row in run.pipeline.ledger.submissions(run.job.job_key):
        assert len(row.absences) == row.generation - 1, where
        assert all(look.complete for look in row.absences), where
    tokens = [row.tokens for row in run.pipeline.ledger.submissions(run.job.job_key)]
    assert sum(one.get("input", 0) for one in tokens) == run.journal["tokens_billed"]["input"], where
