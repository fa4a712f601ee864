"""Decisions whose own run ended before it came to them: the next run carries them out, and none is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallybatch.domain.rows import Job
from tests.support.films import films, results, spent
from tests.support.pipeline import Pipeline
from tests.workflow.test_review import RECORDS, accept, died_before_the_plan, file_of, in_review, reject

DECISIONS = file_of(accept(2), reject(4), reject(6))


def stopped_early(pipeline: Pipeline) -> Job:
    job = in_review(pipeline)
    pipeline.hand_in(job, DECISIONS)
    return died_before_the_plan(pipeline, job)


GO_ON: dict[str, Callable[[Pipeline, Job], object]] = {
    "resumed": lambda pipeline, job: pipeline.resume(job.job_key),
    "handed in again": lambda pipeline, job: pipeline.hand_in(job, DECISIONS),
    "dropped again": lambda pipeline, _: pipeline.drop(films(RECORDS)),
}


@pytest.mark.parametrize("way", list(GO_ON))
def test_given_decisions_whose_run_was_stopped_when_the_job_goes_on_then_they_are_carried_out(
    pipeline: Pipeline, way: str
) -> None:
    job = stopped_early(pipeline)
    paid = spent(pipeline.simulator.control)

    GO_ON[way](pipeline, job)
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.run, job.attempt) == ("COMPLETED", 3, 4)
    assert (job.counts["succeeded"], job.counts["failed"]) == (RECORDS - 2, 2)
    assert len(results(pipeline.objects, job)) == RECORDS - 2
    assert spent(pipeline.simulator.control) == paid
    assert pipeline.verify(job).ok
    assert pipeline.hand_in(job, DECISIONS).repeated is True
    assert pipeline.job(job.job_key) == job
