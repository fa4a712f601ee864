"""The local stack's only door to the network: what it talks to is on this machine, or the call is refused."""

from __future__ import annotations

import ipaddress
import json
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config

from tallybatch.domain.errors import BadInput

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_kms import KMSClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sqs import SQSClient

HOST = "127.0.0.1"
REGION = "us-east-1"
ACCOUNT = "000000000000"

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_loopback(url: str) -> bool:
    """Whether `url` names this machine by `localhost` or a loopback address."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_loopback(url: str) -> str:
    """`url` itself. Raises `BadInput` for any other machine: the local stack never touches an AWS account."""
    if not is_loopback(url):
        raise BadInput(
            f"{url or 'an empty endpoint'} is not on this machine",
            where="local stack",
            do=f"use an http://{HOST}:PORT endpoint; to work on AWS, deploy with the CDK instead",
        )
    return url


def free_port(preferred: int | None = None) -> int:
    """`preferred` if nothing listens there, else a port that the system picks."""
    for port in (preferred, 0):
        if port is None:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"no free port on {HOST}")


def answers(url: str, *, timeout_s: float = 2) -> bool:
    """Whether a GET of `url` is answered with success; proxies of the environment are not used."""
    try:
        with _direct.open(require_loopback(url), timeout=timeout_s) as response:
            return 200 <= int(response.status) < 300
    except (OSError, urllib.error.HTTPError, ValueError):
        return False


def get_json(url: str, *, timeout_s: float = 5) -> Any:
    """The JSON document at `url`. Raises `OSError` when nothing answers."""
    with _direct.open(require_loopback(url), timeout=timeout_s) as response:
        return json.load(response)


class Aws:
    """Clients for the emulator: fixed dummy credentials, no profile, no proxy, and never another machine."""

    def __init__(self, endpoint_url: str) -> None:
        self.endpoint_url = require_loopback(endpoint_url)
        no_profile = botocore.session.Session(session_vars={"profile": (None, None, None, None)})
        self._session = boto3.session.Session(
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106  the emulator's dummy
            region_name=REGION,
            botocore_session=no_profile,
        )
        self._config = Config(
            proxies={},
            connect_timeout=5,
            read_timeout=60,
            retries={"mode": "standard", "total_max_attempts": 3},
            s3={"addressing_style": "path"},
        )

    def client(self, service: str) -> Any:
        """A boto3 client of `service`, for those without a property below."""
        make: Any = self._session.client
        return make(service, endpoint_url=self.endpoint_url, config=self._config)

    @property
    def cloudformation(self) -> CloudFormationClient:
        return self.client("cloudformation")  # type: ignore[no-any-return]

    @property
    def s3(self) -> S3Client:
        return self.client("s3")  # type: ignore[no-any-return]

    @property
    def kms(self) -> KMSClient:
        return self.client("kms")  # type: ignore[no-any-return]

    @property
    def lambda_(self) -> LambdaClient:
        return self.client("lambda")  # type: ignore[no-any-return]

    @property
    def logs(self) -> CloudWatchLogsClient:
        return self.client("logs")  # type: ignore[no-any-return]

    @property
    def secretsmanager(self) -> SecretsManagerClient:
        return self.client("secretsmanager")  # type: ignore[no-any-return]

    @property
    def sqs(self) -> SQSClient:
        return self.client("sqs")  # type: ignore[no-any-return]
