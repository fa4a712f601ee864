"""A small spec, small files of films, and readers for what a job leaves behind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from infra.local.simulator.client import SimulatorControl
from tallybatch.domain.certificate import Certificate
from tallybatch.domain.layout import JobKeys, ResultKeys
from tallybatch.domain.outcomes import Outcome
from tallybatch.domain.records import ShardRecord, decode_record
from tallybatch.domain.rows import Job
from tallybatch.domain.shards import read_zstd_lines
from tallybatch.ports import Objects
from tallybatch.steps.outcome_files import read_outcomes

DATA = Path(__file__).parents[1] / "data"

SPEC = """\
name: genre
purpose: catalogue
provider: {provider}
model: {model}
endpoint: {endpoint}
input: {{key: id, fields: [title], on_bad_line: {on_bad_line}}}
prompt:
  version: {prompt_version}
  system: {system}
  user: "Title: {{{{ title }}}}"
generation: {{max_output_tokens: 400}}
output:
  schema_version: GenreV1
  schema:
    type: object
    additionalProperties: false
    required: [genre, confidence]
    properties: {{genre: {{type: string}}, confidence: {{type: number, minimum: 0, maximum: 1}}}}
retry: {{max_attempts: {max_attempts}, backoff: 1m, retry_unqualified: {retry_unqualified}{retry}}}
shards: {{max_records: {shard_records}}}
limits: {{deadline: {deadline}{limits}}}
{sections}
"""


MODELS = {
    "openai": ("gpt-5-mini-2025-08-07", "/v1/responses"),
    "bedrock": ("amazon.nova-lite-v1:0", "Converse"),
    "gemini": ("gemini-2.5-flash", "generateContent"),
}
"""Exact model and endpoint by provider."""


def spec(provider: str = "openai", **changed: Any) -> str:
    """`retry` and `limits` are further keys of these sections, `, key: value`; `sections` are further lines."""
    model, endpoint = MODELS[provider]
    values = {
        "provider": provider,
        "model": model,
        "endpoint": endpoint,
        "on_bad_line": "reject",
        "prompt_version": "genre-v1",
        "system": "You label films.",
        "max_attempts": 3,
        "retry_unqualified": "true",
        "shard_records": 10_000,
        "deadline": "48h",
        "retry": "",
        "limits": "",
        "sections": "",
    }
    return SPEC.format(**{**values, **changed})


def films(count: int, *, first: int = 1) -> bytes:
    """Made-up films; each title is a word of its own, so that a scenario's `contains: Film-007` hits one record."""
    return b"".join(film(number) + b"\n" for number in range(first, first + count))


def film(number: int) -> bytes:
    return json.dumps({"id": key_of(number), "title": f"Film-{number:03}."}).encode()


def key_of(number: int) -> str:
    return f"f{number:03}"


def scenario(control: SimulatorControl, **keys: Any) -> None:
    """Replace the scenario by these keys; records are named as `{"fault": …, "contains": "Film-007."}`."""
    control.set_scenario_text(json.dumps({"name": "test", **keys}))


def attempt_outcomes(objects: Objects, job: Job, attempt: int) -> dict[str, Outcome]:
    """By business key."""
    prefix = JobKeys(job.tenant, job.job_key).attempt(attempt)
    rows: dict[str, Outcome] = {}
    for info in objects.list(prefix):
        if info.key.endswith("/outcomes.jsonl.zst"):
            for row in read_outcomes(objects, info.key):
                assert row.business_key not in rows, "a record has two outcomes in one attempt"
                rows[row.business_key] = row
    return rows


def histories(objects: Objects, job: Job) -> dict[str, list[Outcome]]:
    """Each record's outcomes in the order of attempts, by business key."""
    told: dict[str, list[Outcome]] = {}
    for attempt in range(1, job.attempt + 1):
        for key, row in attempt_outcomes(objects, job, attempt).items():
            told.setdefault(key, []).append(row)
    return told


def classes(objects: Objects, job: Job) -> dict[str, list[str]]:
    """Each record's outcome classes in the order of attempts, by business key."""
    return {key: [row.outcome.value for row in rows] for key, rows in histories(objects, job).items()}


def retry_records(objects: Objects, job: Job, attempt: int) -> list[ShardRecord]:
    """The lines of the shards that an attempt added."""
    keys = JobKeys(job.tenant, job.job_key)
    items = json.loads(objects.get(keys.items(attempt)))
    records = []
    for item in items:
        if item["attempt"] == attempt:
            with objects.open(keys.shard(item["shard_sha256"])) as stream:
                records += [decode_record(line) for line in read_zstd_lines(stream)]
    return records


def current(objects: Objects, job: Job) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(objects.get(ResultKeys(job.tenant, job.spec, job.dataset_version).current))
    return document


def results(objects: Objects, job: Job) -> list[dict[str, Any]]:
    """All lines that a reader of current.json finds for the dataset version."""
    rows: list[dict[str, Any]] = []
    for source in current(objects, job)["sources"].values():
        for part in source["parts"]:
            body = objects.get(part["uri"].removeprefix(objects.uri("")))
            rows += lines(gzip.decompress(body) if part["uri"].endswith(".gz") else body)
    return rows


def lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.split(b"\n") if line]


def report(objects: Objects, job: Job) -> dict[str, Any]:
    keys = JobKeys(job.tenant, job.job_key)
    document: dict[str, Any] = json.loads(objects.get(keys.report_json))
    assert objects.get(keys.report_html).startswith((b"<html", b"<!doctype html", b"<!DOCTYPE html"))
    return document


def tokens_of(certificate: Certificate) -> dict[str, int]:
    """With a zero for each kind that did not occur, as the simulator tells them."""
    return {kind: certificate.tokens.get(kind, 0) for kind in ("input", "cached_input", "output", "reasoning")}


def bytes_of(objects: Objects, *, but: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Every object of the bucket, byte for byte."""
    return dict(_bodies(objects, but))


def _bodies(objects: Objects, but: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for info in objects.list(""):
        if not info.key.startswith(but):
            yield info.key, objects.get(info.key)


def plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def spent(control: SimulatorControl) -> tuple[int, int]:
    """Jobs made at the provider, and tokens it billed."""
    journal = control.journal()
    return len(journal["creates"]), journal["tokens_billed"]["input"] + journal["tokens_billed"]["output"]
