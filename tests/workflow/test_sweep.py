"""The sweeper: what the provider has and the ledger does not know, and jobs that nobody works on."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from infra.local.simulator.server import SimulatorServer
from tallybatch.contracts import FailInput, JobInput, ShardItem, SweepReply
from tallybatch.domain.lifecycle import JobState, SubmissionState
from tallybatch.domain.quotas import ADMISSION
from tallybatch.steps.sweep import MAX_RUNS, UNTOUCHED_S
from tests.support.bedrock import NOVA, converse
from tests.support.films import films, report, scenario, spec, tokens_of
from tests.support.one_shard import journal, planned, row
from tests.support.orphans import create_behind_the_back
from tests.support.pipeline import RULES, Pipeline

RECORDS = 12
MARKER = "ab" * 32
LONG = {"validating": 1, "in_progress": 10_000, "finalizing": 1, "cancelling": 5}
NOTHING = SweepReply(checked=0, known=0, orphans=[], adopted=[], cancelled=[], restarted=[], stale=[])


def behind_the_back(pipeline: Pipeline, marker: str = MARKER) -> str:
    return create_behind_the_back(pipeline.simulator.openai_base_url, marker)


def submitted(pipeline: Pipeline, **changed: Any) -> ShardItem:
    """A job whose one shard was handed over, whatever came of it."""
    item = planned(pipeline, RECORDS, **changed)
    pipeline.submit(item)
    return item


def execute(pipeline: Pipeline, name: str) -> None:
    pipeline.work(JobInput.model_validate(pipeline.executions.started[name]))
    pipeline.executions.end(name)


def test_given_nothing_anywhere_when_swept_then_nothing_is_told(pipeline: Pipeline) -> None:
    assert pipeline.sweep() == NOTHING


def test_given_a_job_made_behind_the_ledgers_back_when_swept_then_it_is_found_and_left_alone(
    pipeline: Pipeline,
) -> None:
    job_id = behind_the_back(pipeline)
    behind_the_back(pipeline, marker="")

    reply = pipeline.sweep()

    assert (reply.checked, reply.known, len(reply.orphans), reply.cancelled) == (1, 0, 1, [])
    (orphan,) = reply.orphans
    assert (orphan.provider, orphan.provider_job_id, orphan.marker) == ("openai", job_id, MARKER)
    assert (orphan.state, orphan.why.partition(":")[0], orphan.tokens, orphan.cost_usd) == (
        "submitted", "unknown", None, None,
    )  # fmt: skip
    assert orphan.created_at == pytest.approx(pipeline.clock.now(), abs=2)
    assert journal(pipeline)["cancels"] == []


def test_given_an_orphan_that_has_ended_when_swept_then_its_tokens_are_those_that_were_billed(
    pipeline: Pipeline,
) -> None:
    behind_the_back(pipeline)
    pipeline.wait(60)

    (orphan,) = pipeline.sweep(cancel=True).orphans

    assert orphan.state == "done"
    assert orphan.tokens == journal(pipeline)["tokens_billed"]
    assert sum(journal(pipeline)["tokens_billed"].values()) > 0
    assert journal(pipeline)["cancels"] == []


def test_given_an_orphan_when_swept_twice_then_it_is_announced_once(pipeline: Pipeline) -> None:
    first = behind_the_back(pipeline)
    pipeline.sweep()
    pipeline.sweep()
    second = behind_the_back(pipeline, marker="cd" * 32)
    assert len(pipeline.sweep().orphans) == 2

    found = [detail["provider_job_id"] for kind, detail in pipeline.events.published if kind == "OrphanFound"]
    assert found == [first, second]


def test_given_an_orphan_when_cancel_is_asked_then_it_and_nothing_of_ours_is_cancelled(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, durations=LONG)
    item = submitted(pipeline)
    job_id = behind_the_back(pipeline)
    pipeline.wait(30)

    reply = pipeline.sweep(cancel=True)
    pipeline.wait(30)

    assert (reply.checked, reply.known, reply.cancelled) == (2, 1, [job_id])
    assert [orphan.state for orphan in reply.orphans] == ["cancelling"]
    assert [entry["job_id"] for entry in journal(pipeline)["cancels"]] == [job_id]
    assert pipeline.sweep(cancel=True).cancelled == []
    assert pipeline.provider.get(row(pipeline, item).provider_job_id).state.value == "running"


def test_given_jobs_of_ours_in_every_stage_when_swept_then_all_are_known(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec(shard_records=6))
    job = pipeline.run(films(RECORDS))
    pipeline.executions.end(job.execution_name)
    item = submitted(pipeline, prompt_version="v2")

    reply = pipeline.sweep()

    assert (reply.checked, reply.known, reply.orphans, reply.adopted, reply.stale) == (3, 3, [], [], [])
    assert pipeline.job(item.job_key).state is JobState.SUBMITTED
    assert "OrphanFound" not in pipeline.events.kinds()


def test_given_a_create_that_was_not_heard_when_swept_then_its_job_is_adopted_and_goes_on(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "lost_reply"}])
    item = submitted(pipeline)
    assert row(pipeline, item).state is SubmissionState.SUBMITTING

    reply = pipeline.sweep()

    assert (reply.checked, reply.known, reply.orphans) == (1, 0, [])
    assert reply.adopted == [row(pipeline, item).provider_job_id]
    assert row(pipeline, item).state is SubmissionState.SUBMITTED
    assert pipeline.sweep().known == 1
    pipeline.work(JobInput(tenant="acme", job_key=item.job_key, bucket="bucket"))
    assert pipeline.job(item.job_key).state is JobState.COMPLETED
    assert len(journal(pipeline)["creates"]) == 1


def test_given_two_jobs_of_one_marker_when_swept_then_the_older_is_adopted_and_the_other_recorded(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "lost_reply"}], durations=LONG)
    item = submitted(pipeline)
    pipeline.wait(5)
    twin = behind_the_back(pipeline, row(pipeline, item).submission_key)

    reply = pipeline.sweep()

    bound = row(pipeline, item)
    assert (reply.checked, reply.adopted, bound.ghosts) == (2, [bound.provider_job_id], (twin,))
    assert [(orphan.provider_job_id, orphan.job_key) for orphan in reply.orphans] == [(twin, item.job_key)]
    assert reply.orphans[0].why.startswith("superseded: attempt 1 of shard")
    again = pipeline.sweep(cancel=True)
    assert (again.known, again.orphans, again.cancelled) == (2, [], [twin])


def test_given_a_late_job_of_an_older_generation_when_swept_then_it_is_superseded_and_never_bound(
    pipeline: Pipeline,
) -> None:
    hidden_s = RULES.create_within_s + RULES.settle_window_s + 600
    scenario(
        pipeline.simulator.control,
        calls=[{"on": "create", "fault": "lost_reply"}],
        jobs=[{"fault": f"invisible_in_list_for_s:{hidden_s}", "durations": LONG}],
    )
    item = submitted(pipeline)
    while row(pipeline, item).generation == 1:
        pipeline.wait(30)
        pipeline.submit(item)
    assert pipeline.sweep().orphans == []
    pipeline.wait(hidden_s)

    reply = pipeline.sweep()

    first, second = (entry["job_id"] for entry in journal(pipeline)["creates"])
    assert (row(pipeline, item).provider_job_id, row(pipeline, item).ghosts) == (second, (first,))
    assert [orphan.provider_job_id for orphan in reply.orphans] == [first]
    pipeline.run_shard(item)
    assert row(pipeline, item).anomalies["duplicate_submission"] == 1


def test_given_a_job_that_shows_up_after_its_shard_was_reconciled_when_it_has_ended_then_it_is_booked_once(
    pipeline: Pipeline,
) -> None:
    item = submitted(pipeline)
    pipeline.run_shard(item)
    scenario(pipeline.simulator.control, durations=LONG)
    marker = row(pipeline, item).submission_key
    twin = behind_the_back(pipeline, marker)
    pipeline.wait(30)
    assert pipeline.sweep().orphans[0].tokens is None
    assert row(pipeline, item).ghosts == ()

    pipeline.sweep(cancel=True)
    pipeline.wait(30)
    (orphan,) = pipeline.sweep().orphans

    found = row(pipeline, item)
    assert (found.ghosts, found.anomalies["duplicate_submission"]) == ((twin,), 1)
    assert found.duplicate_tokens == orphan.tokens
    billed = pipeline.simulator.control.journal()["billed_nano_usd"]
    assert found.cost_nano_usd + found.duplicate_cost_nano_usd == billed
    assert Decimal(orphan.cost_usd or "0").scaleb(9) == found.duplicate_cost_nano_usd
    both = {kind: found.tokens.get(kind, 0) + count for kind, count in found.duplicate_tokens.items()}
    assert both == journal(pipeline)["tokens_billed"]
    assert pipeline.sweep().known == 2
    assert row(pipeline, item) == found


def test_given_a_provider_that_does_not_answer_when_swept_then_that_is_told_and_the_rest_is_done(
    pipeline: Pipeline,
) -> None:
    item = submitted(pipeline)
    pipeline.executions.end(f"{item.job_key}-1")
    pipeline.wait(UNTOUCHED_S + 1)
    scenario(pipeline.simulator.control, calls=[{"on": "list", "fault": "status:503", "count": "always"}])

    reply = pipeline.sweep()

    (gap,) = reply.gaps
    assert (gap.provider, reply.checked, reply.restarted) == ("openai", 0, [f"{item.job_key}-2"])


def test_given_a_list_that_is_cut_short_when_swept_then_that_is_told(pipeline: Pipeline) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "list", "fault": "empty_page", "count": "always"}])
    (gap,) = pipeline.sweep().gaps
    assert "could not be read to the end" in gap.why


def test_given_an_execution_that_was_aborted_when_swept_then_the_job_goes_on_without_a_second_create(
    pipeline: Pipeline,
) -> None:
    item = submitted(pipeline)
    pipeline.executions.end(f"{item.job_key}-1")
    assert pipeline.sweep().restarted == []
    pipeline.wait(UNTOUCHED_S + 1)

    assert pipeline.sweep().restarted == [f"{item.job_key}-2"]
    assert pipeline.sweep().restarted == []
    execute(pipeline, f"{item.job_key}-2")

    job = pipeline.job(item.job_key)
    assert (job.state, job.run, job.attempt, job.counts["succeeded"]) == (JobState.COMPLETED, 2, 1, RECORDS)
    assert len(journal(pipeline)["creates"]) == 1
    assert tokens_of(pipeline.certificate(job)) == journal(pipeline)["tokens_billed"]
    assert pipeline.verify(job).ok
    pipeline.wait(UNTOUCHED_S + 1)
    assert pipeline.sweep().restarted == []


def test_given_an_execution_that_runs_when_its_job_was_long_untouched_then_it_is_left_alone(
    pipeline: Pipeline,
) -> None:
    item = submitted(pipeline)
    pipeline.wait(20 * UNTOUCHED_S)
    assert pipeline.sweep().restarted == []
    assert pipeline.job(item.job_key).run == 1


@pytest.mark.parametrize("state", [JobState.CREATED, JobState.VALIDATED])
def test_given_a_job_whose_execution_was_never_started_when_swept_then_it_is(
    pipeline: Pipeline, state: JobState
) -> None:
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    job = pipeline.job(job_key)
    assert pipeline.ledger.put_job(replace(job, state=state), expected_version=job.version)
    pipeline.executions.started.clear()
    pipeline.wait(UNTOUCHED_S + 1)

    assert pipeline.sweep().restarted == [f"{job_key}-2"]
    execute(pipeline, f"{job_key}-2")

    assert pipeline.job(job_key).state is JobState.COMPLETED


def test_given_a_job_that_is_stopped_again_and_again_when_swept_then_at_some_point_it_is_left_to_people(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, calls=[{"on": "create", "fault": "drop_before"}])
    item = submitted(pipeline)
    names = []
    for _ in range(MAX_RUNS + 3):
        pipeline.executions.end(pipeline.job(item.job_key).execution_name)
        pipeline.wait(UNTOUCHED_S + 1)
        names += pipeline.sweep().restarted

    assert names == [f"{item.job_key}-{run}" for run in range(2, MAX_RUNS + 1)]
    assert pipeline.sweep().stale == [f"{item.job_key}/1/{item.shard_id}"]


def test_given_a_job_that_nobody_will_start_again_when_swept_then_it_has_failed_holds_nothing_and_can_be_resumed(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    assert pipeline.admit(request).status == "go"
    (item,) = pipeline.items(pipeline.plan(request))
    pipeline.reserve(item)
    for _ in range(MAX_RUNS):
        pipeline.executions.end(pipeline.job(job_key).execution_name)
        pipeline.wait(UNTOUCHED_S + 1)
        told = pipeline.sweep()

    job = pipeline.job(job_key)
    assert (job.state, job.run) == (JobState.FAILED, MAX_RUNS)
    assert "20 times" in job.reason
    assert report(pipeline.objects, job)["state"] == "FAILED"
    assert [place.split()[0] for place in told.released] == ["openai"]
    assert not list(pipeline.ledger.quota_holds(ADMISSION))
    assert pipeline.resume(job_key).started
    assert pipeline.run_again(job_key).state is JobState.COMPLETED


def test_given_an_old_job_that_was_resumed_and_stopped_when_swept_then_it_goes_on(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    pipeline.fail(FailInput(tenant="acme", job_key=job_key, bucket="bucket", error={"Error": "States.Timeout"}))
    pipeline.wait(9 * 86_400)
    pipeline.resume(job_key)
    stopped = pipeline.job(job_key).execution_name
    pipeline.admit(JobInput.model_validate(pipeline.executions.started[stopped]))
    pipeline.executions.end(stopped)
    pipeline.wait(UNTOUCHED_S + 1)

    assert pipeline.sweep().restarted == [f"{job_key}-3"]
    assert pipeline.run_again(job_key).state is JobState.COMPLETED


def test_given_a_failed_job_with_a_create_of_unknown_outcome_when_swept_then_it_is_stale_until_its_job_is_found(
    simulator: SimulatorServer,
) -> None:
    pipeline = Pipeline(simulator)
    scenario(
        simulator.control,
        calls=[{"on": "create", "fault": "lost_reply"}],
        jobs=[{"fault": "invisible_in_list_for_s:100"}],
    )
    item = submitted(pipeline)
    pipeline.fail(FailInput(tenant="acme", job_key=item.job_key, bucket="bucket", error={"Error": "States.Timeout"}))

    assert pipeline.sweep().stale == [f"{item.job_key}/1/{item.shard_id}"]
    pipeline.wait(101)
    reply = pipeline.sweep()

    assert (reply.stale, len(reply.adopted), reply.restarted) == ([], 1, [])
    pipeline.drop(films(RECORDS))
    execute(pipeline, f"{item.job_key}-2")
    assert pipeline.job(item.job_key).state is JobState.COMPLETED
    assert len(journal(pipeline)["creates"]) == 1


def test_given_an_orphan_at_bedrock_that_has_ended_when_swept_then_its_manifest_tells_its_tokens(
    simulator: SimulatorServer,
) -> None:
    pipeline = Pipeline(simulator, provider_name="bedrock")
    scenario(simulator.control, limits={"min_records": 1})
    request = {"recordId": "R0000000001", "modelInput": converse("Title: Film 1", system="You label films.")}
    pipeline.objects.put("jobs/acme/none/request.jsonl", json.dumps(request).encode() + b"\n")
    orphan = pipeline.provider.create(
        submission_key=MARKER,
        file_id=pipeline.objects.uri("jobs/acme/none/request.jsonl"),
        endpoint="Converse",
        model=NOVA,
        output_uri=pipeline.objects.uri("provider/acme/none/"),
    )
    assert pipeline.sweep().orphans[0].tokens is None
    pipeline.wait(3600)

    (found,) = pipeline.sweep().orphans

    assert (found.provider, found.provider_job_id, found.state) == ("bedrock", orphan.id, "done")
    assert found.tokens == journal(pipeline)["tokens_billed"]
    assert found.tokens is not None
    assert sum(found.tokens.values()) > 0
