"""What every implementation of Objects does: the in-memory twin, and S3Objects on the emulator."""

from __future__ import annotations

import hashlib
import io
import random
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallybatch.adapters.s3_objects import S3Objects
from tallybatch.domain.errors import Conflict, NotFound
from tallybatch.ports import Objects
from tests.support.emulated import Emulated, emulated_at
from tests.support.memory_objects import MemoryBuckets

KEYS = [
    "inbox/acme/films/2026-01/a b+c.jsonl",
    "inbox/acme/films/2026-01/100%25 %2B %2F.jsonl",
    "inbox/acme/films/2026-01/Zoë Ægir 東京 🎬.jsonl",
    "inbox/acme/films/2026-01/a&b=c;d'e(f)~!*@$,:.jsonl",
]
MIB = 1 << 20


@dataclass
class World:
    objects: Objects
    elsewhere: Objects
    """A bucket of somebody else, for copies."""
    write_as_user: Callable[[Objects, str, bytes], object]
    """Without our metadata."""
    retention_of: Callable[[str], str]
    content_type_of: Callable[[str], str]
    delete: Callable[[str], None]


@pytest.fixture(params=["memory", "emulator"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return memory_world()
    return s3_world(emulated_at(request.getfixturevalue("emulator")))


def memory_world() -> World:
    buckets = MemoryBuckets()
    objects = buckets.bucket("ours")

    def stored(key: str) -> tuple[str, str]:
        found = objects.stored(key)
        assert found is not None
        return found.retention, found.content_type

    return World(
        objects=objects,
        elsewhere=buckets.bucket("theirs"),
        write_as_user=lambda where, key, body: buckets.bucket(where.bucket).write_as_user(key, body),
        retention_of=lambda key: stored(key)[0],
        content_type_of=lambda key: stored(key)[1],
        delete=objects.delete,
    )


def s3_world(emulated: Emulated) -> World:
    client = emulated.shared_s3
    bucket = emulated.new_bucket()

    def write_as_user(where: Objects, key: str, body: bytes) -> None:
        client.put_object(Bucket=where.bucket, Key=key, Body=body)

    def retention_of(key: str) -> str:
        tags = client.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
        return {tag["Key"]: tag["Value"] for tag in tags}.get("retention", "")

    return World(
        objects=S3Objects(client, bucket, page_size=3),
        elsewhere=S3Objects(client, emulated.new_bucket()),
        write_as_user=write_as_user,
        retention_of=retention_of,
        content_type_of=lambda key: client.head_object(Bucket=bucket, Key=key)["ContentType"],
        delete=lambda key: client.delete_object(Bucket=bucket, Key=key) and None,
    )


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("key", KEYS)
def test_any_key_is_written_read_listed_and_copied_under_its_raw_name(world: World, key: str) -> None:
    objects = world.objects
    objects.put_once(key, b"lines")
    objects.put_once("zzz/other", b"")
    objects.copy(objects.bucket, key, f"copies/{key}")
    assert objects.get(key) == objects.get(f"copies/{key}") == b"lines"
    assert [info.key for info in objects.list("inbox/")] == [key]
    assert objects.uri(key) == f"s3://{objects.bucket}/{key}"


def test_a_missing_object_is_none_to_head_and_not_found_to_the_rest(world: World) -> None:
    assert world.objects.head("nowhere") is None
    assert list(world.objects.list("nowhere")) == []
    reads: list[Callable[[], object]] = [
        lambda: world.objects.get("nowhere"),
        lambda: world.objects.get_range("nowhere", 0, 1),
        lambda: world.objects.open("nowhere"),
        lambda: world.objects.copy(world.objects.bucket, "nowhere", "copy"),
    ]
    for read in reads:
        with pytest.raises(NotFound, match="nowhere"):
            read()
    world.objects.put("there", b"1")
    assert world.objects.head("there", version_id=uuid.uuid4().hex) is None


def test_head_tells_size_hash_etag_and_version(world: World) -> None:
    written = world.objects.put_once("a", b"12345", content_type="text/plain")
    head = world.objects.head("a")
    assert head is not None
    assert (head.size, head.sha256, head.etag, head.version_id) == (
        5,
        sha256(b"12345"),
        written.etag,
        written.version_id,
    )
    assert (written.key, written.size, written.sha256) == ("a", 5, sha256(b"12345"))
    assert head.version_id
    assert head.last_modified > 1_600_000_000
    assert world.content_type_of("a") == "text/plain"


def test_an_object_of_a_user_has_no_hash(world: World) -> None:
    world.write_as_user(world.objects, "theirs", b"abc")
    head = world.objects.head("theirs")
    assert head is not None
    assert head.sha256 == ""
    assert world.objects.get("theirs") == b"abc"


def test_the_same_bytes_twice_are_one_success_and_other_bytes_a_conflict_that_names_both(world: World) -> None:
    first = world.objects.put_once("jobs/manifest.json", b"one")
    again = world.objects.put_once("jobs/manifest.json", io.BytesIO(b"one"))
    assert (again.etag, again.version_id, again.sha256) == (first.etag, first.version_id, first.sha256)
    with pytest.raises(Conflict) as conflict:
        world.objects.put_once("jobs/manifest.json", b"two")
    assert sha256(b"one") in str(conflict.value)
    assert sha256(b"two") in str(conflict.value)
    assert world.objects.get("jobs/manifest.json") == b"one"


def test_put_once_over_an_object_without_our_hash_compares_the_bytes(world: World) -> None:
    world.write_as_user(world.objects, "a", b"same")
    assert world.objects.put_once("a", b"same").size == 4
    with pytest.raises(Conflict):
        world.objects.put_once("a", b"diff")


def test_of_many_writers_with_different_bytes_exactly_one_wins(world: World) -> None:
    def write(n: int) -> int | None:
        try:
            world.objects.put_once("one", b"writer %d" % n)
        except Conflict:
            return None
        return n

    with ThreadPoolExecutor(8) as pool:
        winners = [n for n in pool.map(write, range(8)) if n is not None]
    assert len(winners) == 1
    assert world.objects.get("one") == b"writer %d" % winners[0]


def test_a_large_body_goes_in_parts_and_keeps_hash_type_and_conditions(world: World) -> None:
    body = bytes(range(256)) * (4096 * 9) + b"tail"
    stream = io.BytesIO(body)
    stream.seek(1000)
    written = world.objects.put_once("big", stream, content_type="application/jsonl", retention="raw=90d")
    assert (written.size, written.sha256) == (9 * MIB + 4, sha256(body))
    assert world.objects.get("big") == body
    head = world.objects.head("big")
    assert head is not None
    assert (head.sha256, head.etag, head.version_id) == (written.sha256, written.etag, written.version_id)
    assert world.content_type_of("big") == "application/jsonl"
    assert world.objects.put_once("big", body).version_id == written.version_id
    with pytest.raises(Conflict):
        world.objects.put_once("big", body[::-1])


def test_an_empty_object_is_an_object(world: World) -> None:
    world.objects.put_once("empty", b"")
    assert world.objects.get("empty") == b""
    assert world.objects.get_range("empty", 0, 10) == b""
    with world.objects.open("empty") as stream:
        assert stream.read() == b""


def test_retention_becomes_a_tag(world: World) -> None:
    world.objects.put_once("raw", b"line", retention="raw=90d")
    assert world.retention_of("raw") == "raw=90d"
    world.objects.put("report", b"1", retention="results")
    assert world.retention_of("report") == "results"
    assert world.objects.put_if_match("current", b"1", etag=None, content_type="text/plain", retention="30d")
    assert world.retention_of("current") == "30d"
    world.objects.put_once("untagged", b"")
    assert world.retention_of("untagged") == ""


def test_retaining_an_object_of_somebody_else_tags_it_and_leaves_its_bytes(world: World) -> None:
    world.write_as_user(world.objects, "inbox/film", b"ours to read")
    info = world.objects.head("inbox/film")
    assert info is not None
    world.objects.retain("inbox/film", "7d", version_id=info.version_id)
    world.objects.retain("inbox/film", "2d")
    assert (world.retention_of("inbox/film"), world.objects.get("inbox/film")) == ("2d", b"ours to read")
    assert world.objects.head("inbox/film") == info
    with pytest.raises(NotFound):
        world.objects.retain("inbox/other", "2d")


def test_ranges_end_where_the_object_ends(world: World) -> None:
    world.objects.put_once("frames", b"0123456789")
    reads = {(0, 3): b"012", (7, 3): b"789", (8, 100): b"89", (10, 5): b"", (50, 5): b"", (3, 0): b""}
    for (offset, length), expected in reads.items():
        assert world.objects.get_range("frames", offset, length) == expected


def test_open_reads_lines_and_chunks(world: World) -> None:
    lines = [b'{"n": %d}\n' % n for n in range(200_000)]
    world.objects.put_once("lines", b"".join(lines))
    with world.objects.open("lines") as stream:
        assert stream.read(5) == lines[0][:5]
        assert stream.readline() == lines[0][5:]
        assert list(stream) == lines[1:]
        assert stream.read(1) == b""
    assert stream.closed


def test_open_with_an_etag_notices_a_change(world: World) -> None:
    before = world.objects.put("inbox/a", b"before")
    with world.objects.open("inbox/a", etag=before.etag) as stream:
        assert stream.read() == b"before"
    world.objects.put("inbox/a", b"after")
    with pytest.raises(NotFound, match="changed"):
        world.objects.open("inbox/a", etag=before.etag)


def test_an_overwritten_version_can_still_be_opened_headed_and_copied(world: World) -> None:
    before = world.objects.put("inbox/a", b"before")
    world.objects.put("inbox/a", b"afterwards")
    with world.objects.open("inbox/a", version_id=before.version_id, etag=before.etag) as stream:
        assert stream.read() == b"before"
    head = world.objects.head("inbox/a", version_id=before.version_id)
    assert head is not None
    assert head.size == 6
    world.objects.copy(world.objects.bucket, "inbox/a", "copy", version_id=before.version_id)
    assert world.objects.get("copy") == b"before"


def test_list_goes_through_all_pages_in_key_order(world: World) -> None:
    names = [f"p/{n:02d}" for n in range(8)] + ["p/é", "p/Z", "p/\U0001f3ac", "p/\uff5e"]
    for name in names:
        world.objects.put_once(name, name.encode())
    world.objects.put_once("q", b"")
    listed = list(world.objects.list("p/"))
    assert [info.key for info in listed] == sorted(names, key=str.encode)
    assert {info.sha256 for info in listed} == {""}
    assert [info.size for info in listed] == [len(info.key.encode()) for info in listed]
    head = world.objects.head("p/03")
    assert head is not None
    assert head.etag == listed[3].etag


def test_a_deleted_object_is_gone_and_may_be_written_again(world: World) -> None:
    world.objects.put_once("a", b"one")
    world.delete("a")
    assert world.objects.head("a") is None
    assert list(world.objects.list("a")) == []
    world.objects.put_once("a", b"two")
    assert world.objects.get("a") == b"two"


def test_put_replaces_and_keeps_the_type(world: World) -> None:
    first = world.objects.put("report", b"one")
    second = world.objects.put("report", b"two", content_type="text/html")
    assert world.objects.get("report") == b"two"
    assert first.version_id != second.version_id
    assert second.sha256 == sha256(b"two")
    assert world.content_type_of("report") == "text/html"


def test_put_replaces_by_a_file_of_any_size(world: World, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(random.Random(7).randbytes(MIB) * 11)
    world.objects.put("list", b"one")
    for _ in range(2):
        with large.open("rb") as body:
            body.seek(5)
            written = world.objects.put("list", body, content_type="application/x-ndjson")
    assert (written.size, written.sha256) == (11 * MIB, sha256(large.read_bytes()))
    assert world.objects.get("list") == large.read_bytes()
    assert world.content_type_of("list") == "application/x-ndjson"


def test_put_if_match_lets_only_the_writer_through_who_saw_the_current_state(world: World) -> None:
    objects, kind = world.objects, "application/json"
    assert not objects.put_if_match("current.json", b"0", etag='"0123456789abcdef0123456789abcdef"', content_type=kind)
    assert objects.put_if_match("current.json", b"1", etag=None, content_type=kind)
    assert not objects.put_if_match("current.json", b"1", etag=None, content_type=kind)
    seen = objects.head("current.json")
    assert seen is not None
    assert objects.put_if_match("current.json", b"2", etag=seen.etag, content_type=kind)
    assert not objects.put_if_match("current.json", b"3", etag=seen.etag, content_type=kind)
    assert objects.get("current.json") == b"2"
    now = objects.head("current.json")
    assert now is not None
    assert now.sha256 == sha256(b"2")


def test_of_many_switches_from_one_state_exactly_one_wins(world: World) -> None:
    etag = world.objects.put("current.json", b"start").etag

    def switch(n: int) -> bool:
        return world.objects.put_if_match("current.json", b"%d" % n, etag=etag, content_type="application/json")

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(switch, range(8)))
    assert won.count(True) == 1
    assert world.objects.get("current.json") == b"%d" % won.index(True)


def test_copy_within_the_bucket_keeps_the_hash_and_from_another_brings_only_the_bytes(world: World) -> None:
    world.objects.put_once("a", b"ours", content_type="text/plain", retention="raw=90d")
    inside = world.objects.copy(world.objects.bucket, "a", "b")
    assert inside.sha256 == sha256(b"ours")
    assert (world.content_type_of("b"), world.retention_of("b")) == ("text/plain", "")
    world.elsewhere.put("drop/x y.jsonl", b"theirs")
    copied = world.objects.copy(world.elsewhere.bucket, "drop/x y.jsonl", "inbox/x y.jsonl")
    head = world.objects.head("inbox/x y.jsonl")
    assert head is not None
    assert (copied.sha256, head.sha256, head.etag, head.version_id) == ("", "", copied.etag, copied.version_id)
    assert (copied.key, copied.size) == ("inbox/x y.jsonl", 6)
    assert copied.version_id
    assert world.objects.get("inbox/x y.jsonl") == b"theirs"
