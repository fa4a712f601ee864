"""Uploads in parts for `s3_objects`: from a stream, or by server-side copy. An upload that fails is aborted.

boto3's managed transfer is not used, for it does not pass If-None-Match on to CompleteMultipartUpload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, CompleteMultipartUploadOutputTypeDef, CopySourceTypeDef

MAX_PARTS = 10_000
"""S3 user guide, "multipart upload limits"; parts are 5 MiB to 5 GiB, the last one may be smaller."""


def part_size(total_bytes: int, wanted_bytes: int) -> int:
    """The wanted part size, or a larger one if the object would need too many parts."""
    return max(wanted_bytes, -(-total_bytes // MAX_PARTS))


@contextmanager
def _upload(client: S3Client, bucket: str, key: str, headers: Mapping[str, Any]) -> Iterator[str]:
    upload_id = client.create_multipart_upload(Bucket=bucket, Key=key, **headers)["UploadId"]
    try:
        yield upload_id
    except BaseException:
        with suppress(ClientError):
            client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
        raise


def upload_in_parts(
    client: S3Client,
    bucket: str,
    key: str,
    body: BinaryIO,
    *,
    part_bytes: int,
    headers: Mapping[str, Any],
    conditions: Mapping[str, Any],
) -> CompleteMultipartUploadOutputTypeDef:
    """Upload `body` from its position to its end, one part in memory at a time. `headers` go to
    CreateMultipartUpload, `conditions` (IfNoneMatch) to CompleteMultipartUpload."""
    with _upload(client, bucket, key, {**headers, "ChecksumAlgorithm": "CRC32"}) as upload_id:
        parts: list[CompletedPartTypeDef] = []
        while part := body.read(part_bytes):
            number = len(parts) + 1
            done = client.upload_part(
                Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=part, ChecksumAlgorithm="CRC32"
            )
            parts.append({"PartNumber": number, "ETag": done["ETag"], "ChecksumCRC32": done["ChecksumCRC32"]})
        return client.complete_multipart_upload(
            Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}, **conditions
        )


def copy_in_parts(
    client: S3Client,
    bucket: str,
    key: str,
    source: CopySourceTypeDef,
    *,
    size: int,
    etag: str,
    part_bytes: int,
    headers: Mapping[str, Any],
    workers: int = 4,
) -> CompleteMultipartUploadOutputTypeDef:
    """Copy on the server's side, several parts at once. `etag` binds all parts to one state of the source."""
    starts = range(0, size, part_bytes)
    with _upload(client, bucket, key, headers) as upload_id:

        def copy_part(start: int) -> CompletedPartTypeDef:
            number = start // part_bytes + 1
            done = client.upload_part_copy(
                Bucket=bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                CopySource=source,
                CopySourceIfMatch=etag,
                CopySourceRange=f"bytes={start}-{min(start + part_bytes, size) - 1}",
            )
            return {"PartNumber": number, "ETag": done["CopyPartResult"]["ETag"]}

        parts = _in_parallel(copy_part, starts, workers)
        return client.complete_multipart_upload(
            Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}
        )


def _in_parallel(
    copy_part: Callable[[int], CompletedPartTypeDef], starts: Sequence[int], workers: int
) -> list[CompletedPartTypeDef]:
    with ThreadPoolExecutor(max_workers=min(workers, len(starts))) as pool:
        return list(pool.map(copy_part, starts))
