"""Two of everything: workers, deliveries of one event, and executions of one job, in threads, on the real stores."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tallybatch.contracts import JobInput
from tests.crash.matrix import BODY, Matrix, faults_of, matrices
from tests.support.handled import HandledPipeline


@pytest.fixture(scope="module")
def matrix(emulator: str) -> Iterator[Matrix]:
    with matrices(emulator, ["openai"]) as [made]:
        yield made


@pytest.fixture
def pipeline(matrix: Matrix) -> HandledPipeline:
    return matrix.begun()


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run all at the same time; their results, or what they raised."""
    gate = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(number: int) -> None:
        gate.wait(timeout=10)
        try:
            results[number] = calls[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    return results


def request_of(pipeline: HandledPipeline) -> JobInput:
    job_key = pipeline.build(pipeline.upload(BODY))["job_key"]
    return pipeline.started(job_key)


def assert_in_order(matrix: Matrix, pipeline: HandledPipeline, request: JobInput) -> None:
    assert faults_of(matrix.looked_over(pipeline, pipeline.job(request.job_key)), matrix.undisturbed) == []


@pytest.mark.parametrize("workers", [2, 4])
def test_given_workers_on_one_shard_when_all_submit_then_one_job_is_made_and_all_hear_of_it(
    matrix: Matrix, pipeline: HandledPipeline, workers: int
) -> None:
    request = request_of(pipeline)
    item = pipeline.items(pipeline.plan(request))[0]

    replies = at_once(*[lambda: pipeline.submit(item)] * workers)

    creates = pipeline.simulator.control.journal()["creates"]
    assert len(creates) == 1
    assert {reply.status for reply in replies} <= {"submitted", "unknown"}
    assert {reply.provider_job_id for reply in replies if reply.status == "submitted"} == {creates[0]["job_id"]}
    pipeline.work(request)
    assert_in_order(matrix, pipeline, request)


def test_given_an_event_that_is_delivered_twice_at_once_when_both_are_worked_on_then_one_execution_starts(
    matrix: Matrix, pipeline: HandledPipeline
) -> None:
    event = pipeline.upload(BODY)

    replies = at_once(lambda: pipeline.build(event), lambda: pipeline.build(event))

    assert not any(isinstance(reply, Exception) for reply in replies), replies
    (job_key,) = {reply["job_key"] for reply in replies}
    request = pipeline.started(job_key)
    pipeline.work(request)
    assert_in_order(matrix, pipeline, request)


def test_given_an_execution_that_is_started_twice_when_both_run_at_once_then_no_work_is_paid_twice(
    matrix: Matrix, pipeline: HandledPipeline
) -> None:
    request = request_of(pipeline)
    other = matrix.pipeline()

    at_once(lambda: pipeline.work(request), lambda: other.work(request))

    assert_in_order(matrix, pipeline, request)
    markers = Counter(create["marker"] for create in pipeline.simulator.control.journal()["creates"])
    assert set(markers.values()) == {1}


@pytest.mark.parametrize("old_goes_on", [False, True])
def test_given_an_execution_that_is_aborted_when_it_is_started_again_under_the_same_job_then_it_goes_on_from_there(
    matrix: Matrix, pipeline: HandledPipeline, old_goes_on: bool
) -> None:
    """An abort does not stop a function that runs: the old execution's task may end beside the new one's."""
    request = request_of(pipeline)
    first, second = pipeline.items(pipeline.plan(request))
    pipeline.submit(first)

    old = [lambda: pipeline.submit(second)] if old_goes_on else []
    at_once(*old, lambda: matrix.pipeline().work(request))

    assert_in_order(matrix, pipeline, request)
