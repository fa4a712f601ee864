"""S3Objects when the network or another writer gets in the way; the faults strike at HTTP level."""

from __future__ import annotations

import io
from collections.abc import Iterator

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from tallybatch.adapters.s3_objects import MAX_TRIES, S3Objects
from tallybatch.adapters.s3_reader import MAX_BREAKS
from tallybatch.domain.errors import BadInput, Conflict, NotFound, Permanent, Retryable
from tests.support.emulated import Emulated
from tests.support.faults import Answer, BrokenRead, LostReply, sdk_repeats_at_once

MIB = 1 << 20
BODY = b"".join(b"%07d\n" % n for n in range(400_000))
"""3.2 MB in which each line tells its place."""
RACE = b"<Error><Code>ConditionalRequestConflict</Code><Message>at work</Message></Error>"
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>later</Message></Error>"
DENIED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


class Bench:
    def __init__(self, emulator: str) -> None:
        self.emulated = Emulated(emulator)
        self.client = self.emulated.s3()
        self.bucket = self.emulated.new_bucket()
        self.pauses: list[float] = []
        self.objects = S3Objects(self.client, self.bucket, sleep=self.pauses.append)

    def rival(self) -> S3Objects:
        return S3Objects(self.emulated.shared_s3, self.bucket)

    def open_uploads(self) -> int:
        return len(self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", ()))


@pytest.fixture(autouse=True)
def no_pauses_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    sdk_repeats_at_once(monkeypatch)


@pytest.fixture
def bench(emulator: str) -> Bench:
    return Bench(emulator)


def test_put_once_whose_reply_was_lost_is_a_success_written_once(bench: Bench) -> None:
    lost = LostReply()
    lost.on(bench.client, "s3", "PutObject")
    written = bench.objects.put_once("a", b"mine")
    assert lost.count == 1
    versions = bench.client.list_object_versions(Bucket=bench.bucket)["Versions"]
    assert [version["VersionId"] for version in versions] == [written.version_id]


def test_put_once_whose_reply_was_lost_after_a_rival_came_first_is_a_conflict(bench: Bench) -> None:
    bench.rival().put_once("a", b"theirs")
    with pytest.raises(Conflict):
        bench.objects.put_once("a", b"mine")


def test_a_switch_whose_reply_was_lost_is_a_success(bench: Bench) -> None:
    etag = bench.objects.put("current.json", b"1").etag
    lost = LostReply()
    lost.on(bench.client, "s3", "PutObject")
    assert bench.objects.put_if_match("current.json", b"2", etag=etag, content_type="application/json")
    assert lost.count == 1
    assert bench.objects.get("current.json") == b"2"


def test_a_rival_that_writes_the_same_bytes_first_is_still_the_winner_of_the_switch(bench: Bench) -> None:
    etag = bench.objects.put("current.json", b"1").etag
    assert bench.rival().put_if_match("current.json", b"2", etag=etag, content_type="application/json")
    assert not bench.objects.put_if_match("current.json", b"2", etag=etag, content_type="application/json")


def test_the_last_call_of_a_large_upload_may_lose_its_reply(bench: Bench) -> None:
    lost = LostReply()
    lost.on(bench.client, "s3", "CompleteMultipartUpload")
    body = BODY * 3
    written = bench.objects.put_once("big", body)
    assert (lost.count, written.size) == (1, len(body))
    assert bench.objects.get("big") == body
    assert bench.open_uploads() == 0


def test_a_large_upload_that_a_rival_overtakes_is_a_conflict_and_leaves_no_parts(bench: Bench) -> None:
    first_part = LostReply(then=lambda: bench.rival().put_once("big", b"theirs"))
    first_part.on(bench.client, "s3", "UploadPart")
    with pytest.raises(Conflict, match="stored are 6 bytes"):
        bench.objects.put_once("big", io.BytesIO(BODY * 3))
    assert bench.objects.get("big") == b"theirs"
    assert bench.open_uploads() == 0


def test_a_large_upload_that_fails_is_aborted(bench: Bench) -> None:
    Answer(403, DENIED).on(bench.client, "s3", "UploadPart")
    with pytest.raises(Permanent, match="denied"):
        bench.objects.put_once("big", BODY * 3)
    assert bench.open_uploads() == 0
    assert bench.objects.head("big") is None


def test_a_409_is_tried_again(bench: Bench) -> None:
    race = Answer(409, RACE, times=2)
    race.on(bench.client, "s3", "PutObject")
    bench.objects.put_once("a", b"mine")
    assert (race.count, len(bench.pauses)) == (2, 2)
    assert bench.objects.get("a") == b"mine"
    again = Answer(409, RACE, times=1)
    again.on(bench.client, "s3", "PutObject")
    assert bench.objects.put_if_match("b", b"mine", etag=None, content_type="text/plain")


def test_409_for_ever_is_retryable(bench: Bench) -> None:
    race = Answer(409, RACE, times=100)
    race.on(bench.client, "s3", "PutObject")
    with pytest.raises(Retryable, match=f"{MAX_TRIES} tries"):
        bench.objects.put_once("a", b"mine")
    assert race.count == MAX_TRIES


def test_what_the_sdk_gives_up_on_is_retryable_and_a_refusal_is_not(bench: Bench, emulator: str) -> None:
    client = Emulated(emulator, attempts=1).s3()
    objects = S3Objects(client, bench.bucket)
    Answer(503, SLOW_DOWN).on(client, "s3", "PutObject")
    with pytest.raises(Retryable, match="SlowDown"):
        objects.put("a", b"1")
    Answer(403, b"").on(client, "s3", "HeadObject")
    with pytest.raises(Permanent):
        objects.head("a")


def test_a_missing_bucket_is_not_a_missing_object(bench: Bench) -> None:
    with pytest.raises(ClientError, match="NoSuchBucket"):
        S3Objects(bench.client, "no-such-bucket-here").get("a")


@pytest.mark.parametrize("versioned_read", [False, True])
def test_a_stream_that_breaks_goes_on_where_it_broke(bench: Bench, versioned_read: bool) -> None:
    written = bench.objects.put_once("a", BODY)
    broken = BrokenRead(after=MIB + 3, times=2)
    broken.on(bench.client, "s3", "GetObject")
    version_id = written.version_id if versioned_read else ""
    with bench.objects.open("a", version_id=version_id) as stream:
        assert stream.read() == BODY
    assert broken.count == 2
    if not versioned_read:
        assert broken.ranges == ["", f"bytes={MIB + 3}-", f"bytes={2 * (MIB + 3)}-"]


def test_get_and_get_range_survive_a_break_too(bench: Bench) -> None:
    bench.objects.put_once("a", BODY)
    broken = BrokenRead(after=100, times=2)
    broken.on(bench.client, "s3", "GetObject")
    assert bench.objects.get_range("a", 8, 160) == BODY[8:168]
    assert bench.objects.get("a") == BODY
    assert broken.count == 2
    assert broken.ranges[1] == "bytes=108-167"


def test_an_object_that_changes_during_a_broken_read_is_noticed(bench: Bench) -> None:
    bench.objects.put("a", BODY)
    BrokenRead(after=MIB).on(bench.client, "s3", "GetObject")
    with bench.objects.open("a") as stream:
        assert stream.read(10) == BODY[:10]
        bench.rival().put("a", BODY[::-1])
        with pytest.raises(NotFound, match="changed"):
            stream.read()


def test_a_read_that_keeps_breaking_gives_up(bench: Bench) -> None:
    bench.objects.put("a", BODY)
    BrokenRead(after=0, times=100).on(bench.client, "s3", "GetObject")
    with pytest.raises(Retryable, match="byte 0 of 3200000"):
        bench.objects.get("a")
    assert len(bench.pauses) == MAX_BREAKS


def test_copies_above_the_limit_go_in_parts_and_keep_hash_and_version(bench: Bench) -> None:
    objects = S3Objects(bench.client, bench.bucket, copy_limit_bytes=MIB, copy_part_bytes=MIB)
    written = objects.put_once("a b+c", BODY, content_type="text/plain")
    objects.put("a b+c", b"later")
    copied = objects.copy(bench.bucket, "a b+c", "copy", version_id=written.version_id)
    head = objects.head("copy")
    assert head is not None
    assert (head.size, head.sha256, head.etag, head.version_id) == (
        len(BODY),
        written.sha256,
        copied.etag,
        copied.version_id,
    )
    assert objects.get("copy") == BODY
    assert bench.client.head_object(Bucket=bench.bucket, Key="copy")["ContentType"] == "text/plain"


@pytest.fixture
def moto_objects() -> Iterator[S3Objects]:
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="tagged")
        yield S3Objects(client, "tagged")


