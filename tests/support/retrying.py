"""One small job under a spec with other retry keys, and what its records went through."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from tallybatch.domain.closure import Closure, ReviewRecord
from tallybatch.domain.outcomes import Outcome
from tallybatch.domain.records import ShardRecord
from tallybatch.domain.rows import Job
from tallybatch.domain.shards import read_zstd_lines
from tests.support.films import classes, films, histories, key_of, scenario, spec
from tests.support.pipeline import Pipeline

HIT, KEY = "Film-007.", key_of(7)
RECORDS = 12


def run(pipeline: Pipeline, changed: dict[str, Any], hits: Sequence[dict[str, Any]] = (), **faults: Any) -> Job:
    scenario(pipeline.simulator.control, records=list(hits), **faults)
    pipeline.push_spec(spec(**changed))
    return pipeline.run(films(RECORDS))


def history(pipeline: Pipeline, job: Job) -> list[Outcome]:
    return histories(pipeline.objects, job)[KEY]


def told(pipeline: Pipeline, job: Job) -> list[str]:
    return classes(pipeline.objects, job)[KEY]


def requests(pipeline: Pipeline, job: Job, attempt: int) -> dict[str, dict[str, Any]]:
    """The bodies of an attempt's requests by record_id."""
    prefix = pipeline.keys(job).attempt(attempt)
    files = [info.key for info in pipeline.objects.list(prefix) if info.key.endswith("request.jsonl")]
    lines = [json.loads(line) for key in files for line in pipeline.objects.get(key).splitlines()]
    return {line["custom_id"]: line["body"] for line in lines}


def retry_lines(pipeline: Pipeline, job: Job, attempt: int) -> list[ShardRecord]:
    items = msgspec.json.decode(pipeline.objects.get(pipeline.keys(job).items(attempt)))
    lines = []
    for item in items:
        with pipeline.objects.open(pipeline.keys(job).shard(item["shard_sha256"])) as stream:
            lines += [msgspec.json.decode(line, type=ShardRecord) for line in read_zstd_lines(stream)]
    return lines


def closure(pipeline: Pipeline, job: Job) -> Closure:
    return msgspec.json.decode(pipeline.objects.get(pipeline.keys(job).closure(job.attempt)), type=Closure)


def for_people(pipeline: Pipeline, job: Job) -> list[ReviewRecord]:
    with pipeline.objects.open(closure(pipeline, job).review_key) as stream:
        return [msgspec.json.decode(line, type=ReviewRecord) for line in read_zstd_lines(stream)]


def creates(pipeline: Pipeline) -> int:
    return len(pipeline.simulator.control.journal()["creates"])


def hit(fault: str, **more: Any) -> list[dict[str, Any]]:
    return [{"fault": fault, "contains": HIT, **more}]
