"""The port Objects on one S3 bucket: write-once by If-None-Match, replace by If-Match, resumable reads.

Each object we write carries the SHA-256 of its bytes as user metadata, because a multipart ETag or checksum is no hash
of the whole. The role needs s3:ListBucket, or S3 answers 403 instead of 404 for a missing key.
"""

from __future__ import annotations

import hashlib
import io
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlencode

from botocore.exceptions import ClientError

from tallybatch.adapters.aws_errors import calling, error_code
from tallybatch.adapters.s3_multipart import copy_in_parts, part_size, upload_in_parts
from tallybatch.adapters.s3_reader import CHUNK_BYTES, ResumingBody
from tallybatch.domain.errors import BadInput, Conflict, NotFound, Retryable
from tallybatch.ports import ObjectInfo

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CopySourceTypeDef, GetObjectOutputTypeDef

PART_BYTES = 8 << 20
"""Bodies above this go in parts of this size."""
COPY_LIMIT_BYTES = 5 << 30
"""The largest object that one CopyObject takes (S3 API reference)."""
COPY_PART_BYTES = 512 << 20
MAX_TRIES = 6
"""Of a conditional write that S3 answers with 409: another writer was at work at the same moment (S3 user guide,
"conditional writes")."""

_MISSING = frozenset({"NoSuchKey", "NoSuchVersion", "NotFound", "404"})
_CHANGED = frozenset({"PreconditionFailed", "412"})
_RACED = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_RETENTION = "retention"
_MOST_TAGS = 10
"""Of one object (S3 User Guide, "Categorizing your objects using tags")."""
_SHA256 = "sha256"
_WRITE_ID = "write-id"
INTENT = "tallybatch"
"""User metadata of dropped files: `x-amz-meta-tallybatch`."""


