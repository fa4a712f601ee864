"""`tallybatch resume`, `acknowledge`, `publish --partial`, asked too early: nobody is told of what has not happened."""

from __future__ import annotations

import pytest

from tallybatch.cli.steering import Action, what_follows
from tallybatch.contracts import ResumeReply
from tallybatch.steps import cancel_job
from tests.support.operating import SPEC, Operator, films


@pytest.mark.parametrize("command", [("acknowledge",), ("publish", "--partial")])
def test_given_a_job_that_has_not_begun_when_something_of_its_end_is_asked_then_nothing_was_changed(
    operator: Operator, command: tuple[str, ...]
) -> None:
    operator.pipeline.push_spec(SPEC)
    job_key = operator.pipeline.drop(films(2))["job_key"]
    said = operator.run(*command, job_key)
    assert (said.code, "Nothing was changed: the job is at work (VALIDATED)" in said.out) == (0, True)
    cancel_job.run(job_key, operator.pipeline.ledger, operator.pipeline.clock)
    assert "will end CANCELLED: ask again then" in operator.run(*command, job_key).out


@pytest.mark.parametrize("action", ["acknowledge", "publish_partial"])
def test_given_a_stopped_job_when_something_of_its_end_is_asked_then_resume_is_named(action: Action) -> None:
    reply = ResumeReply(job_key="1f3a9c", state="RUNNING", attempt=1, started=False, stopped=True)
    assert what_follows(reply, action) == "The job's execution was stopped. Go on with: tallybatch resume 1f3a9c"


def test_given_a_name_that_is_too_long_when_asked_then_it_is_a_usage_error(operator: Operator) -> None:
    operator.pipeline.push_spec(SPEC)
    job_key = operator.pipeline.drop(films(2))["job_key"]
    said = operator.run("resume", job_key, "--by", "x" * 201)
    assert (said.code, "at most 200 characters" in said.err) == (2, True)
