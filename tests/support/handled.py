"""The pipeline's real functions (handlers, wiring and adapters) in this process, on an emulator and the simulator.

`Ground` is what a deployment would give them: bucket, table, bus, state machine, secrets, environment. Time is virtual.
"""

from __future__ import annotations

import http.client
import importlib
import inspect
import io
import json
import logging
import pkgutil
import re
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlsplit

import pytest

import tallybatch.adapters
from infra.local.simulator.server import SimulatorServer
from infra.local.simulator.store import S3Store
from tallybatch import observability, settings, wiring
from tallybatch.adapters.dynamodb_ledger import DynamoDBLedger
from tallybatch.adapters.s3_objects import S3Objects
from tallybatch.adapters.secrets import SecretsManagerSecrets
from tallybatch.contracts import (
    AnswerReply,
    ApprovalRequest,
    AttemptPlan,
    CanaryReply,
    FailInput,
    JobInput,
    PollReply,
    PublishItem,
    QuotaReply,
    ReconcileReply,
    ReleaseReply,
    S3Event,
    SealReply,
    ShardItem,
    SubmitReply,
    SweepReply,
    SweepRequest,
)
from tallybatch.domain.rows import Job
from tests.support.emulated import Emulated
from tests.support.memory_misc import ManualClock
from tests.support.memory_objects import MemoryObjects
from tests.support.pipeline import Pipeline
from tests.support.wire import Killed, Wire

T = TypeVar("T")

BUCKET, TABLE, BUS, MACHINE = "line", "ledger", "line", "job"
ACCOUNT = "arn:aws:states:us-east-1:000000000000"
KEY = "sk-proj-QUETZAL-0123456789"
"""The API key of every provider, made to be found wherever it does not belong."""
BESIDE = frozenset({"BuildManifest", "Sweep"})
"""Functions that are no state of an execution: Lambda itself repeats what an event or a schedule asked of them."""
_PASS = json.dumps({"StartAt": "Done", "States": {"Done": {"Type": "Pass", "End": True}}})
_REAL_SLEEP = time.sleep


