"""A provider's port of which single calls are done by the test, and how far a submission has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallybatch.contracts import JobInput, ShardItem
from tallybatch.domain.rows import Job, Submission
from tests.support.films import films, spec
from tests.support.pipeline import Pipeline

RECORDS = 20


class Hooked:
    """`hooks` by the call's name; each gets the real port first, then what was passed."""

    def __init__(self, inner: Any, **hooks: Callable[..., Any]) -> None:
        self._inner = inner
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        if name in self._hooks:
            return lambda *passed, **named: self._hooks[name](self._inner, *passed, **named)
        return getattr(self._inner, name)


def planned(pipeline: Pipeline, **changed: Any) -> ShardItem:
    """A job of one shard that was not submitted yet."""
    pipeline.push_spec(spec(pipeline.provider_name, **changed))
    job_key = pipeline.drop(films(RECORDS))["job_key"]
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