class S3Objects:
    """Keys are raw. `ObjectInfo.last_modified` is 0 in the answer to a write, which S3 does not date.

    `part_bytes` (at least 5 MiB on AWS), `copy_limit_bytes` and `copy_part_bytes` set when and how objects go in parts;
    `sleep` takes seconds.
    """

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        *,
        part_bytes: int = PART_BYTES,
        copy_limit_bytes: int = COPY_LIMIT_BYTES,
        copy_part_bytes: int = COPY_PART_BYTES,
        page_size: int = 1000,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._part_bytes = part_bytes
        self._copy_limit_bytes = copy_limit_bytes
        self._copy_part_bytes = copy_part_bytes
        self._page_size = page_size
        self._sleep = sleep

    @property
    def bucket(self) -> str:
        return self._bucket

    def uri(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"

    def head(self, key: str, *, version_id: str = "") -> ObjectInfo | None:
        with calling(self.uri(key)):
            found = self._head(self._bucket, key, version_id)
        return None if found is None else _info(key, found)

    def get(self, key: str) -> bytes:
        with self.open(key) as stream:
            return stream.read()

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """What the object has of `length` bytes from `offset` on; fewer, or none, beyond its end."""
        if length <= 0:
            return b""
        wanted: dict[str, Any] = {"Range": f"bytes={offset}-{offset + length - 1}"}
        where = f"{self.uri(key)} bytes {offset}+{length}"
        with calling(where):
            try:
                reply = self._get(key, wanted)
            except ClientError as error:
                if error_code(error) in {"InvalidRange", "416"}:
                    return b""
                raise

            def reopen(done: int) -> StreamingBody:
                rest = {"Range": f"bytes={offset + done}-{offset + length - 1}", "IfMatch": reply["ETag"]}
                with calling(where):
                    return self._get(key, rest)["Body"]

            with ResumingBody(where, reply["Body"], reply["ContentLength"], reopen, sleep=self._sleep) as body:
                return body.readall()

    def open(self, key: str, *, version_id: str = "", etag: str = "") -> AbstractContextManager[BinaryIO]:
        wanted: dict[str, Any] = {"VersionId": version_id} if version_id else {}
        with calling(self.uri(key)):
            reply = self._get(key, {**wanted, "IfMatch": etag} if etag else wanted)

        def reopen(position: int) -> StreamingBody:
            with calling(self.uri(key)):
                rest = self._get(key, {**wanted, "Range": f"bytes={position}-", "IfMatch": reply["ETag"]})
            if "ContentRange" not in rest:
                _skip(rest["Body"], position)
            return rest["Body"]

        raw = ResumingBody(self.uri(key), reply["Body"], reply["ContentLength"], reopen, sleep=self._sleep)
        return io.BufferedReader(raw, buffer_size=CHUNK_BYTES)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix, PaginationConfig={"PageSize": self._page_size}
        )
        with calling(self.uri(prefix)):
            for page in pages:
                for found in page.get("Contents", ()):
                    yield ObjectInfo(
                        key=found["Key"],
                        size=found["Size"],
                        etag=found["ETag"],
                        last_modified=found["LastModified"].timestamp(),
                    )

    def put_once(
        self, key: str, body: bytes | BinaryIO, *, content_type: str = "application/octet-stream", retention: str = ""
    ) -> ObjectInfo:
        """Large bodies are read twice: once for the hash, once for the upload. A write whose reply was lost and that
        the SDK sent again meets its own bytes, which is the success that it was."""
        stream = _stream(body)
        size, sha256 = _measure(stream)
        headers = _headers(content_type, {_SHA256: sha256}, retention)
        with calling(self.uri(key)):
            in_parts = size > self._part_bytes
            if in_parts and (found := self._head(self._bucket, key)):
                return self._same(_info(key, found), size, sha256)
            for tries in range(1, MAX_TRIES + 1):
                stream.seek(0)
                try:
                    written: Any = (
                        self._upload(key, stream, size, headers, {"IfNoneMatch": "*"})
                        if in_parts
                        else self._client.put_object(
                            Bucket=self._bucket, Key=key, Body=stream.read(), IfNoneMatch="*", **headers
                        )
                    )
                    return _written(key, size, sha256, written)
                except ClientError as error:
                    if error_code(error) not in _CHANGED | _RACED | {"NoSuchUpload"}:
                        raise
                if found := self._head(self._bucket, key):
                    return self._same(_info(key, found), size, sha256)
                self._sleep(0.05 * 2**tries)
        raise self._kept_racing(key)

    def put(
        self, key: str, body: bytes | BinaryIO, *, content_type: str = "application/octet-stream", retention: str = ""
    ) -> ObjectInfo:
        stream = _stream(body)
        size, sha256 = _measure(stream)
        headers = _headers(content_type, {_SHA256: sha256}, retention)
        stream.seek(0)
        with calling(self.uri(key)):
            written: Any = (
                self._upload(key, stream, size, headers, {})
                if size > self._part_bytes
                else self._client.put_object(Bucket=self._bucket, Key=key, Body=stream.read(), **headers)
            )
        return _written(key, size, sha256, written)

    def put_if_match(self, key: str, body: bytes, *, etag: str | None, content_type: str, retention: str = "") -> bool:
        """A failed condition that shows our own write (its reply was lost) is a success."""
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        write_id = uuid.uuid4().hex
        metadata = {_SHA256: hashlib.sha256(body).hexdigest(), _WRITE_ID: write_id}
        headers = _headers(content_type, metadata, retention)
        with calling(self.uri(key)):
            for tries in range(1, MAX_TRIES + 1):
                try:
                    self._client.put_object(Bucket=self._bucket, Key=key, Body=body, **headers, **condition)
                    return True
                except ClientError as error:
                    code = error_code(error)
                    if code in _MISSING and etag is not None:
                        return False
                    if code in _CHANGED:
                        found = self._head(self._bucket, key)
                        return found is not None and found["Metadata"].get(_WRITE_ID) == write_id
                    if code not in _RACED:
                        raise
                self._sleep(0.05 * 2**tries)
        raise self._kept_racing(key)

    def retain(self, key: str, retention: str, *, version_id: str = "") -> None:
        """S3 writes an object's tags as a whole, so those that are there are read and written again."""
        version: dict[str, Any] = {"VersionId": version_id} if version_id else {}
        with calling(self.uri(key)):
            try:
                found = self._client.get_object_tagging(Bucket=self._bucket, Key=key, **version)["TagSet"]
                tags = [tag for tag in found if tag["Key"] != _RETENTION]
                if len(tags) == _MOST_TAGS:
                    raise BadInput(
                        f"the object has {_MOST_TAGS} tags already",
                        where=self.uri(key),
                        do="drop it with fewer, or without `retention` of its class in the spec",
                    )
                tags.append({"Key": _RETENTION, "Value": retention})
                self._client.put_object_tagging(Bucket=self._bucket, Key=key, Tagging={"TagSet": tags}, **version)
            except ClientError as error:
                if error_code(error) in _MISSING:
                    raise _not_found(self.uri(key), version_id) from error
                raise

    def copy(self, source_bucket: str, source_key: str, key: str, *, version_id: str = "") -> ObjectInfo:
        """The source's tags stay behind, and its `sha256` too when it comes from another bucket: others may use the
        word. Raises `NotFound` for a missing source, `Retryable` if it changes meanwhile."""
        source: CopySourceTypeDef = {"Bucket": source_bucket, "Key": source_key}
        if version_id:
            source["VersionId"] = version_id
        where = f"s3://{source_bucket}/{source_key}"
        with calling(f"{where} to {self.uri(key)}"):
            found = self._head(source_bucket, source_key, version_id)
            if found is None:
                raise _not_found(where, version_id)
            size, etag = found["ContentLength"], found["ETag"]
            sha256 = found["Metadata"].get(_SHA256, "") if source_bucket == self._bucket else ""
            headers: dict[str, Any] = {"Metadata": {_SHA256: sha256} if sha256 else {}}
            headers |= {name: found[name] for name in ("ContentType", "ContentEncoding") if name in found}
            try:
                written: Any = (
                    self._client.copy_object(
                        Bucket=self._bucket,
                        Key=key,
                        CopySource=source,
                        CopySourceIfMatch=etag,
                        MetadataDirective="REPLACE",
                        TaggingDirective="REPLACE",
                        **headers,
                    )
                    if size <= self._copy_limit_bytes
                    else copy_in_parts(
                        self._client,
                        self._bucket,
                        key,
                        source,
                        size=size,
                        etag=etag,
                        part_bytes=part_size(size, self._copy_part_bytes),
                        headers=headers,
                    )
                )
            except ClientError as error:
                if error_code(error) in _CHANGED | _MISSING:
                    raise Retryable(
                        "the source changed while it was copied", where=where, do="the copy may be repeated"
                    ) from error
                raise
        return _written(key, size, sha256, {**written, **written.get("CopyObjectResult", {})})

    def _head(self, bucket: str, key: str, version_id: str = "") -> dict[str, Any] | None:
        version = {"VersionId": version_id} if version_id else {}
        try:
            return dict(self._client.head_object(Bucket=bucket, Key=key, **version))  # type: ignore[arg-type]
        except ClientError as error:
            if error_code(error) in _MISSING:
                return None
            raise

    def _get(self, key: str, wanted: dict[str, Any]) -> GetObjectOutputTypeDef:
        try:
            return self._client.get_object(Bucket=self._bucket, Key=key, **wanted)
        except ClientError as error:
            if error_code(error) in _MISSING:
                raise _not_found(self.uri(key), wanted.get("VersionId", "")) from error
            if error_code(error) in _CHANGED:
                raise NotFound(
                    "the object has changed",
                    where=self.uri(key),
                    why=f"it no longer has ETag {wanted['IfMatch']}",
                    do="start again from the object as it is now",
                ) from error
            raise

    def _upload(
        self, key: str, stream: BinaryIO, size: int, headers: dict[str, Any], conditions: dict[str, Any]
    ) -> Any:
        return upload_in_parts(
            self._client,
            self._bucket,
            key,
            stream,
            part_bytes=part_size(size, self._part_bytes),
            headers=headers,
            conditions=conditions,
        )

    def _same(self, stored: ObjectInfo, size: int, sha256: str) -> ObjectInfo:
        stored_sha256 = stored.sha256
        if not stored_sha256 and stored.size == size:
            with self.open(stored.key, etag=stored.etag) as stream:
                stored_sha256 = _measure(stream)[1]
        if (stored.size, stored_sha256) != (size, sha256):
            raise Conflict(
                "the object exists with other bytes",
                where=self.uri(stored.key),
                why=f"stored are {stored.size} bytes, sha256 {stored_sha256 or 'not kept'}; "
                f"to be written were {size} bytes, sha256 {sha256}",
                do="objects of this name never change: find out which of the two is wrong",
            )
        return stored

    def _kept_racing(self, key: str) -> Retryable:
        return Retryable(
            f"another writer was at work during each of {MAX_TRIES} tries",
            where=self.uri(key),
            do="the same write may be repeated later",
        )


