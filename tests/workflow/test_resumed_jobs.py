"""What a person asks of a job that has ended without completing: go on, count unknown ids as seen, publish a part."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tallybatch.contracts import FailInput, JobInput, PublishItem
from tallybatch.domain.certificate import Certificate, from_bytes
from tallybatch.domain.errors import BadInput, Conflict, NotClosed, NotFound
from tallybatch.domain.rows import Job
from tallybatch.steps import cancel_job
from tallybatch.steps.reconcile_job import read_closure
from tests.support.films import current, films, key_of, report, results, scenario, spec, spent, tokens_of
from tests.support.pipeline import Pipeline

RECORDS = 20
HOUR = {"validating": 10, "in_progress": 3600, "finalizing": 10, "cancelling": 60}


def newest(pipeline: Pipeline, job: Job) -> Certificate:
    return from_bytes(pipeline.objects.get(job.certificate.removeprefix(pipeline.objects.uri(""))), where="test")


def with_a_stranger(pipeline: Pipeline, *more: dict[str, Any], **changed: Any) -> Job:
    scenario(pipeline.simulator.control, records=[{"fault": "unknown_id", "contains": "Film-003."}, *more])
    pipeline.push_spec(spec(**changed))
    job = pipeline.run(films(RECORDS))
    assert (job.state.value, job.counts["unknown"]) == ("PARTIAL", 1)
    return job


def cancelled_at_two_fifths(pipeline: Pipeline) -> Job:
    scenario(pipeline.simulator.control, durations=HOUR)
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    (item,) = pipeline.items(pipeline.plan(request))
    pipeline.submit(item)
    pipeline.wait(10 + 0.42 * 3600)
    cancel_job.run(job_key, pipeline.ledger, pipeline.clock)
    pipeline.work(request)
    job = pipeline.job(job_key)
    assert (job.state.value, job.counts["succeeded"]) == ("CANCELLED", 8)
    return job


def test_given_an_unknown_id_when_somebody_acknowledges_it_then_the_job_closes_and_the_act_is_on_record(
    pipeline: Pipeline,
) -> None:
    job = with_a_stranger(pipeline)
    paid = spent(pipeline.simulator.control)

    reply = pipeline.resume(job.job_key, "acknowledge", by="ada")
    assert (reply.started, reply.acknowledged, reply.by, reply.left) == (True, 1, "ada", {})
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.counts["unknown"], job.counts["succeeded"]) == ("COMPLETED", 0, RECORDS)
    assert spent(pipeline.simulator.control) == paid
    keys = pipeline.keys(job)
    act = json.loads(pipeline.objects.get(keys.acknowledgement(job.attempt - 1)))
    (lines,) = act["quarantined"]
    assert (act["by"], act["lines"], act["at"] > 0) == ("ada", 1, True)
    assert lines["sha256"] == hashlib.sha256(pipeline.objects.get(lines["key"])).hexdigest()
    assert pipeline.certificate(job).acknowledged == 1
    assert pipeline.verify(job).ok


def test_given_unknown_ids_and_open_records_when_acknowledged_then_nothing_is_spent_until_somebody_resumes(
    pipeline: Pipeline,
) -> None:
    job = cancelled_with_a_stranger(pipeline)
    paid = spent(pipeline.simulator.control)
    reply = pipeline.resume(job.job_key, "acknowledge")
    assert (reply.started, reply.acknowledged, list(reply.left)) == (False, 1, ["open"])
    assert pipeline.job(job.job_key) == job
    assert pipeline.resume(job.job_key, "acknowledge", by="bob").by == "ada"
    assert spent(pipeline.simulator.control) == paid

    pipeline.resume(job.job_key)
    assert pipeline.run_again(job.job_key).state.value == "COMPLETED"


def cancelled_with_a_stranger(pipeline: Pipeline) -> Job:
    """A record that failed once is open, and a line names nobody."""
    rules = [
        {"fault": "unknown_id", "contains": "Film-003."},
        {"fault": "error_500", "contains": "Film-005."},
    ]
    scenario(pipeline.simulator.control, records=rules)
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    request = JobInput(tenant="acme", job_key=job_key, bucket="bucket")
    assert pipeline.one_attempt(request).verdict == "retry"
    cancel_job.run(job_key, pipeline.ledger, pipeline.clock)
    pipeline.work(request.model_copy(update={"attempt": 2}))
    job = pipeline.job(job_key)
    assert (job.state.value, job.counts["unknown"]) == ("CANCELLED", 1)
    return job


def test_given_a_job_without_unknown_ids_when_acknowledged_then_there_is_nothing_to_see(pipeline: Pipeline) -> None:
    job = cancelled_at_two_fifths(pipeline)
    reply = pipeline.resume(job.job_key, "acknowledge")
    assert (reply.started, reply.acknowledged) == (False, 0)
    assert pipeline.objects.head(pipeline.keys(job).acknowledgement(job.attempt)) is None


def test_given_a_cancelled_job_when_resumed_then_it_pays_only_for_the_rest(pipeline: Pipeline) -> None:
    job = cancelled_at_two_fifths(pipeline)
    half = pipeline.simulator.control.journal()["tokens_billed"]

    reply = pipeline.resume(job.job_key)
    assert (reply.started, reply.state, reply.attempt) == (True, "VALIDATED", job.attempt + 1)
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.run) == ("COMPLETED", 2)
    first, second = pipeline.certificate(job).submissions
    assert (first.records, second.records) == (RECORDS, RECORDS - 8)
    billed = pipeline.simulator.control.journal()["tokens_billed"]
    assert {kind: half[kind] + second.tokens.get(kind, 0) for kind in half} == billed
    assert pipeline.verify(job).ok


def test_given_a_failed_job_when_resumed_twice_then_it_runs_once(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(RECORDS))["job_key"]
    pipeline.fail(FailInput(tenant="acme", job_key=job_key, bucket="bucket", error={"Error": "States.Timeout"}))
    first, second = pipeline.resume(job_key), pipeline.resume(job_key)
    assert (first.attempt, first.started, second.attempt, second.started) == (2, True, 2, True)
    assert list(pipeline.executions.started) == [f"{job_key}-1", f"{job_key}-2"]
    assert pipeline.run_again(job_key).state.value == "COMPLETED"
    assert len(pipeline.simulator.control.journal()["creates"]) == 1


@pytest.mark.parametrize("action", ["resume", "acknowledge", "publish_partial"])
def test_given_a_job_that_completed_or_never_was_when_anything_is_asked_then_it_is_refused(
    pipeline: Pipeline, action: str
) -> None:
    pipeline.push_spec(spec())
    job = pipeline.run(films(3))
    with pytest.raises(Conflict, match="has completed"):
        pipeline.resume(job.job_key, action)
    with pytest.raises(NotFound):
        pipeline.resume("f" * 64, action)
    refused = pipeline.drop(b'{"id": 1}\n', version="v2")["job_key"]
    with pytest.raises(BadInput, match="input was refused"):
        pipeline.resume(refused, action)


def test_given_a_job_cancelled_at_two_fifths_when_a_part_is_asked_for_then_it_is_published_and_marked(
    pipeline: Pipeline,
) -> None:
    job = cancelled_at_two_fifths(pipeline)
    paid = spent(pipeline.simulator.control)
    assert not list(pipeline.objects.list("results/"))

    reply = pipeline.resume(job.job_key, "publish_partial", by="ada")
    assert (reply.started, reply.by) == (True, "ada")
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.counts["succeeded"]) == ("CANCELLED", 8)
    assert spent(pipeline.simulator.control) == paid
    assert len(results(pipeline.objects, job)) == 8
    (entry,) = current(pipeline.objects, job)["sources"].values()
    assert (entry["partial"], entry["closed"], entry["requested_by"]) == (True, False, "ada")
    certificate = newest(pipeline, job)
    assert (certificate.closed, certificate.partial, certificate.requested_by) == (False, True, "ada")
    assert (certificate.succeeded, certificate.open, certificate.expected) == (8, 12, RECORDS)
    assert pipeline.objects.head(pipeline.keys(job).certificate) is None
    assert pipeline.verify(job).ok
    assert report(pipeline.objects, job)["verdict"].startswith("Cancelled; the 8 accepted records are published as a")


def test_given_a_published_part_when_the_file_is_dropped_again_then_only_the_rest_is_paid_and_all_replaces_the_part(
    pipeline: Pipeline,
) -> None:
    job = cancelled_at_two_fifths(pipeline)
    half = pipeline.simulator.control.journal()["tokens_billed"]
    pipeline.resume(job.job_key, "publish_partial")
    part = pipeline.run_again(job.job_key)

    assert pipeline.drop(films(RECORDS))["state"] == "VALIDATED"
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", RECORDS)
    (entry,) = current(pipeline.objects, job)["sources"].values()
    assert "partial" not in entry
    assert len(results(pipeline.objects, job)) == RECORDS
    certificate = pipeline.certificate(job)
    assert (certificate.partial, certificate.replaces) == (
        False, hashlib.sha256(pipeline.objects.get(part.certificate.removeprefix("s3://bucket/"))).hexdigest(),
    )  # fmt: skip
    assert tokens_of(certificate) == pipeline.simulator.control.journal()["tokens_billed"]
    rest = {kind: count - half[kind] for kind, count in tokens_of(certificate).items()}
    assert {kind: certificate.submissions[-1].tokens.get(kind, 0) for kind in rest} == rest
    assert (len(pipeline.simulator.control.journal()["creates"]), certificate.submissions[-1].records) == (2, 12)
    assert pipeline.verify(job).ok


def test_given_a_partial_job_when_a_part_is_published_then_it_stays_partial_and_closing_it_replaces_the_part(
    pipeline: Pipeline,
) -> None:
    job = with_a_stranger(pipeline)
    pipeline.resume(job.job_key, "publish_partial")
    job = pipeline.run_again(job.job_key)
    assert (job.state.value, len(results(pipeline.objects, job))) == ("PARTIAL", RECORDS)
    assert newest(pipeline, job).unknown == 1
    assert pipeline.verify(job).ok

    pipeline.resume(job.job_key, "acknowledge")
    found = pipeline.verify(job)
    assert (found.ok, found.gone_on) == (True, True)
    job = pipeline.run_again(job.job_key)
    assert job.state.value == "COMPLETED"
    found = pipeline.verify(job)
    assert (found.ok, found.gone_on) == (True, False)


def test_given_a_part_that_was_tampered_with_when_verified_then_the_difference_is_named(pipeline: Pipeline) -> None:
    job = cancelled_at_two_fifths(pipeline)
    pipeline.resume(job.job_key, "publish_partial")
    job = pipeline.run_again(job.job_key)
    part = newest(pipeline, job).results[0]
    pipeline.objects.put(part.key, pipeline.objects.get(part.key).replace(b"confidence", b"conf1dence", 1))
    assert part.key in pipeline.verify(job).difference


def test_given_nothing_accepted_when_a_part_is_asked_for_then_nothing_is_published(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    job_key = pipeline.drop(films(3))["job_key"]
    cancel_job.run(job_key, pipeline.ledger, pipeline.clock)
    pipeline.execute(job_key)
    pipeline.resume(job_key, "publish_partial")
    job = pipeline.run_again(job_key)
    assert (job.state.value, job.results_uri) == ("CANCELLED", "")
    assert not list(pipeline.objects.list("results/"))


def test_given_nobody_who_asked_when_the_sets_do_not_close_then_a_shard_is_not_published(pipeline: Pipeline) -> None:
    job = cancelled_at_two_fifths(pipeline)
    closure = read_closure(pipeline.objects, pipeline.keys(job), job.attempt)
    items = json.loads(pipeline.objects.get(closure.publish_key))
    assert [item["partial"] for item in items] == [False]
    with pytest.raises(NotClosed):
        pipeline.publish(PublishItem.model_validate(items[0]))
    assert key_of(1) not in str(list(pipeline.objects.list("results/")))


def test_given_a_drop_with_a_later_deadline_when_its_job_is_resumed_then_that_deadline_holds(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec(deadline="1h"))
    for deadline in ("1h", "48h"):
        pipeline.push_spec(spec(deadline=deadline))
        job_key = pipeline.drop(films(4))["job_key"]
        cancel_job.run(job_key, pipeline.ledger, pipeline.clock)
        pipeline.execute(job_key)
        pipeline.wait(60)
    pipeline.resume(job_key)
    assert pipeline.job(job_key).deadline_at == pipeline.clock.now() + 48 * 3600
