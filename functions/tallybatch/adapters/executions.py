"""The ports Executions and TaskTokens on AWS Step Functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from botocore.exceptions import ClientError

from tallybatch.adapters.aws_errors import calling, error_code

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

_AT_WORK = frozenset({"RUNNING", "PENDING_REDRIVE"})
"""Statuses of DescribeExecution that are no end (API reference)."""

_NOBODY_WAITS = frozenset({"TaskDoesNotExist", "TaskTimedOut", "InvalidToken"})

_encode = msgspec.json.Encoder(order="sorted").encode


class StepFunctionsTaskTokens:
    """The port TaskTokens."""

    def __init__(self, client: SFNClient) -> None:
        self._client = client

    def wake(self, token: str) -> bool:
        """False for a token whose task has ended or timed out (API reference, SendTaskSuccess: TaskDoesNotExist,
        TaskTimedOut, InvalidToken). The token is in no error's text."""
        with calling("a task that waits for approval"):
            try:
                self._client.send_task_success(taskToken=token, output="{}")
            except ClientError as error:
                if error_code(error) in _NOBODY_WAITS:
                    return False
                raise
        return True


class StepFunctionsExecutions:
    def __init__(self, client: SFNClient, state_machine_arn: str) -> None:
        self._client = client
        self._arn = state_machine_arn

    def start(self, name: str, payload: Mapping[str, Any]) -> bool:
        """False if an execution of that name (at most 80 characters) exists. On AWS the same name with the same input
        answers 200 for as long as the first one runs (API reference, StartExecution), so True means that the execution
        is there, not that this call was the first."""
        with calling(f"execution {name} of {self._arn}"):
            try:
                self._client.start_execution(stateMachineArn=self._arn, name=name, input=_encode(payload).decode())
            except ClientError as error:
                if error_code(error) == "ExecutionAlreadyExists":
                    return False
                raise
        return True

    def running(self, name: str) -> bool:
        execution = f"{self._arn.replace(':stateMachine:', ':execution:', 1)}:{name}"
        with calling(f"execution {name} of {self._arn}"):
            try:
                return self._client.describe_execution(executionArn=execution)["status"] in _AT_WORK
            except ClientError as error:
                if error_code(error) == "ExecutionDoesNotExist":
                    return False
                raise
