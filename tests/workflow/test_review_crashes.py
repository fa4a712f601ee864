"""Whoever carries out what a person asked may die at any call: asked again, it has happened once, and all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tallybatch.domain.rows import Job, RecordRow
from tests.support.films import bytes_of, films, key_of, lines, results, scenario, spec, spent
from tests.support.interrupted import InterruptedPipeline, Interrupter
from tests.support.pipeline import Pipeline
from tests.support.snapshots import Snapshot
from tests.workflow.test_review import accept, file_of, reject


@dataclass
class Start:
    """A job at rest, what is asked of it, and the end that must come of it."""

    snapshot: Snapshot
    job: Job
    ask: Callable[[InterruptedPipeline], Any]
    state: str = "COMPLETED"
    counts: dict[str, int] = field(default_factory=dict)


def in_review(pipeline: Pipeline) -> Start:
    rules = [{"fault": "refusal", "contains": f"Film-00{number}.", "times": "always"} for number in (2, 4)]
    scenario(pipeline.simulator.control, records=rules)
    pipeline.push_spec(spec(max_attempts=1, shard_records=3) + "review: {classes: [refused]}\n")
    job = pipeline.run(films(5))
    assert job.state.value == "PARTIAL"
    decisions = file_of(accept(2), reject(4))
    return Start(
        Snapshot(pipeline),
        job,
        lambda copy: copy.hand_in(job, decisions),
        counts={"succeeded": 4, "failed": 1, "in_review": 0},
    )


def sampled(pipeline: Pipeline) -> Start:
    pipeline.push_spec(spec(shard_records=3) + "quality: {review_sample: 2}\n")
    job = pipeline.run(films(5))
    assert job.state.value == "COMPLETED"
    first, second = lines(pipeline.objects.get(pipeline.keys(job).review_sample))
    decisions = file_of(
        {"record_id": first["record_id"], "decision": "reject", "reason": "wrong"},
        {"record_id": second["record_id"], "decision": "accept"},
    )
    return Start(
        Snapshot(pipeline), job, lambda copy: copy.hand_in(job, decisions), counts={"succeeded": 4, "failed": 1}
    )


def with_strangers(pipeline: Pipeline) -> Start:
    scenario(pipeline.simulator.control, records=[{"fault": "unknown_id", "contains": "Film-003."}])
    pipeline.push_spec(spec())
    job = pipeline.run(films(5))
    assert job.state.value == "PARTIAL"
    return Start(
        Snapshot(pipeline),
        job,
        lambda copy: copy.resume(job.job_key, "acknowledge"),
        counts={"succeeded": 5, "unknown": 0},
    )


def in_part(pipeline: Pipeline) -> Start:
    start = in_review(pipeline)
    job = start.job
    return Start(
        start.snapshot,
        job,
        lambda copy: copy.resume(job.job_key, "publish_partial"),
        state="PARTIAL",
        counts={"succeeded": 3, "in_review": 2},
    )


STARTS = {"review": in_review, "sample": sampled, "acknowledge": with_strangers, "part": in_part}


@dataclass
class Run:
    pipeline: InterruptedPipeline
    job: Job

    @property
    def objects(self) -> set[str]:
        return set(bytes_of(self.pipeline.objects))

    @property
    def records(self) -> dict[str, RecordRow]:
        ledger: Any = self.pipeline.ledger
        return dict(ledger._inner._records)


def run(start: Start, interrupter: Interrupter) -> Run:
    pipeline = start.snapshot.again(interrupter)
    pipeline.task("Asked", lambda: start.ask(pipeline))
    return Run(pipeline, pipeline.run_again(start.job.job_key))


def assert_ends(start: Start, done: Run, where: str) -> None:
    assert (done.job.state.value, {name: done.job.counts[name] for name in start.counts}) == (
        start.state, start.counts,
    ), where  # fmt: skip
    assert done.job.run == start.job.run + 1, where
    assert len(results(done.pipeline.objects, done.job)) == start.counts["succeeded"], where
    assert done.pipeline.verify(done.job).difference == "", where


@pytest.mark.parametrize("name", STARTS)
def test_given_a_death_at_any_call_when_it_is_asked_again_then_it_ends_as_if_nothing_had_happened(
    pipeline: Pipeline, name: str
) -> None:
    start = STARTS[name](pipeline)
    paid = spent(pipeline.simulator.control)
    undisturbed = Interrupter()
    expected = run(start, undisturbed)
    assert_ends(start, expected, "undisturbed")
    assert len(undisturbed.points()) > 60

    for point in undisturbed.points():
        interrupter = Interrupter(point)
        done = run(start, interrupter)
        where = f"dying {point[1]} call {point[0]}, {interrupter.struck}"
        assert interrupter.struck == undisturbed.calls[point[0]], where
        assert_ends(start, done, where)
        assert done.objects == expected.objects, where
        assert done.records.keys() == expected.records.keys(), where
        owners = {key: (row.owner, row.answer) for key, row in done.records.items()}
        assert owners == {key: (row.owner, row.answer) for key, row in expected.records.items()}, where
    assert spent(pipeline.simulator.control) == paid


def test_given_the_death_of_whoever_took_decisions_when_the_sweeper_comes_then_they_are_carried_out(
    pipeline: Pipeline,
) -> None:
    start = in_review(pipeline)
    interrupter = Interrupter()
    run(start, interrupter)
    at_start = interrupter.calls.index("MemoryExecutions.start")
    copy = start.snapshot.again(Interrupter((at_start, "before")))
    with copy.interrupter.armed(), pytest.raises(Exception, match=r"MemoryExecutions\.start"):
        start.ask(copy)
    copy.wait(3600)

    (name,) = copy.sweep().restarted

    job = copy.run_again(start.job.job_key)
    assert (job.execution_name, job.state.value) == (name, "COMPLETED")
    assert {row["business_key"] for row in results(copy.objects, job)} == {key_of(n) for n in (1, 2, 3, 5)}
