"""The port Objects in memory: versions, ETags and conditions as S3 has them. Passes the same suite as `S3Objects`."""

from __future__ import annotations

import hashlib
import io
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from tallybatch.domain.errors import Conflict, NotFound
from tallybatch.ports import ObjectInfo


@dataclass(frozen=True, slots=True)
class StoredObject:
    info: ObjectInfo
    body: bytes
    content_type: str
    retention: str = ""


@dataclass
class MemoryBuckets:
    """All buckets of one account, so that a copy can come from another bucket."""

    clock: Callable[[], float] = field(default=lambda: 1_700_000_000.0)
    versions: dict[tuple[str, str], list[StoredObject]] = field(default_factory=dict)
    """By bucket and key, oldest first. An empty list is a deleted object."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    serial: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def bucket(self, name: str) -> MemoryObjects:
        return MemoryObjects(name, self)


class MemoryObjects:
    def __init__(self, bucket: str = "bucket", buckets: MemoryBuckets | None = None) -> None:
        self._bucket = bucket
        self._buckets = MemoryBuckets() if buckets is None else buckets

    def dated_by(self, now: Callable[[], float]) -> None:
        """The clock from which all of the account's buckets date what is written."""
        self._buckets.clock = now

    @property
    def bucket(self) -> str:
        return self._bucket

    def uri(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"

    def head(self, key: str, *, version_id: str = "") -> ObjectInfo | None:
        found = self.stored(key, version_id)
        return None if found is None else found.info

    def get(self, key: str) -> bytes:
        return self._must(key).body

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self._must(key).body[offset : offset + length] if length > 0 else b""

    def open(self, key: str, *, version_id: str = "", etag: str = "") -> AbstractContextManager[BinaryIO]:
        found = self._must(key, version_id)
        if etag and found.info.etag != etag:
            raise NotFound("the object has changed", where=self.uri(key), why=f"it no longer has ETag {etag}")
        return io.BytesIO(found.body)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with self._buckets.lock:
            found = [
                replace(versions[-1].info, sha256="", version_id="")
                for (bucket, key), versions in self._buckets.versions.items()
                if bucket == self._bucket and key.startswith(prefix) and versions
            ]
        return iter(sorted(found, key=lambda info: info.key.encode()))

    def put_once(
        self, key: str, body: bytes | BinaryIO, *, content_type: str = "application/octet-stream", retention: str = ""
    ) -> ObjectInfo:
        data = _read(body)
        with self._buckets.lock:
            found = self.stored(key)
            if found is None:
                return self._write(key, data, content_type, retention)
            if found.body != data:
                raise Conflict(
                    "the object exists with other bytes",
                    where=self.uri(key),
                    why=f"stored is sha256 {_sha256(found.body)}, to be written was sha256 {_sha256(data)}",
                )
            return found.info

    def put(
        self, key: str, body: bytes | BinaryIO, *, content_type: str = "application/octet-stream", retention: str = ""
    ) -> ObjectInfo:
        return self._write(key, _read(body), content_type, retention)

    def put_if_match(self, key: str, body: bytes, *, etag: str | None, content_type: str, retention: str = "") -> bool:
        with self._buckets.lock:
            found = self.stored(key)
            if (None if found is None else found.info.etag) != etag:
                return False
            self._write(key, body, content_type, retention)
            return True

    def retain(self, key: str, retention: str, *, version_id: str = "") -> None:
        with self._buckets.lock:
            found = self._must(key, version_id)
            versions = self._buckets.versions[(self._bucket, key)]
            versions[versions.index(found)] = replace(found, retention=retention)

    def copy(self, source_bucket: str, source_key: str, key: str, *, version_id: str = "") -> ObjectInfo:
        with self._buckets.lock:
            source = self._buckets.bucket(source_bucket)._must(source_key, version_id)
            ours = source_bucket == self._bucket
            return self._write(key, source.body, source.content_type, sha256=source.info.sha256 if ours else "")

    def write_as_user(self, key: str, body: bytes, *, intent: str = "") -> ObjectInfo:
        """As somebody who knows nothing of us: no hash. Not part of the port."""
        return self._write(key, body, "binary/octet-stream", sha256="", intent=intent)

    def delete(self, key: str) -> None:
        """As a lifecycle rule or an operator would. Not part of the port."""
        self._buckets.versions[(self._bucket, key)] = []

    def stored(self, key: str, version_id: str = "") -> StoredObject | None:
        """With its content type and retention tag, which the port does not show."""
        versions = self._buckets.versions.get((self._bucket, key), [])
        if version_id:
            return next((found for found in versions if found.info.version_id == version_id), None)
        return versions[-1] if versions else None

    def _must(self, key: str, version_id: str = "") -> StoredObject:
        found = self.stored(key, version_id)
        if found is None:
            raise NotFound("no such object", where=self.uri(key))
        return found

    def _write(
        self,
        key: str,
        body: bytes,
        content_type: str,
        retention: str = "",
        *,
        sha256: str | None = None,
        intent: str = "",
    ) -> ObjectInfo:
        with self._buckets.lock:
            info = ObjectInfo(
                key=key,
                size=len(body),
                etag=f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"',
                sha256=_sha256(body) if sha256 is None else sha256,
                version_id=f"v{next(self._buckets.serial)}",
                last_modified=self._buckets.clock(),
                intent=intent,
            )
            stored = StoredObject(info, bytes(body), content_type, retention)
            self._buckets.versions.setdefault((self._bucket, key), []).append(stored)
            return info


def _read(body: bytes | BinaryIO) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    body.seek(0)
    return body.read()


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
