"""Publish: the accepted rows of one shard as a content-addressed part. Refused without closure."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import msgspec

from tallybatch.contracts import PublishItem
from tallybatch.domain.errors import NotClosed
from tallybatch.domain.identity import sha256_hex
from tallybatch.domain.layout import ResultKeys
from tallybatch.domain.outcomes import ACCEPTED, OVERRULING, Outcome
from tallybatch.domain.prices import usd
from tallybatch.domain.quality_labels import Labels, LabelTally
from tallybatch.domain.review import PEOPLE
from tallybatch.ports import Objects
from tallybatch.steps.job_context import JobContext, load_job
from tallybatch.steps.job_sets import record_ids
from tallybatch.steps.outcome_files import read_outcomes
from tallybatch.steps.quality_gates import require_passed
from tallybatch.steps.reconcile_job import read_closure


class ResultRow(msgspec.Struct, frozen=True):
    """One line of the published results: an accepted record. `cost_usd` is null for an answer without a price."""

    business_key: str
    record_id: str
    record_key: str
    output: msgspec.Raw
    attempt: int
    provider: str
    model: str
    """As asked, by its exact version; "" for an answer of people."""
    model_version: str
    """As the provider names it; "" where it names none."""
    finish_reason: str
    usage: dict[str, int]
    cost_usd: str | None
    provider_job_id: str
    provider_request_id: str
    raw: Any


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """What PublishShard leaves for SealJob. `sha256` and `bytes` are of the part as stored."""

    shard_id: str
    key: str
    sha256: str
    bytes: int
    records: int
    labels: Labels = {}
    """How often each value of a label field occurs, see `LabelTally`."""


def run(item: PublishItem, objects: Objects) -> Part:
    context = load_job(objects, item.tenant, item.job_key)
    closure = read_closure(objects, context.keys, item.attempt)
    if not closure.closed and not item.partial:
        raise NotClosed(
            "publishing is refused: the job's sets do not close",
            where=f"job {item.job_key}",
            why=f"missing {closure.missing}, unknown {closure.unknown}, duplicate {closure.duplicate}, "
            f"open {closure.open}",
            do="look at the report; resolve what is open",
        )
    if closure.closed:
        require_passed(context, item.attempt, objects)
    part, body = result_part(item, context, objects)
    content_type = "application/gzip" if part.key.endswith(".gz") else "application/x-ndjson"
    if part.records:
        objects.put_once(part.key, body, content_type=content_type, retention=context.retention("results"))
    objects.put_once(
        context.keys.published(item.attempt, item.shard_id),
        msgspec.json.encode(part),
        content_type="application/json",
        retention=context.retention("results"),
    )
    return part


def result_part(item: PublishItem, context: JobContext, objects: Objects) -> tuple[Part, bytes]:
    """The part of a shard and its bytes: they follow from the outcomes alone."""
    tally = LabelTally(context.spec.output.schema_)
    rows = list(result_lines(item, context, tally, objects))
    body = b"".join(rows)
    gzipped = context.spec.output.compression == "gzip"
    if gzipped:
        body = gzip.compress(body, mtime=0)
    manifest = context.manifest
    sha256 = sha256_hex(body)
    results = ResultKeys(manifest.tenant, manifest.spec, manifest.dataset_version)
    key = results.part(sha256, gzipped=gzipped)
    return Part(item.shard_id, key, sha256, len(body), len(rows), tally.labels if rows else {}), body


def result_lines(item: PublishItem, context: JobContext, tally: LabelTally, objects: Objects) -> Iterator[bytes]:
    """In the order of the shard, whatever the attempt in which a record was accepted. The outcome objects are in the
    order of attempts: what people have withdrawn since is left out."""
    shard = next(entry for entry in context.manifest.shards if entry.shard_id == item.shard_id)
    own = context.manifest.model_resolved
    accepted: dict[str, tuple[bytes, msgspec.Raw]] = {}
    for key in item.outcomes:
        for outcome in read_outcomes(objects, key):
            if outcome.shard_id != item.shard_id:
                continue
            if outcome.outcome in OVERRULING:
                accepted.pop(outcome.record_id, None)
            elif outcome.outcome in ACCEPTED and outcome.record_id not in accepted:
                accepted[outcome.record_id] = msgspec.json.encode(_result(outcome, own)), outcome.output
    for record_id in record_ids(objects, context.keys, shard.sha256):
        if (found := accepted.get(record_id)) is not None:
            tally.add(found[1])
            yield found[0] + b"\n"


def _result(outcome: Outcome, own_model: str) -> ResultRow:
    usage = outcome.usage
    return ResultRow(
        business_key=outcome.business_key,
        record_id=outcome.record_id,
        record_key=outcome.record_key,
        output=outcome.output,
        attempt=outcome.attempt,
        provider=outcome.provider,
        model="" if outcome.provider == PEOPLE else outcome.model or own_model,
        model_version=outcome.model_version,
        finish_reason=outcome.finish_reason,
        usage={
            "input": usage.input,
            "cached_input": usage.cached_input,
            "output": usage.output,
            "reasoning": usage.reasoning,
        },
        cost_usd=usd(outcome.cost_nano_usd),
        provider_job_id=outcome.provider_job_id,
        provider_request_id=outcome.provider_request_id,
        raw=outcome.raw,
    )
