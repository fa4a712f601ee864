"""The error boundary: what a command's failure looks like, and its exit code."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, NoRegionError

from tallybatch.cli.errors import Ambiguous, as_document, as_lines, exit_code
from tallybatch.cli.invoking import read_reply
from tallybatch.domain import errors
from tests.support.memory_ledger import MemoryLedger
from tests.support.operating import Operator

DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "not allowed"}}, "DescribeStacks")


class BrokenLedger(MemoryLedger):
    """Fails every listing with `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def jobs(self, **_: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadInput("x"), 3),
        (errors.Conflict("x"), 3),
        (errors.NotFound("x"), 4),
        (errors.NotClosed("x"), 1),
        (errors.ObjectDamaged("x"), 1),
        (errors.ProviderRefused("x"), 5),
        (errors.ProviderUnavailable("x"), 5),
        (errors.LedgerBusy("x"), 5),
        (Ambiguous("1", ["11", "12"]), 2),
        (DENIED, 5),
        (EndpointConnectionError(endpoint_url="http://x"), 5),
        (NoCredentialsError(), 5),
        (NoRegionError(), 5),
        (ValueError("a fault of ours"), 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: Exception, code: int, operator: Operator) -> None:
    assert exit_code(error) == code
    operator.ledger = BrokenLedger(error)
    said = operator.run("jobs", "--json")
    assert said.code == code
    assert said.json["error"]["type"] == type(error).__name__
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err


def test_given_debug_when_a_command_fails_then_the_stack_trace_is_on_stderr_only(operator: Operator) -> None:
    operator.ledger = BrokenLedger(ValueError("a fault of ours"))
    said = operator.run("jobs", "--json", env={"TALLYBATCH_DEBUG": "1"})
    assert "Traceback" in said.err
    assert "TALLYBATCH_DEBUG" in said.json["error"]["do"]


def test_ctrl_c_ends_quietly(operator: Operator) -> None:
    operator.ledger = BrokenLedger(KeyboardInterrupt())
    said = operator.run("jobs")
    assert (said.code, said.out, said.err) == (130, "", "")


def test_errors_say_what_where_why_and_what_to_do() -> None:
    error = errors.NotFound("it is gone", where="s3://bucket/key", why="a rule deleted it", do="drop it again")
    assert as_lines(error) == ["error: s3://bucket/key: it is gone", "  why: a rule deleted it", "  do: drop it again"]
    assert as_document(error)["error"] | {"message": ""} == {
        "type": "NotFound",
        "message": "",
        "what": "it is gone",
        "where": "s3://bucket/key",
        "why": "a rule deleted it",
        "do": "drop it again",
    }


def test_every_problem_is_named_with_file_line_and_key() -> None:
    problems = [errors.Problem("is wrong", 3, "a.b", "value"), errors.Problem("the whole file", 0)]
    bad = errors.BadInput("refused", problems, where="x.yaml")
    assert as_lines(bad) == ["error: refused", "  x.yaml:3: a.b: is wrong", "  x.yaml: the whole file"]
    assert as_document(bad)["error"]["problems"] == [
        {"line": 3, "key": "a.b", "code": "value", "reason": "is wrong"},
        {"line": 0, "key": "", "code": "invalid", "reason": "the whole file"},
    ]


def test_what_aws_refused_is_told_with_the_operation() -> None:
    assert as_lines(DENIED) == ["error: DescribeStacks: AWS refused the call", "  why: not allowed"]


def test_a_functions_own_error_comes_back_as_that_error() -> None:
    payload = b'{"errorType": "BadInput", "errorMessage": "the prefix is refused"}'
    with pytest.raises(errors.BadInput, match="the prefix is refused"):
        read_reply("discover", "Unhandled", payload)
    with pytest.raises(errors.Permanent, match="out of memory"):
        read_reply("discover", "Unhandled", b'{"errorMessage": "out of memory"}')
    assert read_reply("discover", "", b'{"started": []}') == {"started": []}