@dataclass
class Ground:
    """One emulator and one simulator, emptied before each run instead of made anew."""

    endpoint_url: str
    simulator: SimulatorServer
    wire: Wire
    patch: pytest.MonkeyPatch
    handlers: dict[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=ManualClock)
    said: io.StringIO = field(default_factory=io.StringIO)
    """All that the functions wrote and raised in this run."""
    _secrets: list[SecretsManagerSecrets] = field(default_factory=list)

    @property
    def secret_names(self) -> list[str]:
        return sorted({name for model in settings.FUNCTIONS for name in model.model_fields if name.endswith("_secret")})

    def prepare(self) -> None:
        """What the stack's template and environment do, once."""
        environment = {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_BEDROCK": f"{self.simulator.url}/bedrock",
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": f"{self.simulator.url}/bedrock",
            "OPENAI_BASE_URL": f"{self.simulator.url}/openai/v1",
            "GOOGLE_GEMINI_BASE_URL": f"{self.simulator.url}/gemini",
            "TALLYBATCH_BUCKET": BUCKET,
            "TALLYBATCH_TABLE": TABLE,
            "TALLYBATCH_EVENT_BUS": BUS,
            "TALLYBATCH_STATE_MACHINE_ARN": f"{ACCOUNT}:stateMachine:{MACHINE}",
            "TALLYBATCH_SETTLE_WINDOW_S": "300",
            "TALLYBATCH_CREATE_WITHIN_S": "30",
            "TALLYBATCH_UNKNOWN_WAIT_S": "120",
            "TALLYBATCH_BEDROCK_MIN_RECORDS": "1",
            "TALLYBATCH_BEDROCK_ROLE_ARN": "arn:aws:iam::000000000000:role/bedrock-batch",
            **{f"TALLYBATCH_{name.upper()}": name for name in self.secret_names},
        }
        for name, value in environment.items():
            self.patch.setenv(name, value)
        self.patch.setattr(wiring, "_CLOCK", self.clock)
        self.simulator.core.store = S3Store(self.endpoint_url)
        self.patch.setattr(wiring, "SecretsManagerSecrets", self._secrets_manager)
        self._sleep_virtually()
        forget_clients()
        self.handlers = {model.function: _module(model.function).handler for model in settings.FUNCTIONS}
        common = Emulated(self.endpoint_url)
        self.s3, self.dynamodb, self.states = common.s3(), common.dynamodb(), common.step_functions()
        self.events, self.secrets = common.events(), common.secrets_manager()
        self.objects = S3Objects(self.s3, BUCKET)
        self.ledger = DynamoDBLedger(self.dynamodb, TABLE)
        self._emulated = common

    def empty(self) -> None:
        """As on the first day."""
        request = urllib.request.Request(f"{self.endpoint_url}/_ministack/reset", method="POST")  # noqa: S310
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310
            pass
        self.s3.create_bucket(Bucket=BUCKET)
        self.s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        self._emulated.make_table(TABLE)
        self.events.create_event_bus(Name=BUS)
        self.states.create_state_machine(name=MACHINE, definition=_PASS, roleArn="arn:aws:iam::000000000000:role/any")
        for name in self.secret_names:
            self.secrets.create_secret(Name=name, SecretString=KEY)
        self.simulator.control.reset()
        self.clock.at = self.simulator.core.clock.now()
        self.said.seek(0)
        self.said.truncate()
        self.new_process()

    def new_process(self) -> None:
        """What a process knew is gone; clients are kept, for making them costs more than a job."""
        for secrets in self._secrets:
            secrets._cached.clear()

    def snapshot(self) -> MemoryObjects:
        """The bucket as it is, for looking it over without the SDK's cost."""
        taken = MemoryObjects(BUCKET)
        parts = urlsplit(self.endpoint_url)
        with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)) as connection:
            for info in self.objects.list(""):
                connection.request("GET", f"/{BUCKET}/{quote(info.key)}")
                answer = connection.getresponse()
                body = answer.read()
                assert (answer.status, len(body)) == (200, info.size), info.key
                taken.put(info.key, body)
        return taken

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        with self.wire.aside():
            self.simulator.control.advance(seconds)

    def _secrets_manager(self, *args: Any, **kwargs: Any) -> SecretsManagerSecrets:
        self._secrets.append(SecretsManagerSecrets(*args, **kwargs))
        return self._secrets[-1]

    def _sleep_virtually(self) -> None:
        """Pauses of the SDKs, and of our adapters (which take `sleep` as an argument), pass in virtual time."""
        self.patch.setattr(time, "sleep", self.wait)
        for found in pkgutil.walk_packages(tallybatch.adapters.__path__, "tallybatch.adapters."):
            for thing in vars(importlib.import_module(found.name)).values():
                make = thing.__init__ if inspect.isclass(thing) else thing
                defaults = getattr(make, "__kwdefaults__", None) or {}
                if defaults.get("sleep") is _REAL_SLEEP:
                    self.patch.setitem(defaults, "sleep", self.wait)


@contextmanager
def ground(endpoint_url: str, simulator: SimulatorServer) -> Iterator[Ground]:
    """The functions tied to `endpoint_url` and to a simulator whose clock stands still. Undone at the end."""
    wire = Wire()
    with pytest.MonkeyPatch.context() as patch, wire.installed():
        made = Ground(endpoint_url, simulator, wire, patch)
        with heard(made.said):
            made.prepare()
            yield made
    forget_clients()
    for model in settings.FUNCTIONS:
        _module(model.function)


@contextmanager
def heard(said: io.StringIO) -> Iterator[None]:
    """Everything that is logged or printed goes to `said` too."""
    ours = cast("logging.StreamHandler[Any]", observability.logger.registered_handler)
    before = ours.setStream(said)
    root = logging.StreamHandler(said)
    logging.getLogger().addHandler(root)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(root)
        ours.setStream(before or sys.stdout)


def forget_clients() -> None:
    for thing in list(vars(wiring).values()):
        if hasattr(thing, "cache_clear"):
            thing.cache_clear()


