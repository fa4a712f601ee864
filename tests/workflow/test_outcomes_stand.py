"""An outcome object that is there is what counts, whatever a later version of the code would make of the same lines."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
import zstandard
from msgspec.structs import replace

from tallybatch import wiring
from tallybatch.contracts import JobInput, ShardItem
from tallybatch.domain.errors import ObjectDamaged, Retryable
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.outcomes import OutcomeClass, RecordResult
from tallybatch.domain.rows import AcceptedAnswer
from tallybatch.domain.shards import read_zstd_lines
from tallybatch.domain.spec import Spec
from tallybatch.ports import ProviderFormat
from tallybatch.steps import reconcile_shard
from tallybatch.steps.outcome_files import FRAME_LINES, fetch_accepted, read_outcomes, read_placed
from tests.support.films import results, scenario, tokens_of
from tests.support.one_shard import planned, row
from tests.support.pipeline import Pipeline

RECORDS = 2 * FRAME_LINES + 88


class Dying:
    """A ledger that is gone when the first answers are to be accepted."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def accept_records(self, _: Sequence[AcceptedAnswer]) -> Sequence[bool]:
        raise Retryable("the function died here")


class Newer:
    """A later version of the format, to which every third answer is none."""

    def __init__(self, inner: ProviderFormat) -> None:
        self._inner = inner
        self._parsed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def parse(self, line: bytes) -> RecordResult:
        result = self._inner.parse(line)
        self._parsed += 1
        return replace(result, outcome=OutcomeClass.PERMANENT, answer=None) if self._parsed % 3 == 0 else result


def newer(given: Spec) -> ProviderFormat:
    return Newer(wiring.formats(given))


def reconcile(pipeline: Pipeline, item: ShardItem, **other: Any) -> dict[str, int]:
    ports: dict[str, Any] = {
        "objects": pipeline.objects, "ledger": pipeline.ledger, "clock": pipeline.clock, "formats": wiring.formats,
    }  # fmt: skip
    return reconcile_shard.run(item, reconcile_shard.Ports(**{**ports, **other}))


def collected(pipeline: Pipeline, records: int) -> ShardItem:
    """A shard whose results are there, and nothing concluded of them."""
    item = planned(pipeline, records)
    pipeline.submit(item)
    pipeline.wait(60)
    pipeline.poll(item)
    pipeline.collect(item)
    return item


def concluded(pipeline: Pipeline, **faults: Any) -> tuple[ShardItem, str, bytes]:
    """A shard whose outcome object was written, and not one answer accepted; the object's key and bytes."""
    scenario(pipeline.simulator.control, **faults)
    item = collected(pipeline, RECORDS)
    with pytest.raises(Retryable):
        reconcile(pipeline, item, ledger=Dying(pipeline.ledger))
    key = pipeline.keys(pipeline.job(item.job_key)).outcomes(1, row(pipeline, item).submission_key)
    return item, key, pipeline.objects.get(key)


def test_given_an_outcome_object_when_newer_code_would_conclude_otherwise_then_the_object_counts(
    pipeline: Pipeline,
) -> None:
    item, key, body = concluded(pipeline, records=[{"fault": "error_500", "contains": "Film-003."}])

    counts = reconcile(pipeline, item, formats=newer)

    assert counts == {"succeeded": RECORDS - 1, "retryable": 1}
    assert pipeline.objects.get(key) == body
    done = row(pipeline, item)
    assert (done.state, done.outcomes_key, done.counts) == (SubmissionState.RECONCILED, key, counts)
    pipeline.work(JobInput(tenant="acme", job_key=item.job_key, bucket="bucket"))
    job = pipeline.job(item.job_key)
    assert (job.state, len(results(pipeline.objects, job))) == (JobState.COMPLETED, RECORDS)
    assert tokens_of(pipeline.certificate(job)) == pipeline.simulator.control.journal()["tokens_billed"]
    assert pipeline.verify(job).ok


def test_given_strange_ids_that_were_quarantined_when_newer_code_reads_others_then_there_is_no_conflict(
    pipeline: Pipeline,
) -> None:
    item, _, _ = concluded(pipeline, records=[{"fault": "unknown_id", "contains": "Film-00"}])
    kept = {info.key: pipeline.objects.get(info.key) for info in pipeline.objects.list("quarantine/")}
    assert len(kept) == 1

    class Stricter(Newer):
        def parse(self, line: bytes) -> RecordResult:
            result = self._inner.parse(line)
            self._parsed += 1
            if self._parsed % 2:
                raise ValueError("no record to this version")
            return result

    counts = reconcile(pipeline, item, formats=lambda given: Stricter(wiring.formats(given)))

    assert counts == {"succeeded": RECORDS}
    assert {info.key: pipeline.objects.get(info.key) for info in pipeline.objects.list("quarantine/")} == kept


def test_given_an_object_of_several_frames_when_read_with_places_then_each_row_is_where_it_says(
    pipeline: Pipeline,
) -> None:
    item, key, body = concluded(pipeline)

    placed = list(read_placed(pipeline.objects, key))

    assert [outcome for outcome, _ in placed] == list(read_outcomes(pipeline.objects, key))
    frames = sorted({(place.offset, place.length) for _, place in placed})
    assert len(frames) == 3
    assert [offset for offset, _ in frames] == [0, frames[0][1], frames[0][1] + frames[1][1]]
    assert sum(length for _, length in frames) == len(body)
    answers = [
        AcceptedAnswer(outcome.record_key, item.job_key, 1, pipeline.objects.uri(key), *place)
        for outcome, place in placed
    ]
    assert [outcome for _, outcome in fetch_accepted(pipeline.objects, answers)] == [outcome for outcome, _ in placed]


@pytest.mark.parametrize("cut", [1, 100])
def test_given_an_object_that_breaks_off_when_read_with_places_then_it_is_damaged(pipeline: Pipeline, cut: int) -> None:
    _, key, body = concluded(pipeline)
    pipeline.objects.put(key, body[:-cut])
    with pytest.raises(ObjectDamaged, match="breaks off"):
        list(read_placed(pipeline.objects, key))


def test_given_a_shard_that_names_a_record_twice_when_reconciled_then_nothing_is_concluded_of_it(
    pipeline: Pipeline,
) -> None:
    """No shard of ours does: answers would go to the wrong records from there on."""
    item = collected(pipeline, 4)
    key = pipeline.keys(pipeline.job(item.job_key)).shard(item.shard_sha256)
    lines = list(read_zstd_lines(io.BytesIO(pipeline.objects.get(key))))
    body = b"".join(line + b"\n" for line in [lines[0], *lines])
    pipeline.objects.put(key, zstandard.ZstdCompressor().compress(body))

    with pytest.raises(ValueError, match="shorter"):
        reconcile(pipeline, item)
    assert row(pipeline, item).state is SubmissionState.COLLECTED
