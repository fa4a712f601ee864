"""The crash matrix notices a broken protocol: each mutant pays twice, or may, and must not go unseen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tallybatch import wiring
from tallybatch.adapters.providers.openai import OpenAIApi
from tallybatch.contracts import ShardItem
from tallybatch.domain import submitting
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.rows import Evidence, Submission
from tallybatch.domain.submitting import Next, SubmitRules
from tallybatch.steps import submit_shard
from tests.crash.matrix import PROMPT, Matrix, Point, faults_of, matrices
from tests.support.handled import forget_clients
from tests.support.wire import Fault


@pytest.fixture(scope="module")
def matrix(emulator: str) -> Iterator[Matrix]:
    with matrices(emulator, ["openai"]) as [made]:
        yield made


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    forget_clients()


def found(matrix: Matrix, fault: Fault) -> list[str]:
    """What is wrong after this fault of the first create, with a retry."""
    point = next(
        point for trial in matrix.creates() for point in trial if point.fault is fault and point.then != "restart"
    )
    return tried(matrix, point)


def tried(matrix: Matrix, point: Point) -> list[str]:
    return [what for _, wrong in matrix.violations([(point,)]) for what in wrong]


def assert_paid_twice(wrong: list[str]) -> None:
    """Although CollectShard finds the ghost and books it."""
    assert any("without a proof of absence" in what for what in wrong), wrong
    assert any(what.startswith("the provider billed") for what in wrong), wrong


@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.LOST, Fault.SILENT])
def test_given_the_protocol_as_it_is_when_a_create_is_struck_then_nothing_is_found(
    matrix: Matrix, fault: Fault
) -> None:
    assert found(matrix, fault) == []


def test_given_an_sdk_that_repeats_create_when_a_reply_is_lost_then_two_jobs_are_found(
    matrix: Matrix, mutate: pytest.MonkeyPatch
) -> None:
    class Repeating(OpenAIApi):
        def create(self, **asked: Any) -> Any:
            real = type(self._client).with_options

            def with_retries(client: Any, **options: Any) -> Any:
                return real(client, **{**options, "max_retries": 2})

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(self._client), "with_options", with_retries)
                return super().create(**asked)

    mutate.setattr(wiring, "OpenAIApi", Repeating)
    forget_clients()

    assert any(what.startswith("2 jobs for submission") for what in found(matrix, Fault.LOST))


def test_given_a_claim_that_expires_when_a_create_was_cut_off_then_a_job_without_a_proof_of_absence_is_found(
    matrix: Matrix, mutate: pytest.MonkeyPatch
) -> None:
    real = submitting.next_step

    def expiring(row: Submission | None, now: float) -> Next:
        step = real(row, now)
        return Next.CLAIM if step is Next.RESOLVE else step

    mutate.setattr(submitting, "next_step", expiring)

    wrong = found(matrix, Fault.AFTER)

    assert_paid_twice(wrong)


def test_given_no_look_for_the_lost_job_when_its_reply_is_lost_then_a_second_paid_job_is_found(
    matrix: Matrix, mutate: pytest.MonkeyPatch
) -> None:
    def unlooked(item: ShardItem, row: Submission, ports: submit_shard.Ports, rules: SubmitRules) -> Submission:
        evidence = Evidence(ports.clock.now(), 0, 0, complete=False)
        return submit_shard._change_mine(row, ports, lambda now: submitting.note_absence(now, evidence))

    def proven(row: Submission, now: float, rules: SubmitRules) -> bool:
        return row.state is SubmissionState.SUBMIT_UNKNOWN

    mutate.setattr(submit_shard, "_resolve", unlooked)
    mutate.setattr(submitting, "absence_is_proven", proven)

    wrong = found(matrix, Fault.LOST)

    assert_paid_twice(wrong)


def test_given_a_prompt_in_a_log_when_the_run_is_looked_over_then_it_is_told(matrix: Matrix) -> None:
    calm = matrix.undisturbed

    assert faults_of(replace(calm, said=f"error near {PROMPT}"), calm) == ["the prompt is in what the functions wrote"]
