"""A job of one shard, step by step: planned, looked at, worked to its end."""

from __future__ import annotations

from typing import Any

from tallybatch.contracts import JobInput, ShardItem
from tallybatch.domain.rows import Job, Submission
from tests.support.films import films, spec
from tests.support.pipeline import Pipeline


def planned(pipeline: Pipeline, records: int, **changed: Any) -> ShardItem:
    """A job of one shard that was not submitted yet."""
    pipeline.push_spec(spec(pipeline.provider_name, **changed))
    job_key = pipeline.drop(films(records))["job_key"]
    request = JobInput(tenant="acme", job_key=job_key, bucket=pipeline.objects.bucket)
    (item,) = pipeline.items(pipeline.plan(request))
    return item


def row(pipeline: Pipeline, item: ShardItem) -> Submission:
    found = pipeline.ledger.submission(item.job_key, item.attempt, item.shard_id)
    assert found is not None
    return found


def journal(pipeline: Pipeline) -> dict[str, Any]:
    return pipeline.simulator.control.journal()


def finish(pipeline: Pipeline, item: ShardItem) -> Job:
    pipeline.work(JobInput(tenant="acme", job_key=item.job_key, bucket=pipeline.objects.bucket))
    return pipeline.job(item.job_key)
