"""The certificate is a proof: whatever is changed, added or lost under a job, verify names it."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec
import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch.domain.layout import ResultKeys
from tallybatch.domain.rows import Job
from tests.support.films import films, scenario, spec
from tests.support.pipeline import Pipeline

KINDS = {
    "attempts/*/judgement.json",
    "manifest.json", "spec.yaml", "plan.json", "certificate.json", "report.json", "report.html", "shards/*.jsonl.zst",
    "attempts/1/shards.json", "attempts/1/closure.json", "attempts/1/open-*.jsonl.zst", "attempts/1/publish-*.json",
    "attempts/2/shards.json", "attempts/2/closure.json", "attempts/2/open-*.jsonl.zst", "attempts/2/publish-*.json",
    "attempts/*/*/claims.jsonl.zst", "attempts/*/*/request.jsonl", "attempts/*/*/outcomes.jsonl.zst",
    "attempts/*/*/raw/output.jsonl", "attempts/*/*/raw/error.jsonl", "attempts/*/*/raw/provider_job.json",
    "attempts/2/published/*.json",
}  # fmt: skip
"""Every kind of object that a job leaves under its prefix."""


@pytest.fixture(scope="module")
def sealed(simulator_of_the_worker: SimulatorServer) -> Iterator[tuple[Pipeline, Job]]:
    """Two shards, one retry, one record that fails for good."""
    control = simulator_of_the_worker.control
    control.reset()
    faults = [{"fault": "error_500", "contains": "Film-003."}, {"fault": "error_400", "contains": "Film-015."}]
    scenario(control, records=faults)
    pipeline = Pipeline(simulator_of_the_worker)
    pipeline.push_spec(spec(shard_records=10))
    yield pipeline, pipeline.run(films(20))


def job_objects(pipeline: Pipeline, job: Job) -> list[str]:
    return [info.key for info in pipeline.objects.list(pipeline.keys(job).prefix)]


def by_kind(pipeline: Pipeline, job: Job) -> dict[str, str]:
    """One object of each kind."""
    found: dict[str, str] = {}
    for key in job_objects(pipeline, job):
        path = PurePosixPath(key.removeprefix(pipeline.keys(job).prefix))
        kind = next((kind for kind in KINDS if path.match(kind)), f"unknown kind: {path}")
        found.setdefault(kind, key)
    return found


def flipped(body: bytes, position: int, bit: int) -> bytes:
    return body[:position] + bytes([body[position] ^ (1 << bit)]) + body[position + 1 :]


def test_given_a_sealed_job_when_its_objects_are_listed_then_each_kind_is_known(sealed: tuple[Pipeline, Job]) -> None:
    pipeline, job = sealed

    assert pipeline.verify(job).ok
    assert set(by_kind(pipeline, job)) == KINDS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_given_one_flipped_bit_in_an_object_of_each_kind_when_verified_then_it_is_named(
    sealed: tuple[Pipeline, Job], kind: str
) -> None:
    pipeline, job = sealed
    key = by_kind(pipeline, job)[kind]
    body = pipeline.objects.get(key)
    chosen = random.Random(kind)
    for position in {0, len(body) - 1, *(chosen.randrange(len(body)) for _ in range(6))}:
        pipeline.objects.put(key, flipped(body, position, chosen.randrange(8)))

        verdict = pipeline.verify(job)

        assert not verdict.ok, f"byte {position} of {key} was changed unnoticed"
        assert pipeline.objects.uri(key) in verdict.difference
    pipeline.objects.put(key, body)
    assert pipeline.verify(job).ok


def test_given_any_flipped_byte_of_some_objects_when_verified_then_it_is_named(sealed: tuple[Pipeline, Job]) -> None:
    pipeline, job = sealed
    parts = [sealed_object.key for sealed_object in pipeline.certificate(job).results]
    small = [key for key in job_objects(pipeline, job) if len(pipeline.objects.get(key)) < 700]
    for key in [*random.Random(7).sample(small, 3), *parts[:1]]:
        body = pipeline.objects.get(key)
        for position in range(0, len(body), 1 if len(body) < 700 else len(body) // 100):
            pipeline.objects.put(key, flipped(body, position, position % 8))
            verdict = pipeline.verify(job)
            assert pipeline.objects.uri(key) in verdict.difference, f"byte {position}"
        pipeline.objects.put(key, body)


def test_given_an_object_that_was_added_when_verified_then_it_is_named(sealed: tuple[Pipeline, Job]) -> None:
    pipeline, job = sealed
    key = pipeline.keys(job).attempt(1) + "slipped-in.json"
    pipeline.objects.put(key, b"{}")

    verdict = pipeline.verify(job)

    pipeline.objects.delete(key)
    assert (verdict.ok, pipeline.objects.uri(key) in verdict.difference) == (False, True)
    assert pipeline.verify(job).ok


def test_given_an_object_that_is_lost_when_verified_then_it_is_named(sealed: tuple[Pipeline, Job]) -> None:
    pipeline, job = sealed
    parts = [sealed_object.key for sealed_object in pipeline.certificate(job).results]
    for key in [*by_kind(pipeline, job).values(), *parts]:
        if key == pipeline.keys(job).certificate:
            continue
        body = pipeline.objects.get(key)
        pipeline.objects.delete(key)
        verdict = pipeline.verify(job)
        pipeline.objects.put(key, body)
        assert not verdict.ok
        assert pipeline.objects.uri(key) in verdict.difference
    assert pipeline.verify(job).ok


@pytest.mark.parametrize(
    "name",
    ["attempts/9/shards.json", "attempts/4/shards.json", "attempts/3/x.json", "certificates/x.json", "certificates/y"],
)
def test_given_an_object_that_looks_like_a_later_one_when_verified_then_it_is_named(
    sealed: tuple[Pipeline, Job], name: str
) -> None:
    """Two attempts are certified: the next one is the third, and leaves no x.json."""
    pipeline, job = sealed
    key = pipeline.keys(job).prefix + name
    pipeline.objects.put(key, b"{}")

    verdict = pipeline.verify(job)

    pipeline.objects.delete(key)
    assert (verdict.ok, verdict.gone_on, pipeline.objects.uri(key) in verdict.difference) == (False, False, True)


def test_given_a_job_that_has_gone_on_when_an_object_was_added_to_what_is_certified_then_it_is_named(
    sealed: tuple[Pipeline, Job],
) -> None:
    pipeline, job = sealed
    keys = pipeline.keys(job)
    later, added = keys.no_items(3), keys.attempt(1) + "slipped-in.json"
    pipeline.objects.put(later, b"[]")
    gone_on = pipeline.verify(job)
    pipeline.objects.put(added, b"{}")

    verdict = pipeline.verify(job)

    pipeline.objects.delete(later)
    pipeline.objects.delete(added)
    assert (gone_on.ok, gone_on.gone_on) == (True, True)
    assert (verdict.ok, pipeline.objects.uri(added) in verdict.difference) == (False, True)


def test_given_any_changed_byte_of_what_readers_are_told_when_verified_then_it_is_named(
    sealed: tuple[Pipeline, Job],
) -> None:
    """But for the moment of the drop, which no object proves, and for the version of the document."""
    pipeline, job = sealed
    key = ResultKeys(job.tenant, job.spec, job.dataset_version).current
    body = pipeline.objects.get(key)
    begin, end = body.index(b'"sources"'), len(body)
    dropped = re.search(rb'"dropped_at": [0-9.]+', body)
    assert dropped is not None
    for position in range(begin, end):
        changed = flipped(body, position, position % 7)
        if dropped.start() <= position < dropped.end() or says_the_same(changed, body):
            continue
        pipeline.objects.put(key, changed)
        verdict = pipeline.verify(job)
        assert pipeline.objects.uri(key) in verdict.difference, f"byte {position}"
    pipeline.objects.delete(key)
    gone = pipeline.verify(job)
    pipeline.objects.put(key, body)
    assert pipeline.objects.uri(key) in gone.difference
    assert pipeline.verify(job).ok


def says_the_same(left: bytes, right: bytes) -> bool:
    """Whether both say the same: a changed blank does not count."""
    try:
        return bool(msgspec.json.decode(left) == msgspec.json.decode(right))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def test_given_a_lost_certificate_of_a_part_when_verified_then_it_is_missed(simulator: SimulatorServer) -> None:
    """The certificate before it would prove itself, and take what it does not know for what came later."""
    scenario(simulator.control, records=[{"fault": "error_400", "contains": "Film-003.", "times": 1}])
    pipeline = Pipeline(simulator)
    pipeline.push_spec(spec(sections="review: {classes: [permanent]}"))
    job = pipeline.run(films(20))
    for _ in range(2):
        pipeline.resume(job.job_key, "publish_partial")
        job = pipeline.run_again(job.job_key)
    assert pipeline.verify(job).ok
    newest = [info.key for info in pipeline.objects.list(pipeline.keys(job).later_certificates)][-1]
    pipeline.objects.delete(newest)

    verdict = pipeline.verify(job)

    assert (verdict.ok, pipeline.objects.uri(newest) in verdict.difference) == (False, True)


def test_given_a_compressed_part_of_another_zlib_when_verified_then_its_rows_count(
    simulator: SimulatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13, which publishes on AWS, writes another header than the 3.11 of a laptop."""
    pipeline = Pipeline(simulator)
    pipeline.push_spec(spec(sections="").replace("GenreV1\n", "GenreV1\n  compression: gzip\n", 1))
    compress = gzip.compress

    def elsewhere(data: bytes, *, mtime: float | None = None) -> bytes:
        packed = bytearray(compress(data, 1, mtime=mtime))
        packed[9] = 255
        return bytes(packed)

    monkeypatch.setattr(gzip, "compress", elsewhere)
    job = pipeline.run(films(20))
    monkeypatch.undo()

    assert job.state.value == "COMPLETED"
    assert pipeline.verify(job).ok
