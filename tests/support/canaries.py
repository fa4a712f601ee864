"""Jobs with a canary of ten records out of sixty, and what their tests ask of them."""

from __future__ import annotations

import json
from typing import Any

from tallybatch.contracts import JobInput
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tests.support.films import films, key_of, results, spec, tokens_of
from tests.support.pipeline import Pipeline

RECORDS, CANARY = 60, 10


def canary_spec(canary: str = f"records: {CANARY}, min_acceptance: 0.8", **changed: Any) -> str:
    values = {"shard_records": 10, **changed}
    return spec(**values) + f"canary: {{{canary}}}\n"


def manual(more: str = "", **changed: Any) -> str:
    return canary_spec(f"records: {CANARY}, min_acceptance: 0.8, approval: manual{more}", **changed)


def creates(pipeline: Pipeline) -> list[int]:
    """Records of each job made at the provider, in order."""
    journal = pipeline.simulator.control.journal()
    batches = journal["batches"]
    return [batches[made["job_id"]]["counts"]["total"] for made in journal["creates"]]


def billed(pipeline: Pipeline) -> dict[str, int]:
    tokens: dict[str, int] = pipeline.simulator.control.journal()["tokens_billed"]
    return tokens


def document(pipeline: Pipeline, job: Job, attempt: int = 1, name: str = "canary.json") -> Any:
    return json.loads(pipeline.objects.get(pipeline.keys(job).attempt(attempt) + name))


def run(pipeline: Pipeline, text: str, count: int = RECORDS) -> Job:
    pipeline.push_spec(text)
    return pipeline.run(films(count))


def drop_again(pipeline: Pipeline, job: Job) -> Job:
    assert pipeline.drop(films(RECORDS)) == {"job_key": job.job_key, "state": "VALIDATED"}
    started = pipeline.executions.started[pipeline.job(job.job_key).execution_name]
    pipeline.work(JobInput.model_validate(started))
    return pipeline.job(job.job_key)


def assert_completed_and_paid_once(pipeline: Pipeline, job: Job, count: int = RECORDS) -> None:
    assert (job.state, job.reason) == (JobState.COMPLETED, "")
    assert {row["business_key"] for row in results(pipeline.objects, job)} == {key_of(n) for n in range(1, count + 1)}
    told = pipeline.certificate(job)
    assert (told.expected, told.succeeded, told.reused) == (count, count, 0)
    assert tokens_of(told) == billed(pipeline)
    assert set(pipeline.simulator.control.journal()["jobs_per_marker"].values()) == {1}
    assert pipeline.verify(job).ok


def tokens_of_canary(pipeline: Pipeline, job: Job) -> dict[str, int]:
    tokens = document(pipeline, job)["tokens"]
    return {kind: tokens.get(kind, 0) for kind in ("input", "cached_input", "output", "reasoning")}
