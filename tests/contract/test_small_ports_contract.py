"""What every implementation of Secrets, Clock, Events and Executions does, in memory and on the emulator."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tallybatch.adapters.clock import SystemClock
from tallybatch.adapters.events import EventBridgeEvents
from tallybatch.adapters.executions import StepFunctionsExecutions
from tallybatch.adapters.secrets import SecretsManagerSecrets
from tallybatch.domain.errors import NotFound, Permanent, Retryable
from tallybatch.ports import Clock, Events, Executions, Secrets
from tests.support.emulated import Emulated
from tests.support.faults import Answer
from tests.support.memory_misc import ManualClock, MemoryEvents, MemoryExecutions, MemorySecrets

IMPLEMENTATIONS = ["memory", "emulator"]
PASS = {"StartAt": "Done", "States": {"Done": {"Type": "Pass", "End": True}}}
WAIT = {"StartAt": "Hour", "States": {"Hour": {"Type": "Wait", "Seconds": 3600, "End": True}}}
ROLE = "arn:aws:iam::000000000000:role/states"


@pytest.fixture
def emulated(emulator: str) -> Emulated:
    return Emulated(emulator)


@dataclass
class EventWorld:
    events: Events
    received: Callable[[], list[tuple[str, dict[str, Any]]]]
    """Waits for nothing in memory, and for at most 5 s for a first event on the emulator."""


@pytest.fixture(params=IMPLEMENTATIONS)
def event_world(request: pytest.FixtureRequest) -> EventWorld:
    if request.param == "memory":
        memory = MemoryEvents()
        return EventWorld(memory, lambda: memory.published)
    emulated = Emulated(request.getfixturevalue("emulator"))
    client, sqs, bus = emulated.events(), emulated.sqs(), f"bus-{uuid.uuid4().hex[:8]}"
    client.create_event_bus(Name=bus)
    queue = sqs.create_queue(QueueName=bus)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    client.put_rule(Name="all", EventBusName=bus, EventPattern=json.dumps({"source": ["tallybatch"]}))
    client.put_targets(Rule="all", EventBusName=bus, Targets=[{"Id": "queue", "Arn": arn}])

    def received() -> list[tuple[str, dict[str, Any]]]:
        reply = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=5, MaxNumberOfMessages=10)
        bodies = [json.loads(message["Body"]) for message in reply.get("Messages", [])]
        return [(body["detail-type"], body["detail"]) for body in bodies]

    return EventWorld(EventBridgeEvents(client, bus), received)


def test_an_event_arrives_with_its_kind_and_detail(event_world: EventWorld) -> None:
    detail = {"job_key": "a" * 64, "counts": {"succeeded": 3}, "results_uri": "s3://bücket/東京", "at": 1.5}
    event_world.events.publish("JobCompleted", detail)
    assert event_world.received() == [("JobCompleted", detail)]


def test_an_event_that_the_bus_refuses_is_an_error_though_the_call_answers_200(emulated: Emulated) -> None:
    client = emulated.events()
    with pytest.raises(Permanent, match="NotAuthorizedForSource"):
        EventBridgeEvents(client, "default", source="aws.s3").publish("JobFailed", {})
    busy = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ThrottlingException", "ErrorMessage": "slow"}]}
    Answer(200, busy).on(client, "eventbridge", "PutEvents")
    with pytest.raises(Retryable, match="JobFailed on bus default"):
        EventBridgeEvents(client, "default").publish("JobFailed", {})


@dataclass
class ExecutionWorld:
    executions: Executions
    payload_of: Callable[[str], dict[str, Any]]
    stop: Callable[[str], object]


def machine(client: Any, definition: dict[str, Any]) -> str:
    """The ARN of a new state machine."""
    name = f"machine-{uuid.uuid4().hex[:8]}"
    created = client.create_state_machine(name=name, definition=json.dumps(definition), roleArn=ROLE)
    return str(created["stateMachineArn"])


@pytest.fixture(params=IMPLEMENTATIONS)
def execution_world(request: pytest.FixtureRequest) -> ExecutionWorld:
    if request.param == "memory":
        memory = MemoryExecutions()
        return ExecutionWorld(memory, lambda name: memory.started[name], memory.end)
    client = Emulated(request.getfixturevalue("emulator")).step_functions()
    arn = machine(client, WAIT)

    def arn_of(name: str) -> str:
        return arn.replace(":stateMachine:", ":execution:") + f":{name}"

    def payload_of(name: str) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(client.describe_execution(executionArn=arn_of(name))["input"])
        return payload

    def stop(name: str) -> object:
        return client.stop_execution(executionArn=arn_of(name))

    return ExecutionWorld(StepFunctionsExecutions(client, arn), payload_of, stop)


def test_an_execution_of_one_name_is_started_once(execution_world: ExecutionWorld) -> None:
    executions = execution_world.executions
    assert executions.start("job-1", {"tenant": "acme", "attempt": 1, "bücket": "東京"})
    assert not executions.start("job-1", {"tenant": "bolt"})
    assert executions.start("job-2", {})
    assert execution_world.payload_of("job-1") == {"tenant": "acme", "attempt": 1, "bücket": "東京"}


def test_of_three_events_in_parallel_one_starts_the_execution(execution_world: ExecutionWorld) -> None:
    with ThreadPoolExecutor(3) as pool:
        started = list(pool.map(lambda n: execution_world.executions.start("job", {"event": n}), range(3)))
    assert started.count(True) == 1
    assert execution_world.payload_of("job") == {"event": started.index(True)}


def test_an_execution_runs_from_its_start_to_its_end_and_one_that_never_was_does_not(
    execution_world: ExecutionWorld,
) -> None:
    executions = execution_world.executions
    assert not executions.running("job-1")
    executions.start("job-1", {})
    executions.start("job-2", {})
    assert executions.running("job-1")
    execution_world.stop("job-1")
    assert not executions.running("job-1")
    assert executions.running("job-2")
    assert not executions.start("job-1", {"again": True})


def test_an_execution_that_succeeded_is_not_running(emulated: Emulated) -> None:
    client = emulated.step_functions()
    executions = StepFunctionsExecutions(client, machine(client, PASS))
    executions.start("job", {})
    deadline = time.monotonic() + 10
    while executions.running("job"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_execution_that_may_be_redriven_still_runs_and_a_refusal_is_an_error(emulated: Emulated) -> None:
    client = emulated.step_functions()
    arn = machine(client, PASS)
    Answer(200, {"status": "PENDING_REDRIVE"}).on(client, "sfn", "DescribeExecution")
    assert StepFunctionsExecutions(client, arn).running("job")
    busy = emulated.step_functions()
    Answer(400, {"__type": "AccessDeniedException", "message": "no"}).on(busy, "sfn", "DescribeExecution")
    with pytest.raises(Permanent):
        StepFunctionsExecutions(busy, arn).running("job")


def test_a_missing_state_machine_is_an_error_and_not_a_false(emulated: Emulated) -> None:
    client = emulated.step_functions()
    arn = "arn:aws:states:us-east-1:000000000000:stateMachine:nowhere"
    with pytest.raises(client.exceptions.StateMachineDoesNotExist):
        StepFunctionsExecutions(client, arn).start("job", {})


@pytest.fixture(params=IMPLEMENTATIONS)
def secret_named(request: pytest.FixtureRequest) -> Callable[[str, str], Secrets]:
    """Makes a store that holds one secret."""

    def in_memory(name: str, value: str) -> Secrets:
        return MemorySecrets({name: value})

    def on_emulator(name: str, value: str) -> Secrets:
        client = Emulated(request.getfixturevalue("emulator")).secrets_manager()
        client.create_secret(Name=name, SecretString=value)
        return SecretsManagerSecrets(client)

    return in_memory if request.param == "memory" else on_emulator


def test_a_secret_is_read_by_name(secret_named: Callable[[str, str], Secrets]) -> None:
    name = f"tallybatch/openai-{uuid.uuid4().hex}"
    secrets = secret_named(name, "sk-test ü")
    assert secrets.get(name) == "sk-test ü"
    with pytest.raises(NotFound, match="tallybatch/none"):
        secrets.get("tallybatch/none")


def test_a_rotated_secret_arrives_after_the_cache_time_and_not_before(emulated: Emulated) -> None:
    client, clock, name = emulated.secrets_manager(), ManualClock(5.0), uuid.uuid4().hex
    client.create_secret(Name=name, SecretString="old")
    secrets = SecretsManagerSecrets(client, monotonic=clock.now)
    assert secrets.get(name) == "old"
    client.put_secret_value(SecretId=name, SecretString="new")
    clock.advance(299)
    assert secrets.get(name) == "old"
    clock.advance(2)
    assert secrets.get(name) == "new"


def test_a_binary_secret_is_refused_and_not_shown(emulated: Emulated) -> None:
    client, name = emulated.secrets_manager(), uuid.uuid4().hex
    client.create_secret(Name=name, SecretBinary=b"sk-bytes")
    with pytest.raises(Permanent, match="SecretString") as refusal:
        SecretsManagerSecrets(client).get(name)
    assert "sk-bytes" not in str(refusal.value)


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock(time.time())])
def test_a_clock_tells_unix_seconds_and_never_goes_back(clock: Clock) -> None:
    first = clock.now()
    assert abs(first - time.time()) < 3600
    assert clock.now() >= first


def test_a_manual_clock_moves_when_told() -> None:
    clock = ManualClock(100.0)
    assert clock.advance(1.5) == clock.now() == 101.5
