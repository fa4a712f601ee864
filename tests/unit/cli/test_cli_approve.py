"""`tallybatch approve`, and `cancel` of a job that waits for it, on the real steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.operating import SPEC, Operator, Said, films

MANUAL = SPEC + "canary: {records: 4, min_acceptance: 0.5, approval: manual}\n"


def waiting(operator: Operator, *commands: tuple[str, ...]) -> tuple[str, list[Said]]:
    """A job that has been run, with commands that were given while it waited for approval."""
    operator.pipeline.push_spec(MANUAL)
    job_key: str = operator.pipeline.drop(films(12))["job_key"]
    said: list[Said] = []

    def given(words: tuple[str, ...]) -> Callable[[], Any]:
        return lambda: said.append(operator.run(words[0], job_key[:10], *words[1:]))

    operator.pipeline.people += [given(words) for words in commands]
    operator.pipeline.execute(job_key)
    return job_key, said


def test_a_waiting_job_says_so_and_goes_on_once_it_is_approved(operator: Operator) -> None:
    approval = ("approve", "--reason", "labels look right", "--json")
    job_key, [shown, approved] = waiting(operator, ("show",), approval)
    assert f"waits for `tallybatch approve {job_key[:12]}`" in " ".join(shown.out.split())
    assert approved.code == 0
    told = approved.json
    assert (told["job_key"], told["approval"]["decision"], told["approval"]["decided_by"]) == (
        job_key, "approved", "ada",
    )  # fmt: skip
    assert (told["approval"]["reason"], told["canary"]["judgement"]) == ("labels look right", "passed")
    assert told["canary"]["forecast"]["tokens"]["input"] > 0
    assert "token-" not in approved.out + approved.err + shown.out
    assert operator.run("approve", job_key).code == 0
    ended = operator.run("show", job_key, "--json")
    assert (ended.json["state"], ended.json["succeeded"]) == ("COMPLETED", 12)


def test_a_rejected_job_ends_cancelled_and_cannot_be_approved_any_more(operator: Operator) -> None:
    job_key, [rejected] = waiting(operator, ("approve", "--reject", "--reason", "too coarse"))
    assert rejected.code == 0
    assert "The canary was rejected by ada" in rejected.out
    ended = operator.run("show", job_key)
    assert "the canary was rejected by ada: too coarse" in " ".join(ended.out.split())
    assert operator.run("show", job_key, "--json").json["state"] == "CANCELLED"
    late = operator.run("approve", job_key)
    assert late.code != 0
    assert "the canary was rejected already, by ada" in late.err


def test_an_approval_that_comes_too_late_is_refused_and_says_what_to_do(operator: Operator) -> None:
    job_key, _ = waiting(operator)
    said = operator.run("approve", job_key, "--json")
    assert said.code == 5
    assert said.json["error"]["type"] == "ApprovalExpired"
    assert "drop the file again" in str(said.json)
    assert operator.run("show", job_key, "--json").json["state"] == "EXPIRED"


def test_a_job_that_waits_for_nobody_is_refused(operator: Operator) -> None:
    job = operator.completed()
    said = operator.run("approve", job.job_key)
    assert said.code == 3, "neither AWS nor a provider has refused anything"
    assert "this job waits for no approval" in said.err


def test_a_waiting_job_that_is_cancelled_ends_at_once(operator: Operator) -> None:
    began = operator.pipeline.clock.now()
    job_key, [cancelled] = waiting(operator, ("cancel",))
    assert cancelled.code == 0
    shown = operator.run("show", job_key, "--json").json
    assert (shown["state"], shown["succeeded"]) == ("CANCELLED", 4)
    assert operator.pipeline.clock.now() - began < 3600
