"""Records that one provider does not answer go to the next one of the spec, and have one accepted answer all the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.domain.errors import BadInput
from tallybatch.domain.identity import RecordIdentity
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.rows import Job
from tallybatch.domain.spec_file import parse_spec
from tallybatch.domain.submitting import SubmitRules
from tests.support.films import MODELS, films, histories, key_of, lines, report, results, scenario, spec
from tests.support.interrupted import InterruptedPipeline, Interrupter
from tests.support.pipeline import TENANT, Pipeline

RECORDS = 12
OPENAI, BEDROCK, GEMINI = (MODELS[name][0] for name in ("openai", "bedrock", "gemini"))
HIT, KEY = "Film-007.", key_of(7)


def chain(*providers: str, **changed: Any) -> str:
    """The first is the spec's own."""
    first, *others = providers
    listed = ", ".join(f"{{provider: {name}, model: '{MODELS[name][0]}'}}" for name in others)
    sections = f"fallback: [{listed}]\n" + changed.pop("sections", "")
    return spec(first, **{"max_attempts": 2, "sections": sections, **changed})


def down(*providers: str, fault: str = "error_500", contains: str = HIT) -> list[dict[str, Any]]:
    return [{"fault": fault, "contains": contains, "times": "always", "provider": name} for name in providers]


def run(pipeline: Pipeline, text: str, hits: list[dict[str, Any]], **faults: Any) -> Job:
    scenario(pipeline.simulator.control, records=hits, **faults)
    pipeline.push_spec(text)
    return pipeline.run(films(RECORDS))


def way(pipeline: Pipeline, job: Job, key: str = KEY) -> list[tuple[str, str]]:
    """Provider and outcome class of each attempt of a record."""
    return [(row.provider, row.outcome.value) for row in histories(pipeline.objects, job)[key]]


def bill(pipeline: Pipeline) -> Counter[str]:
    """Jobs made, by provider."""
    return Counter(entry["provider"] for entry in pipeline.simulator.control.journal()["creates"])


def test_given_a_record_that_two_providers_fail_when_tried_at_the_third_then_it_is_accepted_under_that_models_key(
    pipeline: Pipeline,
) -> None:
    job = run(pipeline, chain("openai", "gemini", "bedrock"), down("openai", "gemini"))

    assert job.state.value == "COMPLETED"
    print([(r.provider, r.code, r.reason) for r in histories(pipeline.objects, job)[KEY]])
    assert way(pipeline, job) == [
        ("openai", "retryable"),
        ("openai", "retryable"),
        ("gemini", "retryable"),
        ("gemini", "retryable"),
        ("bedrock", "succeeded"),
    ]
    assert bill(pipeline) == {"openai": 2, "gemini": 2, "bedrock": 1}
    rows = {row["business_key"]: row for row in results(pipeline.objects, job)}
    assert len(rows) == RECORDS
    own = parse_spec(chain("openai", "gemini", "bedrock").encode())
    for key, row in rows.items():
        target = own.targets[2 if key == KEY else 0]
        assert (row["provider"], row["model_version"]) == target.place
        last = histories(pipeline.objects, job)[key][-1]
        version = next(record for record in shard_lines(pipeline, job) if record["business_key"] == key)
        identity: RecordIdentity = target.identity(TENANT)
        assert row["record_key"] == last.record_key
        assert row["record_key"] == identity.record_key(row["record_id"], version["source_version"])
    assert pipeline.verify(job).ok
    assert [entry.model for entry in pipeline.certificate(job).submissions] == [OPENAI] * 2 + [GEMINI] * 2 + [BEDROCK]


def shard_lines(pipeline: Pipeline, job: Job) -> list[dict[str, Any]]:
    import zstandard

    (info,) = [i for i in pipeline.objects.list(pipeline.keys(job).prefix + "shards/") if i.size][:1]
    del info
    found: list[dict[str, Any]] = []
    for entry in pipeline.objects.list(pipeline.keys(job).prefix + "shards/"):
        with pipeline.objects.open(entry.key) as stream:
            reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
            found += lines(reader.read())
    return found
