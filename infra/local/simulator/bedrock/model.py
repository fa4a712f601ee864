"""Jobs and errors as Bedrock's control plane shows them [botocore bedrock 2023-04-20]."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from infra.local.loopback import ACCOUNT, REGION
from infra.local.simulator.faults import JobPlan
from infra.local.simulator.journal import Tokens

PROVIDER = "bedrock"
TERMINAL = frozenset({"Completed", "PartiallyCompleted", "Failed", "Stopped", "Expired"})
HOUR_S = 3_600
_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

Json = dict[str, Any]


class ApiError(Exception):
    """An HTTP error in the shape of rest-json: its name goes into the header `x-amzn-errortype`."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.name = name
        self.message = message


def invalid(message: str) -> ApiError:
    return ApiError(400, "ValidationException", message)


def new_arn() -> str:
    """Unlike the answers, ids differ between runs: a ledger may outlive the simulator."""
    identity = "".join(secrets.choice(_ID_LETTERS) for _ in range(12))
    return f"arn:aws:bedrock:{REGION}:{ACCOUNT}:model-invocation-job/{identity}"


@dataclass(slots=True)
class Counts:
    total: int = 0
    succeeded: int = 0
    failed: int = 0

    def to_json(self, wrong: int = 0) -> Json:
        return {
            "totalRecordCount": self.total + wrong,
            "processedRecordCount": self.succeeded + self.failed + wrong,
            "successRecordCount": self.succeeded + wrong,
            "errorRecordCount": self.failed,
        }


@dataclass(slots=True)
class Job:
    """`request` is the body of create; `plan` is the fate that the scenario gave this job."""

    arn: str
    request: Json
    created_at: float
    plan: JobPlan
    status: str = "Submitted"
    message: str = ""
    shown_status: str = ""
    """What Get says instead of `status`, for scenarios with odd states."""
    changed_at: float = 0
    ended_at: float | None = None
    counts: Counts = field(default_factory=Counts)
    counted: bool = False
    tokens: Tokens = field(default_factory=Tokens)
    listed_from: float = 0
    gone: bool = False

    @property
    def id(self) -> str:
        return self.arn.rpartition("/")[2]

    @property
    def token(self) -> str:
        return str(self.request.get("clientRequestToken", ""))

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def invocation_type(self) -> str:
        return str(self.request.get("modelInvocationType") or "InvokeModel")

    @property
    def input_uri(self) -> str:
        return str(self.request["inputDataConfig"]["s3InputDataConfig"]["s3Uri"])

    @property
    def output_uri(self) -> str:
        return str(self.request["outputDataConfig"]["s3OutputDataConfig"]["s3Uri"])

    @property
    def expires_at(self) -> float:
        return self.created_at + HOUR_S * float(self.request.get("timeoutDurationInHours") or 24)

    @property
    def wrong(self) -> int:
        return 3 if self.terminal and "wrong_counts" in self.plan.faults else 0

    def enter(self, status: str, moment: float) -> None:
        self.status, self.changed_at = status, moment
        if status in TERMINAL:
            self.shown_status, self.ended_at = "", moment

    def to_json(self) -> Json:
        """What is absent is left out, as the service does."""
        shown: Json = {
            "jobArn": self.arn,
            "jobName": self.request["jobName"],
            "modelId": self.request["modelId"],
            "clientRequestToken": self.token,
            "roleArn": self.request["roleArn"],
            "status": self.shown_status or self.status,
            "submitTime": _iso(self.created_at),
            "lastModifiedTime": _iso(self.changed_at or self.created_at),
            "inputDataConfig": self.request["inputDataConfig"],
            "outputDataConfig": self.request["outputDataConfig"],
            "timeoutDurationInHours": self.request.get("timeoutDurationInHours") or 24,
            "jobExpirationTime": _iso(self.expires_at),
            "modelInvocationType": self.invocation_type,
        }
        if self.message:
            shown["message"] = self.message
        if self.ended_at is not None:
            shown["endTime"] = _iso(self.ended_at)
        return shown | (self.counts.to_json(self.wrong) if self.counted else {})


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