def test_a_large_body_carries_its_retention_tag(moto_objects: S3Objects) -> None:
    """On moto, since the emulator drops the tags of CreateMultipartUpload."""
    moto_objects.put_once("raw", bytes(9 * MIB), retention="raw=90d")
    tags = boto3.client("s3", region_name="us-east-1").get_object_tagging(Bucket="tagged", Key="raw")["TagSet"]
    assert tags == [{"Key": "retention", "Value": "raw=90d"}]


def test_retaining_keeps_the_tags_that_are_there(moto_objects: S3Objects) -> None:
    client = moto_objects._client
    client.put_object(Bucket=moto_objects.bucket, Key="film", Body=b"1", Tagging="team=data&retention=365d")
    moto_objects.retain("film", "7d")
    tags = client.get_object_tagging(Bucket=moto_objects.bucket, Key="film")["TagSet"]
    assert tags == [{"Key": "team", "Value": "data"}, {"Key": "retention", "Value": "7d"}]


def test_retaining_an_object_that_has_all_its_tags_is_refused(moto_objects: S3Objects) -> None:
    tags = "&".join(f"t{number}=x" for number in range(10))
    moto_objects._client.put_object(Bucket=moto_objects.bucket, Key="film", Body=b"1", Tagging=tags)
    with pytest.raises(BadInput, match="10 tags"):
        moto_objects.retain("film", "7d")
