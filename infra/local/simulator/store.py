"""The object store that a simulated provider reads from and writes to: S3 at an endpoint of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from infra.local.loopback import Aws, require_loopback
from tallybatch.domain.errors import NotFound

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class Store(Protocol):
    """Keys are raw. `get` raises `NotFound`."""

    def get(self, bucket: str, key: str) -> bytes: ...

    def put(self, bucket: str, key: str, body: bytes) -> None: ...

    def keys(self, bucket: str, prefix: str) -> Iterator[str]:
        """In order; a bucket that is not there raises `NotFound`."""


class S3Store:
    """The emulator's S3, with its dummy credentials. Raises `BadInput` for an endpoint of another machine."""

    def __init__(self, endpoint_url: str) -> None:
        self._endpoint_url = require_loopback(endpoint_url)

    @cached_property
    def _s3(self) -> S3Client:
        return Aws(self._endpoint_url).s3

    def get(self, bucket: str, key: str) -> bytes:
        try:
            return self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        except (self._s3.exceptions.NoSuchKey, self._s3.exceptions.NoSuchBucket):
            raise NotFound("no such object", where=f"s3://{bucket}/{key}") from None

    def put(self, bucket: str, key: str, body: bytes) -> None:
        self._s3.put_object(Bucket=bucket, Key=key, Body=body)

    def keys(self, bucket: str, prefix: str) -> Iterator[str]:
        try:
            for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
                yield from (item["Key"] for item in page.get("Contents", []))
        except self._s3.exceptions.NoSuchBucket:
            raise NotFound("no such bucket", where=f"s3://{bucket}") from None
