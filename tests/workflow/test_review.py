"""Records that people decide about: what they are shown, what their decisions do, and that each counts once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from tallybatch.contracts import FailInput, JobInput
from tallybatch.domain.errors import BadInput, LedgerBusy
from tallybatch.domain.review import Audit
from tallybatch.domain.rows import Job
from tests.support.films import (
    classes,
    current,
    films,
    key_of,
    lines,
    report,
    results,
    scenario,
    spec,
    spent,
    tokens_of,
)
from tests.support.pipeline import Pipeline

RECORDS = 8
ANSWER = {"genre": "Drama", "confidence": 0.5}
WAITING = [
    {"fault": "duplicate_different", "contains": "Film-002.", "times": "always"},
    {"fault": "refusal", "contains": "Film-004.", "times": "always"},
    {"fault": "bad_schema", "contains": "Film-006.", "times": "always"},
]


def review_spec(**changed: Any) -> str:
    classes = "[conflict, refused, unqualified, exhausted, over_cap]"
    sample = changed.pop("review_sample", 0)
    return f"{spec(**changed)}review: {{classes: {classes}}}\nquality: {{review_sample: {sample}}}\n"


def in_review(pipeline: Pipeline, **changed: Any) -> Job:
    """A job of which three records wait for people."""
    scenario(pipeline.simulator.control, records=WAITING)
    pipeline.push_spec(review_spec(**{"max_attempts": 2, "shard_records": 3, **changed}))
    job = pipeline.run(films(RECORDS))
    assert (job.state.value, job.counts["in_review"]) == ("PARTIAL", 3)
    assert not list(pipeline.objects.list("results/"))
    return job


def queue(pipeline: Pipeline, job: Job) -> dict[str, dict[str, Any]]:
    rows = lines(pipeline.objects.get(pipeline.keys(job).review_queue(job.attempt)))
    return {row["business_key"]: row for row in rows}


def file_of(*decisions: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(decision).encode() + b"\n" for decision in decisions)


def accept(number: int, **output: Any) -> dict[str, Any]:
    return {"business_key": key_of(number), "decision": "accept", "output": {**ANSWER, **output}}


def reject(number: int, reason: str = "no film") -> dict[str, Any]:
    return {"business_key": key_of(number), "decision": "reject", "reason": reason}


def requeue(number: int) -> dict[str, Any]:
    return {"business_key": key_of(number), "decision": "requeue"}


def keys_of(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(row["business_key"] for row in rows)


def test_given_a_conflict_a_refusal_and_a_bad_answer_when_the_job_ends_then_people_find_all_that_came_back(
    pipeline: Pipeline,
) -> None:
    job = in_review(pipeline)

    told = queue(pipeline, job)

    assert {key: row["why"] for key, row in told.items()} == {
        key_of(2): "conflict", key_of(4): "refused", key_of(6): "unqualified",
    }  # fmt: skip
    assert told[key_of(2)]["input"] == {"title": "Film-002."}
    both = told[key_of(2)]["candidates"]
    assert len(both) == 2
    assert len({json.dumps(one["output"]) for one in both}) == 2
    for row in told.values():
        for one in row["candidates"]:
            raw = one["raw"]
            key = raw["uri"].removeprefix(pipeline.objects.uri(""))
            line = pipeline.objects.get_range(key, raw["offset"], raw["length"])
            assert row["record_id"].encode() in line
    tries = told[key_of(6)]["candidates"]
    assert [one["attempt"] for one in tries] == [1, 2]
    assert all(one["answer"] and "schema" in one["problem"] and "output" not in one for one in tries)
    assert all(row["decision"] is None for row in told.values())


def test_given_decisions_of_each_kind_when_the_job_goes_on_then_it_closes_and_publishes_what_people_accepted(
    pipeline: Pipeline,
) -> None:
    job = in_review(pipeline)
    before = spent(pipeline.simulator.control)

    reply = pipeline.hand_in(job, file_of(accept(2, genre="Western"), reject(4), accept(6)), by="ada")
    assert (reply.applied, reply.already, reply.state) == ({"accept": 2, "reject": 1}, [], "VALIDATED")
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.counts["in_review"], job.counts["succeeded"]) == ("COMPLETED", 0, RECORDS - 1)
    assert spent(pipeline.simulator.control) == before
    published = {row["business_key"]: row for row in results(pipeline.objects, job)}
    assert set(published) == {key_of(number) for number in range(1, RECORDS + 1)} - {key_of(4)}
    row = published[key_of(2)]
    assert (row["output"]["genre"], row["provider"], row["attempt"]) == ("Western", "review", job.attempt)
    assert report(pipeline.objects, job)["failed_by_class"][0]["class"] == "rejected"
    certificate = pipeline.certificate(job)
    assert (certificate.closed, certificate.failed) == (True, {"rejected": 1})
    assert tokens_of(certificate) == pipeline.simulator.control.journal()["tokens_billed"]
    assert pipeline.verify(job).ok
    audit = json.loads(pipeline.objects.get(pipeline.keys(job).audit(job.attempt)))
    assert (audit["by"], audit["decisions"]) == ("ada", {"accept": 2, "reject": 1})
    (row_of_it,) = [one for one in pipeline.ledger.submissions(job.job_key) if one.provider == "review"]
    assert (row_of_it.owner, row_of_it.updated_at, row_of_it.provider_job_id) == ("ada", audit["at"], "")


def test_given_a_part_of_the_decisions_when_the_job_goes_on_then_the_rest_still_waits(pipeline: Pipeline) -> None:
    job = in_review(pipeline)
    pipeline.hand_in(job, file_of(accept(2)))
    job = pipeline.run_again(job.job_key)
    assert (job.state.value, job.counts["in_review"]) == ("PARTIAL", 2)
    assert set(queue(pipeline, job)) == {key_of(4), key_of(6)}

    exported = [{**row, "decision": "reject"} for row in queue(pipeline, job).values()]
    pipeline.hand_in(job, file_of(*exported))
    job = pipeline.run_again(job.job_key)
    assert (job.state.value, job.counts["failed"]) == ("COMPLETED", 2)
    assert pipeline.verify(job).ok


def test_given_a_requeued_record_when_the_job_goes_on_then_it_alone_is_asked_once_more(pipeline: Pipeline) -> None:
    job = in_review(pipeline)
    pipeline.simulator.control.set_scenario("calm")
    jobs, _ = spent(pipeline.simulator.control)

    pipeline.hand_in(job, file_of(requeue(2), requeue(4), reject(6)))
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", RECORDS - 1)
    assert classes(pipeline.objects, job)[key_of(4)] == ["refused", "requeued", "succeeded"]
    assert spent(pipeline.simulator.control)[0] == jobs + 1
    assert pipeline.certificate(job).submissions[-1].records == 2
    assert tokens_of(pipeline.certificate(job)) == pipeline.simulator.control.journal()["tokens_billed"]
    assert pipeline.verify(job).ok


def test_given_a_requeued_record_that_fails_again_when_the_try_is_over_then_people_have_it_back(
    pipeline: Pipeline,
) -> None:
    job = in_review(pipeline)
    pipeline.hand_in(job, file_of(reject(2), reject(4), requeue(6)))
    job = pipeline.run_again(job.job_key)
    assert (job.state.value, job.counts["in_review"]) == ("PARTIAL", 1)
    assert [one["attempt"] for one in queue(pipeline, job)[key_of(6)]["candidates"]][-1] == job.attempt
    pipeline.hand_in(job, file_of(accept(6)))
    assert pipeline.run_again(job.job_key).state.value == "COMPLETED"


def test_given_a_job_of_many_attempts_when_a_record_is_requeued_then_it_is_asked_at_once_and_within_the_deadline(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[{"fault": "error_500", "contains": "Film-006.", "times": "always"}])
    pipeline.push_spec(review_spec(max_attempts=10, deadline="10m"))
    job = pipeline.run(films(RECORDS))
    assert (queue(pipeline, job)[key_of(6)]["why"], job.attempt > 3) == ("exhausted", True)
    pipeline.simulator.control.set_scenario("calm")
    decided_at = pipeline.clock.now()

    pipeline.hand_in(job, file_of(requeue(6)))
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, classes(pipeline.objects, job)[key_of(6)][-2:]) == ("COMPLETED", ["requeued", "succeeded"])
    asked = next(row for row in pipeline.ledger.submissions(job.job_key) if row.attempt == job.attempt)
    assert asked.first_claimed_at == decided_at


def test_given_bad_lines_when_handed_in_then_each_is_named_and_nothing_is_decided(pipeline: Pipeline) -> None:
    job = in_review(pipeline)
    bad: list[dict[str, Any]] = [
        {"business_key": key_of(2), "decision": "accept"},
        {"business_key": key_of(4), "decision": "accept", "output": {"genre": 7, "confidence": 0.5, "SECRET": 1}},
        {"business_key": key_of(6), "decision": "reject"},
        {"business_key": key_of(1), "decision": "requeue"},
        {"business_key": key_of(2), "decision": "shrug"},
        {"business_key": key_of(2), "decision": "requeue", "oops": 1},
        {"decision": "requeue"},
    ]
    with pytest.raises(BadInput) as refused:
        pipeline.hand_in(job, file_of(accept(2), accept(2), *bad) + b"not json\n")
    assert [problem.line for problem in refused.value.problems] == [2, *range(3, 11)]
    assert "QUETZAL" not in str(refused.value.problems)
    assert pipeline.job(job.job_key) == job


def test_given_two_people_when_they_decide_at_once_then_one_decision_per_record_stands_and_the_other_is_told(
    pipeline: Pipeline,
) -> None:
    job = in_review(pipeline)
    pipeline.hand_in(job, file_of(accept(2), reject(4)), by="ada")
    with pytest.raises(LedgerBusy, match="what ada decided"):
        pipeline.hand_in(job, file_of(reject(2), reject(6)), by="bob")
    pipeline.run_again(job.job_key)

    reply = pipeline.hand_in(job, file_of(reject(2), reject(6)), by="bob")

    assert reply.applied == {"reject": 1}
    assert [(one["business_key"], one["decision"], one["by"]) for one in reply.already] == [
        (key_of(2), "accept", "ada")
    ]
    job = pipeline.run_again(job.job_key)
    assert (job.state.value, job.counts["succeeded"], job.counts["failed"]) == ("COMPLETED", 6, 2)
    assert pipeline.verify(job).ok


def test_given_a_file_that_was_taken_when_handed_in_again_then_nothing_changes(pipeline: Pipeline) -> None:
    job = in_review(pipeline)
    decisions = file_of(accept(2), reject(4), reject(6))
    first = pipeline.hand_in(job, decisions)
    again = pipeline.hand_in(job, decisions, by="bob")
    assert (again.repeated, again.by, again.applied, again.attempt) == (True, "ada", first.applied, first.attempt)
    done = pipeline.run_again(job.job_key)
    assert pipeline.hand_in(job, decisions).repeated
    assert pipeline.job(job.job_key) == done
    assert len(pipeline.executions.started) == 2


def died_before_the_plan(pipeline: Pipeline, job: Job) -> Job:
    """The run that has just been started fails before its first attempt is planned."""
    attempt = pipeline.job(job.job_key).attempt
    error = {"Error": "States.Timeout", "Cause": ""}
    pipeline.fail(FailInput(tenant=job.tenant, job_key=job.job_key, bucket="bucket", attempt=attempt, error=error))
    failed = pipeline.job(job.job_key)
    assert failed.state.value == "FAILED"
    return failed


def test_given_decisions_whose_run_failed_when_the_job_is_resumed_then_they_are_carried_out(
    pipeline: Pipeline,
) -> None:
    job = in_review(pipeline)
    pipeline.hand_in(job, file_of(accept(2), reject(4), reject(6)))
    job = died_before_the_plan(pipeline, job)

    pipeline.resume(job.job_key, by="bob")
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.counts["succeeded"], job.counts["failed"]) == ("COMPLETED", 6, 2)
    audit = json.loads(pipeline.objects.get(pipeline.keys(job).audit(job.attempt - 1)))
    assert (audit["by"], audit["decisions"]) == ("ada", {"accept": 1, "reject": 2})
    assert pipeline.verify(job).ok


def test_given_decisions_whose_run_failed_when_handed_in_again_then_they_are_carried_out_before_any_others(
    pipeline: Pipeline,
) -> None:
    job = in_review(pipeline)
    decisions = file_of(accept(2), reject(4))
    pipeline.hand_in(job, decisions)
    job = died_before_the_plan(pipeline, job)

    with pytest.raises(LedgerBusy, match="what ada decided is not carried out yet"):
        pipeline.hand_in(job, file_of(reject(6)), by="bob")
    reply = pipeline.hand_in(job, decisions)
    assert (reply.repeated, reply.state, reply.applied) == (False, "VALIDATED", {"accept": 1, "reject": 1})
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.counts["in_review"], job.counts["succeeded"]) == ("PARTIAL", 1, 6)
    assert pipeline.hand_in(job, decisions).repeated
    pipeline.hand_in(job, file_of(reject(6)), by="bob")
    job = pipeline.run_again(job.job_key)
    assert (job.state.value, pipeline.verify(job).ok) == ("COMPLETED", True)


def test_given_a_record_in_review_when_another_job_wants_it_then_it_waits_for_the_decision_and_reuses_it(
    pipeline: Pipeline,
) -> None:
    job = in_review(pipeline)
    pipeline.simulator.control.set_scenario("calm")
    jobs, _ = spent(pipeline.simulator.control)
    second = pipeline.drop(films(RECORDS), version="v2")["job_key"]
    reply = pipeline.one_attempt(JobInput(tenant="acme", job_key=second, bucket="bucket"))
    assert reply.verdict == "retry"
    assert classes(pipeline.objects, pipeline.job(second))[key_of(2)] == ["waiting"]

    pipeline.hand_in(job, file_of(accept(2, genre="Western"), accept(4), accept(6)))
    pipeline.run_again(job.job_key)
    pipeline.wait(reply.wait_s)
    pipeline.work(JobInput(tenant="acme", job_key=second, bucket="bucket", attempt=reply.next_attempt))

    assert pipeline.job(second).counts["reused"] == RECORDS
    assert spent(pipeline.simulator.control)[0] == jobs
    (found,) = [row for row in results(pipeline.objects, pipeline.job(second)) if row["business_key"] == key_of(2)]
    assert found["output"]["genre"] == "Western"


def test_given_a_record_over_its_cap_when_requeued_then_it_has_one_more_try_and_what_it_used_is_not_forgotten(
    pipeline: Pipeline,
) -> None:
    scenario(pipeline.simulator.control, records=[WAITING[2]])
    pipeline.push_spec(
        f"{spec(max_attempts=5)}limits: {{max_tokens_per_record: 1}}\n".replace("limits: {deadline: 48h}\n", "")
    )
    job = pipeline.run(films(RECORDS))
    (row,) = queue(pipeline, job).values()
    assert (row["why"], row["tries"]) == ("over_cap", 1)

    pipeline.hand_in(job, file_of(requeue(6)))
    job = pipeline.run_again(job.job_key)

    (again,) = queue(pipeline, job).values()
    assert (again["why"], again["tries"], job.state.value) == ("over_cap", 2, "PARTIAL")
    assert again["used"]["tokens"] > row["used"]["tokens"]


def sampled(pipeline: Pipeline, size: int = 4) -> tuple[Job, list[dict[str, Any]]]:
    scenario(pipeline.simulator.control, records=[{"fault": "error_500", "contains": "Film-003."}])
    pipeline.push_spec(review_spec(shard_records=5, review_sample=size))
    job = pipeline.run(films(20))
    assert (job.state.value, job.sampled) == ("COMPLETED", size)
    return job, lines(pipeline.objects.get(pipeline.keys(job).review_sample))


def test_given_a_sample_when_the_job_completes_then_it_is_published_and_people_find_each_kind_of_record(
    pipeline: Pipeline,
) -> None:
    job, sample = sampled(pipeline)
    assert len(results(pipeline.objects, job)) == 20
    assert len(sample) == 4
    assert key_of(3) in keys_of(sample)  # the only one that failed before
    assert all(row["why"] == "sampled" and row["candidates"][0]["output"] and row["accepted_in"] for row in sample)
    assert any("after=retryable" in row["stratum"] for row in sample)


def test_given_a_sampled_record_that_is_rejected_when_the_job_goes_on_then_the_next_publication_is_without_it(
    pipeline: Pipeline,
) -> None:
    job, sample = sampled(pipeline)
    first, second, third, fourth = sample
    old = pipeline.certificate(job)
    reply = pipeline.hand_in(
        job,
        file_of(
            {"record_id": first["record_id"], "decision": "reject", "reason": "wrong"},
            {"record_id": second["record_id"], "decision": "accept"},
            {"record_id": third["record_id"], "decision": "requeue"},
        ),
    )
    assert reply.applied == {"accept": 1, "reject": 1, "requeue": 1}
    assert len(results(pipeline.objects, job)) == 20  # until then, readers see what was published
    jobs, _ = spent(pipeline.simulator.control)
    job = pipeline.run_again(job.job_key)

    assert (job.state.value, job.counts["succeeded"], job.counts["failed"], job.sampled) == ("COMPLETED", 19, 1, 1)
    assert spent(pipeline.simulator.control)[0] == jobs + 1
    published = {row["record_id"]: row for row in results(pipeline.objects, job)}
    assert first["record_id"] not in published
    assert published[third["record_id"]]["attempt"] == job.attempt
    assert published[fourth["record_id"]]["output"] == fourth["candidates"][0]["output"]
    (entry,) = current(pipeline.objects, job)["sources"].values()
    assert entry["certificate"] == job.certificate != pipeline.objects.uri(pipeline.keys(job).certificate)
    assert pipeline.verify(job).ok
    newest = json.loads(pipeline.objects.get(job.certificate.removeprefix(pipeline.objects.uri(""))))
    assert (newest["failed"], len(newest["replaces"])) == ({"rejected": 1}, 64)
    assert old.succeeded == 20

    # whoever asks for the withdrawn record again pays for it again, and gets another answer than the rejected one
    pipeline.push_spec(review_spec(shard_records=5))
    other = pipeline.run(films(20), version="v2")
    assert (other.counts["succeeded"], other.counts["reused"]) == (20, 19)


def test_the_audit_tells_who_and_when_and_its_hash_is_that_of_the_decisions(pipeline: Pipeline) -> None:
    job = in_review(pipeline)
    pipeline.hand_in(job, file_of(reject(2)), by="Ada Lovelace")
    job = pipeline.run_again(job.job_key)
    audit = msgspec.json.decode(pipeline.objects.get(pipeline.keys(job).audit(job.attempt)), type=Audit)
    decisions = pipeline.objects.get(pipeline.keys(job).decisions(job.attempt))
    assert (audit.by, audit.sha256) == ("Ada Lovelace", hashlib.sha256(decisions).hexdigest())
    assert audit.file_sha256 == hashlib.sha256(file_of(reject(2))).hexdigest()