def _headers(content_type: str, metadata: dict[str, str], retention: str) -> dict[str, Any]:
    """Arguments that every way of writing shares; the tag is what the bucket's lifecycle rules read."""
    tagging = {"Tagging": urlencode({_RETENTION: retention})} if retention else {}
    return {"ContentType": content_type, "Metadata": metadata, **tagging}


def _stream(body: bytes | BinaryIO) -> BinaryIO:
    return io.BytesIO(body) if isinstance(body, bytes | bytearray | memoryview) else body


def _measure(stream: BinaryIO) -> tuple[int, str]:
    """Size in bytes and SHA-256 of a stream from its start (or from where it is, if it cannot seek) to its end."""
    if stream.seekable():
        stream.seek(0)
    size, digest = 0, hashlib.sha256()
    while chunk := stream.read(CHUNK_BYTES):
        size += len(chunk)
        digest.update(chunk)
    return size, digest.hexdigest()


def _skip(body: StreamingBody, count: int) -> None:
    """Read past what came before: a server may answer a range request with the whole object (RFC 9110, 14.2)."""
    while count and (chunk := body.read(min(count, CHUNK_BYTES))):
        count -= len(chunk)


def _info(key: str, head: dict[str, Any]) -> ObjectInfo:
    return ObjectInfo(
        key=key,
        size=head["ContentLength"],
        etag=head["ETag"],
        sha256=head["Metadata"].get(_SHA256, ""),
        version_id=head.get("VersionId", ""),
        last_modified=head["LastModified"].timestamp(),
        intent=head["Metadata"].get(INTENT, ""),
    )


def _written(key: str, size: int, sha256: str, reply: Any) -> ObjectInfo:
    return ObjectInfo(key=key, size=size, etag=reply["ETag"], sha256=sha256, version_id=reply.get("VersionId", ""))


def _not_found(uri: str, version_id: str) -> NotFound:
    return NotFound(
        "no such object",
        where=uri,
        why=f"it has no version {version_id}" if version_id else "",
        do="check the name, and whether a lifecycle rule has deleted it",
    )
