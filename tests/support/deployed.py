"""The deployed line, seen from outside: what a user drops, and what bucket, ledger, workflow and provider then show."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from infra.local.deploy import outputs
from infra.local.loopback import Aws
from infra.local.simulator.client import SimulatorControl
from infra.local.stack import LocalStatus
from tallybatch.adapters.dynamodb_ledger import DynamoDBLedger
from tallybatch.adapters.s3_objects import S3Objects
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JOB_FINAL
from tallybatch.domain.rows import Job
from tallybatch.domain.submitting import generation_key
from tallybatch.steps import verify_job
from tallybatch.steps.verify_job import Verification

T = TypeVar("T")
POLL_S = 0.3
_MOST_GENERATIONS = 4


def eventually(look: Callable[[], T], what: str, *, within_s: float = 90) -> T:
    """What `look` returns as soon as it is true."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(POLL_S)
    return found


def fresh_tenant(what: str) -> str:
    """A tenant that no other test has, nor this test in an earlier run on the same stack."""
    return f"{what}-{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True)
class Deployed:
    status: LocalStatus

    @property
    def bucket(self) -> str:
        assert self.status.bucket
        return self.status.bucket

    @property
    def endpoint_url(self) -> str:
        assert self.status.endpoint_url
        return self.status.endpoint_url

    @cached_property
    def aws(self) -> Aws:
        return Aws(self.endpoint_url)

    @cached_property
    def s3(self) -> Any:
        return self.aws.s3

    @cached_property
    def objects(self) -> S3Objects:
        return S3Objects(self.s3, self.bucket)

    @cached_property
    def ledger(self) -> DynamoDBLedger:
        assert self.status.table
        return DynamoDBLedger(self.aws.client("dynamodb"), self.status.table)

    @cached_property
    def states(self) -> Any:
        return self.aws.client("stepfunctions")

    @cached_property
    def simulator(self) -> SimulatorControl:
        assert self.status.simulator_url
        return SimulatorControl(self.status.simulator_url)

    @cached_property
    def outputs(self) -> dict[str, str]:
        assert self.status.stack
        return outputs(self.aws, self.status.stack)

    def push_spec(self, tenant: str, text: str, *, name: str = "genre") -> None:
        self.objects.put(f"specs/{tenant}/{name}.yaml", text.encode())

    def put(self, key: str, body: bytes, *, bucket: str = "") -> str:
        """A bare put_object; returns the version."""
        version: str = self.s3.put_object(Bucket=bucket or self.bucket, Key=key, Body=body).get("VersionId", "")
        return version

    def drop(self, tenant: str, body: bytes, *, version: str = "v1", name: str = "films.jsonl") -> str:
        key = f"inbox/{tenant}/genre/{version}/{name}"
        self.put(key, body)
        return key

    def invoke(self, output: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The reply of the function that an output names; an error is a reply with `errorType`."""
        answer = self.aws.lambda_.invoke(FunctionName=self.outputs[output], Payload=json.dumps(payload).encode())
        reply: dict[str, Any] = json.loads(answer["Payload"].read())
        return reply

    def jobs(self, tenant: str) -> list[Job]:
        return list(self.ledger.jobs(tenant=tenant))

    def ended(self, tenant: str, *, count: int = 1, within_s: float = 90) -> list[Job]:
        """The tenant's jobs, as soon as that many have ended; oldest first."""

        def look() -> list[Job]:
            jobs = self.jobs(tenant)
            over = [job for job in jobs if job.state in JOB_FINAL and self._at_rest(job)]
            return sorted(over, key=lambda job: job.created_at) if len(over) >= count else []

        return eventually(look, f"{count} jobs of {tenant} have ended", within_s=within_s)

    def _at_rest(self, job: Job) -> bool:
        return not job.execution_name or self.execution(job)["status"] != "RUNNING"

    def run(self, tenant: str, body: bytes, *, within_s: float = 90) -> Job:
        self.drop(tenant, body)
        [job] = self.ended(tenant, within_s=within_s)
        return job

    def keys(self, job: Job) -> JobKeys:
        return JobKeys(job.tenant, job.job_key)

    def verify(self, job: Job) -> Verification:
        return verify_job.run(self.objects, self.keys(job))

    def creates(self, job: Job) -> list[dict[str, Any]]:
        """What the provider was asked to create for the job's submissions, in whatever generation."""
        markers = {
            generation_key(row, number)
            for row in self.ledger.submissions(job.job_key)
            for number in range(1, _MOST_GENERATIONS + 1)
        }
        return [entry for entry in self.simulator.journal()["creates"] if entry["marker"] in markers]

    def execution_arn(self, job: Job) -> str:
        assert self.status.state_machine_arn
        return self.status.state_machine_arn.replace(":stateMachine:", ":execution:") + f":{job.execution_name}"

    def execution(self, job: Job) -> dict[str, Any]:
        found: dict[str, Any] = self.states.describe_execution(executionArn=self.execution_arn(job))
        return found

    def executions(self, job_key: str) -> list[str]:
        """Names of all executions of a job, retries of its start included."""
        pages = self.states.get_paginator("list_executions").paginate(stateMachineArn=self.status.state_machine_arn)
        names = (each["name"] for page in pages for each in page["executions"])
        return [name for name in names if name.startswith(job_key)]

    def history(self, execution_arn: str) -> list[dict[str, Any]]:
        pages = self.states.get_paginator("get_execution_history").paginate(executionArn=execution_arn)
        return [event for page in pages for event in page["events"]]

    def entered(self, job: Job) -> list[str]:
        """Names of the states that the job's execution entered, in order."""
        events = self.history(self.execution_arn(job))
        return [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]

    def children(self, job: Job) -> list[dict[str, Any]]:
        """The child executions of the job's Maps, oldest first, each with its input and its `events`."""
        runs = self.states.list_map_runs(executionArn=self.execution_arn(job))["mapRuns"]
        found = [
            {
                **self.states.describe_execution(executionArn=child["executionArn"]),
                "events": self.history(child["executionArn"]),
            }
            for run in runs
            for child in self.states.list_executions(mapRunArn=run["mapRunArn"])["executions"]
        ]
        return sorted(found, key=lambda child: child["startDate"])

    def log(self, function: str) -> list[dict[str, Any]]:
        """The lines that a function has logged, parsed."""
        pages = self.aws.logs.get_paginator("filter_log_events").paginate(
            logGroupName=f"/aws/lambda/{self.status.stack}-{function}"
        )
        texts = (text for page in pages for event in page["events"] for text in event["message"].split("\n"))
        return [json.loads(text) for text in texts if text.startswith("{")]


def failures(events: Iterable[dict[str, Any]]) -> list[str]:
    """Error names of the tasks that failed, in order."""
    return [event["taskFailedEventDetails"]["error"] for event in events if "taskFailedEventDetails" in event]


@contextmanager
def caught_events(line: Deployed, kind: str) -> Iterator[Callable[[], dict[str, dict[str, Any]]]]:
    """A queue that gets the stack's events of a kind for as long as the block lasts; the callable tells what has
    arrived so far, by job_key."""
    bus, name, events, sqs = line.outputs["EventBus"], fresh_tenant("caught"), line.aws.client("events"), line.aws.sqs
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = json.dumps({"source": ["tallybatch"], "detail-type": [kind]})
    events.put_rule(Name=name, EventBusName=bus, EventPattern=pattern)
    events.put_targets(Rule=name, EventBusName=bus, Targets=[{"Id": "queue", "Arn": arn}])
    arrived: dict[str, dict[str, Any]] = {}

    def receive() -> dict[str, dict[str, Any]]:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            event = json.loads(message["Body"])
            arrived[event["detail"]["job_key"]] = event
        return arrived

    try:
        yield receive
    finally:
        events.remove_targets(Rule=name, EventBusName=bus, Ids=["queue"])
        events.delete_rule(Name=name, EventBusName=bus)
        sqs.delete_queue(QueueUrl=url)
