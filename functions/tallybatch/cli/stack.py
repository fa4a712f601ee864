"""Finds the deployed stack, local or on AWS, and ties the ports to it: the command's composition root."""

from __future__ import annotations

import getpass
import importlib
import ipaddress
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tallybatch.adapters.clock import SystemClock
from tallybatch.cli.invoking import read_reply
from tallybatch.domain.errors import NotFound, Permanent
from tallybatch.ports import Clock, Ledger, Objects, TaskTokens

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

DEFAULT_STACK = "Tallybatch"
DISCOVER_BACKFILL = "DiscoverBackfillFunction"
SWEEP = "SweepFunction"
RESUME_JOB = "ResumeJobFunction"
RESOLVE_REVIEW = "ResolveReviewFunction"
INVOKE_TIMEOUT_S = 910
"""A function runs for 15 minutes at most (Lambda quotas)."""

_PART_BYTES = 64 << 20

Upload = Callable[[Path, str, Callable[[int], object], str], None]
"""Stream a file to a key, replacing; the callback gets the bytes of each step, from any thread. The last argument is
what the object's metadata `tallybatch` says, "" for none."""
Invoke = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Call the function that an output of the stack names, and wait. Raises our own error of the function's kind."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the user asked for; "" is not given."""

    stack: str = ""
    endpoint_url: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A stack that is meant. `endpoint_url` "" is AWS itself; `region` "" is the environment's."""

    stack: str
    endpoint_url: str = ""
    region: str = ""

    @property
    def local(self) -> bool:
        return bool(self.endpoint_url) and _is_loopback(self.endpoint_url)

    def __str__(self) -> str:
        return f"stack {self.stack} at {self.endpoint_url}" if self.endpoint_url else f"stack {self.stack} on AWS"


@dataclass(frozen=True, slots=True)
class Connection:
    """The ports of one deployed stack. `sleep` takes seconds."""

    place: Place
    objects: Objects
    ledger: Ledger
    upload: Upload
    invoke: Invoke
    clock: Clock
    sleep: Callable[[float], None]
    tokens: TaskTokens
    who: Callable[[], str]
    """Who gives the commands, for what is audited: the ARN that AWS knows, on this machine the user's name."""


Connector = Callable[[Target], Connection]


def connect(target: Target) -> Connection:
    """Raises `NotFound` if there is no such stack."""
    return connect_to(locate(target))


def locate(target: Target, local_status: Callable[[], Any] | None = None) -> Place:
    """Which stack is meant. Raises `Permanent` for a local stack that is up only in part: then neither it nor AWS is
    surely what is wanted."""
    if target.stack or target.endpoint_url:
        return Place(target.stack or DEFAULT_STACK, target.endpoint_url)
    found = (local_status or _local_status)()
    if found is None or found.state == "down":
        return Place(DEFAULT_STACK)
    if found.state != "up":
        raise Permanent(
            f"the local stack is {found.state}",
            do="mend it with `tallybatch local up`, end it with `tallybatch local down`, or name a stack with --stack",
        )
    return Place(found.stack, found.endpoint_url, found.region)


def connect_to(place: Place) -> Connection:
    from tallybatch.adapters.dynamodb_ledger import DynamoDBLedger
    from tallybatch.adapters.executions import StepFunctionsTaskTokens
    from tallybatch.adapters.s3_objects import INTENT, S3Objects

    clients = _Clients(place)
    outputs = _outputs(clients.client("cloudformation"), place)
    s3 = clients.client("s3")
    bucket = _output(outputs, "Bucket", place)

    def upload(path: Path, key: str, moved: Callable[[int], object], intent: str) -> None:
        from boto3.s3.transfer import TransferConfig

        config = TransferConfig(multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, max_concurrency=4)
        told = {"Metadata": {INTENT: intent}} if intent else {}
        s3.upload_file(str(path), bucket, key, Config=config, Callback=moved, ExtraArgs=told)

    def invoke(output: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        function = _output(outputs, output, place)
        lambda_ = clients.client("lambda", read_timeout=INVOKE_TIMEOUT_S, attempts=1)
        reply = lambda_.invoke(FunctionName=function, Payload=json.dumps(dict(payload)).encode())
        return read_reply(function, reply.get("FunctionError", ""), reply["Payload"].read())

    return Connection(
        place=place,
        objects=S3Objects(s3, bucket),
        ledger=DynamoDBLedger(clients.client("dynamodb"), _output(outputs, "Table", place)),
        upload=upload,
        invoke=invoke,
        clock=SystemClock(),
        sleep=time.sleep,
        tokens=StepFunctionsTaskTokens(clients.client("stepfunctions")),
        who=lambda: _who(clients, place),
    )


class _Clients:
    """An emulator on this machine gets dummy credentials, never real ones, and is not asked through a proxy."""

    def __init__(self, place: Place) -> None:
        import boto3
        import botocore.session

        self._place = place
        if place.local:
            no_profile = botocore.session.Session(session_vars={"profile": (None, None, None, None)})
            self._session = boto3.Session(
                aws_access_key_id="test",
                aws_secret_access_key="test",  # noqa: S106  an emulator's dummy
                region_name=place.region or "us-east-1",
                botocore_session=no_profile,
            )
        else:
            self._session = boto3.Session(region_name=place.region or None)

    def client(self, service: str, *, read_timeout: float = 60, attempts: int = 5) -> Any:
        from botocore.config import Config

        config = Config(
            connect_timeout=5,
            read_timeout=read_timeout,
            retries={"mode": "standard", "total_max_attempts": attempts},
            s3={"addressing_style": "path"} if self._place.local else {},
            proxies={} if self._place.local else None,
        )
        make: Any = self._session.client
        return make(service, endpoint_url=self._place.endpoint_url or None, config=config)


def _who(clients: _Clients, place: Place) -> str:
    if not place.local:
        return str(clients.client("sts").get_caller_identity()["Arn"])
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user: a container with a number for a name
        return "local"


def _local_status() -> Any:
    """The local stack's status; None outside a checkout, where there is no local stack."""
    try:
        stack = importlib.import_module("infra.local.stack")
    except ImportError:
        return None
    return stack.status()


def _outputs(cloudformation: CloudFormationClient, place: Place) -> dict[str, str]:
    from botocore.exceptions import ClientError

    try:
        stacks = cloudformation.describe_stacks(StackName=place.stack)["Stacks"]
    except ClientError as error:
        if "does not exist" not in str(error):
            raise
        stacks = []
    if not stacks:
        raise NotFound(
            "there is no such stack",
            where=str(place),
            do="start the local one with `tallybatch local up`, deploy with `cdk deploy`, or name another with --stack",
        )
    return {output["OutputKey"]: output["OutputValue"] for output in stacks[0].get("Outputs", [])}


def _output(outputs: Mapping[str, str], name: str, place: Place) -> str:
    if name not in outputs:
        raise NotFound(
            f"the stack has no output {name}", where=str(place), do="name a Tallybatch stack, or deploy it once more"
        )
    return outputs[name]


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