def _module(function: str) -> ModuleType:
    """The handler's module as a new process has it: its settings not read yet."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", function).lower()
    return importlib.reload(importlib.import_module(f"tallybatch.handlers.{name}"))


class HandledPipeline(Pipeline):
    """The driver of `Pipeline`, with the functions' handlers as its tasks.

    A task that is killed is repeated as Step Functions' Retry would; with `restarts` the whole execution is given up
    instead, and started again at the attempt it had reached.
    """

    def __init__(self, ground: Ground, *, restarts: bool = False) -> None:
        self.ground = ground
        self.restarts = restarts
        self.reached: JobInput | None = None
        super().__init__(
            ground.simulator,
            provider=cast("Any", "the wiring makes it"),
            objects=cast("Any", ground.objects),
            ledger=cast("Any", ground.ledger),
            clock=ground.clock,
        )

    def __post_init__(self) -> None:
        """The stores and the provider are those of the ground."""

    def wait(self, seconds: float) -> None:
        self.ground.wait(seconds)

    def live(self, body: bytes, **where: str) -> Job:
        """A file's whole life, from its drop to the end of the last execution."""
        event = self.upload(body, **where)
        job_key = self.task("BuildManifest", lambda: self.build(event))["job_key"]
        request = self.started(job_key)
        for _ in range(3):
            try:
                self.work(request)
                break
            except Killed:
                self.wait(60)
                request = self.reached or request
        return self.job(job_key)

    def started(self, job_key: str) -> JobInput:
        """The input of the execution that StartExecution has left for the job."""
        name = self.job(job_key).execution_name
        found = self.ground.states.describe_execution(executionArn=f"{ACCOUNT}:execution:{MACHINE}:{name}")
        return JobInput.model_validate_json(found["input"])

    def one_attempt(self, request: JobInput) -> ReconcileReply:
        self.reached = request
        return super().one_attempt(request)

    def task(self, name: str, call: Callable[[], T]) -> T:
        def invocation() -> T:
            with self.ground.wire.armed(name):
                try:
                    return call()
                except BaseException:
                    self.ground.said.write(traceback.format_exc())
                    raise

        self.ground.wire.enter_state()
        while True:
            try:
                return super().task(name, invocation)
            except Killed:
                self.tasks.append((name, "Killed"))
                self.ground.new_process()
                if self.restarts and name not in BESIDE:
                    raise
                self.wait(10)

    def call(self, function: str, event: dict[str, Any]) -> Any:
        """Invoke a function; event and reply go through JSON as on AWS."""
        reply = self.ground.handlers[function](json.loads(json.dumps(event)), None)
        return json.loads(json.dumps(reply))

    # Single states

    def build(self, event: S3Event) -> dict[str, Any]:
        return cast("dict[str, Any]", self.call("BuildManifest", event.model_dump(by_alias=True)))

    def admit(self, request: JobInput) -> QuotaReply:
        return QuotaReply.model_validate(self.call("AdmitJob", request.model_dump()))

    def reserve(self, item: ShardItem) -> QuotaReply:
        return QuotaReply.model_validate(self.call("ReserveQuota", item.model_dump()))

    def release(self, item: ShardItem) -> ReleaseReply:
        return ReleaseReply.model_validate(self.call("ReleaseQuota", item.model_dump()))

    def plan(self, request: JobInput) -> AttemptPlan:
        return AttemptPlan.model_validate(self.call("PlanAttempt", request.model_dump()))

    def submit(self, item: ShardItem) -> SubmitReply:
        return SubmitReply.model_validate(self.call("SubmitShard", item.model_dump()))

    def ask_records(self, item: ShardItem) -> AnswerReply:
        return AnswerReply.model_validate(self.call("AnswerShard", item.model_dump()))

    def poll(self, item: ShardItem, waited_s: float = 0) -> Any:
        return PollReply.model_validate(self.call("PollShard", {**item.model_dump(), "waited_s": waited_s}))

    def collect(self, item: ShardItem) -> dict[str, int]:
        return cast("dict[str, int]", self.call("CollectShard", item.model_dump()))

    def reconcile_shard(self, item: ShardItem) -> dict[str, int]:
        return cast("dict[str, int]", self.call("ReconcileShard", item.model_dump()))

    def reconcile(self, request: JobInput) -> ReconcileReply:
        return ReconcileReply.model_validate(self.call("ReconcileJob", request.model_dump()))

    def judge(self, request: JobInput) -> CanaryReply:
        return CanaryReply.model_validate(self.call("JudgeCanary", request.model_dump()))

    def ask(self, request: ApprovalRequest) -> None:
        self.call("ApproveCanary", request.model_dump())

    def sweep(self, **request: Any) -> SweepReply:
        return SweepReply.model_validate(self.call("Sweep", SweepRequest(**request).model_dump()))

    def publish(self, item: PublishItem) -> Any:
        return self.call("PublishShard", item.model_dump())

    def seal(self, request: JobInput) -> SealReply:
        return SealReply.model_validate(self.call("SealJob", request.model_dump()))

    def fail(self, request: FailInput) -> SealReply:
        return SealReply.model_validate(self.call("FailJob", request.model_dump()))
