"""Downloads: exactly the file's bytes, complete, whatever the connection does; or an error."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from tallybatch.adapters.providers.openai import OpenAIApi
from tallybatch.domain.errors import ProviderRefused, ProviderUnavailable, ResultsGone
from tests.support.loopback import Loopback, Reply, Request, error_reply, json_reply, serving

_random = random.Random(7)
FILE = b"".join(
    json.dumps({"custom_id": str(number), "text": _random.randbytes(900).hex()}).encode() + b"\n"
    for number in range(1500)
)
"""About 2.8 MB: three chunks."""


def api(server: Loopback, **settings: Any) -> OpenAIApi:
    settings = {"max_retries": 0, "sleep": lambda _: None, **settings}
    return OpenAIApi(lambda: "sk-test", base_url=server.url + "/v1", **settings)


def file_server(
    content: Callable[[int, Request], Reply], about: Reply | None = None
) -> tuple[list[str], Callable[[Request], Reply]]:
    """`content` answers the nth request (from 0) for the file's content; `about` the ones for its record."""
    ranges: list[str] = []

    def serve(request: Request) -> Reply:
        if not request.path.endswith("/content"):
            return about or json_reply({"id": "file-o", "object": "file", "bytes": len(FILE)})
        ranges.append(request.headers.get("range", ""))
        return content(len(ranges) - 1, request)

    return ranges, serve


def part(request: Request, *, whole: bytes = FILE, **reply: Any) -> Reply:
    """What a server that knows Range answers."""
    wanted = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
    if wanted is None:
        return Reply(200, whole, {"etag": '"v1"'}, **reply)
    start = int(wanted[1])
    headers = {"content-range": f"bytes {start}-{len(whole) - 1}/{len(whole)}", "etag": '"v1"'}
    return Reply(206, whole[start:], headers, **reply)


def read(server: Loopback) -> bytes:
    return b"".join(api(server).download("file-o"))


NO_RECORD = json_reply({"id": "file-o"})


def test_given_a_file_when_read_then_its_bytes_in_chunks_of_a_mebibyte() -> None:
    ranges, serve = file_server(lambda _, request: part(request))
    with serving(serve) as server:
        chunks = [*api(server).download("file-o")]
    assert b"".join(chunks) == FILE
    assert [len(chunk) for chunk in chunks[:-1]] == [1 << 20] * (len(chunks) - 1)
    assert ranges == [""]


@pytest.mark.parametrize("about", [None, NO_RECORD])
def test_given_a_connection_that_breaks_twice_when_read_then_it_goes_on_where_it_broke(about: Reply | None) -> None:
    ranges, serve = file_server(lambda n, request: part(request, cut_after=1_000_001 if n < 2 else None), about)
    with serving(serve) as server:
        assert read(server) == FILE
        resumed = [sent for sent in server.journal if "range" in sent.headers]
    assert ranges == ["", "bytes=1000001-", "bytes=2000002-"]
    assert {sent.headers["if-range"] for sent in resumed} == {'"v1"'}


def test_given_a_server_without_range_when_it_breaks_then_the_file_is_read_again_and_nothing_twice() -> None:
    ranges, serve = file_server(lambda n, _: Reply(200, FILE, cut_after=1_500_000 if n == 0 else None))
    with serving(serve) as server:
        assert read(server) == FILE
    assert len(ranges) == 2


def test_given_another_file_under_the_same_name_when_read_again_then_the_two_are_never_mixed() -> None:
    other = FILE.replace(b'"0"', b'"X"', 1)
    _, serve = file_server(lambda n, _: Reply(200, FILE if n == 0 else other, cut_after=1_500_000 if n == 0 else None))
    with serving(serve) as server, pytest.raises(ProviderUnavailable, match="changed"):
        read(server)


def test_given_a_wrong_part_when_resumed_then_the_whole_file_is_read_again() -> None:
    def content(n: int, request: Request) -> Reply:
        if n == 1:
            return Reply(206, FILE[5:], {"content-range": f"bytes 5-{len(FILE) - 1}/{len(FILE)}"})
        return part(request, cut_after=1_500_000 if n == 0 else None)

    ranges, serve = file_server(content)
    with serving(serve) as server:
        assert read(server) == FILE
    assert ranges == ["", "bytes=1500000-", ""]


def test_given_a_range_beyond_the_end_when_resumed_then_the_whole_file_is_read_again() -> None:
    def content(n: int, request: Request) -> Reply:
        return error_reply(416) if n == 1 else part(request, cut_after=1_500_000 if n == 0 else None)

    ranges, serve = file_server(content)
    with serving(serve) as server:
        assert read(server) == FILE
    assert ranges == ["", "bytes=1500000-", ""]


def test_given_a_content_length_that_is_too_short_when_read_then_the_rest_is_fetched() -> None:
    ranges, serve = file_server(lambda n, request: Reply(200, FILE[:2_000_000]) if n == 0 else part(request))
    with serving(serve) as server:
        assert read(server) == FILE
    assert ranges == ["", "bytes=2000000-"]


def test_given_no_length_at_all_and_a_cut_last_line_when_read_then_it_is_not_taken_for_the_end() -> None:
    cut = Reply(200, FILE[:2_000_000], length="")
    ranges, serve = file_server(lambda n, _: cut if n == 0 else Reply(200, FILE, length=""), NO_RECORD)
    with serving(serve) as server:
        assert read(server) == FILE
    assert len(ranges) == 2


def test_given_a_cut_last_line_that_stays_when_read_again_then_it_is_what_the_provider_has() -> None:
    cut = FILE[:2_000_000]
    ranges, serve = file_server(lambda _, __: Reply(200, cut, length=""), NO_RECORD)
    with serving(serve) as server:
        assert read(server) == cut
    assert ranges == ["", "", ""]


def test_given_a_file_that_stays_short_when_read_then_unavailable_and_not_half_a_file() -> None:
    _, serve = file_server(lambda _, request: part(request, whole=FILE[:2_000_000]))
    with serving(serve) as server, pytest.raises(ProviderUnavailable, match="2000000 bytes came"):
        read(server)


@pytest.mark.parametrize("whole", [b"", b'{"custom_id":"a"}', b'{"custom_id":"a"}\nnot json'])
def test_given_a_small_or_odd_file_whose_size_is_confirmed_when_read_then_its_bytes(whole: bytes) -> None:
    about = json_reply({"id": "file-o", "bytes": len(whole)})
    _, serve = file_server(lambda *_: Reply(200, whole), about)
    with serving(serve) as server:
        assert read(server) == whole


def test_given_a_compressed_answer_when_read_then_the_files_own_bytes() -> None:
    packed = Reply(200, gzip.compress(FILE), {"content-encoding": "gzip"})
    _, serve = file_server(lambda n, _: Reply(200, packed.body, packed.headers, 900_000 if n == 0 else None))
    with serving(serve) as server:
        assert read(server) == FILE


def test_given_a_provider_that_fails_for_a_while_when_read_then_it_is_asked_again() -> None:
    passing = [error_reply(502), error_reply(404), error_reply(429), Reply(drop=True)]
    _, serve = file_server(lambda n, request: passing[n] if n < len(passing) else part(request))
    with serving(serve) as server:
        assert read(server) == FILE


def test_given_a_provider_that_keeps_failing_when_read_then_unavailable_after_a_bounded_number_of_tries() -> None:
    ranges, serve = file_server(lambda *_: error_reply(502))
    with serving(serve) as server, pytest.raises(ProviderUnavailable, match="502"):
        read(server)
    assert len(ranges) == 5


@pytest.mark.parametrize(
    ("content", "about", "error"),
    [
        (error_reply(410), json_reply({"bytes": 5}), ResultsGone),
        (error_reply(404), error_reply(404), ResultsGone),
        (error_reply(404), json_reply({"bytes": 5, "expires_at": 1_000_000_000}), ResultsGone),
        (error_reply(404), json_reply({"bytes": 5, "expires_at": 4_000_000_000}), ProviderUnavailable),
        (error_reply(404), json_reply({"bytes": 5}), ProviderUnavailable),
        (error_reply(404), error_reply(500), ProviderUnavailable),
        (Reply(404, b"<html>"), error_reply(404), ProviderUnavailable),
        (error_reply(401), json_reply({"bytes": 5}), ProviderRefused),
        (error_reply(400), json_reply({"bytes": 5}), ProviderRefused),
    ],
)
def test_given_no_content_when_read_then_gone_only_if_the_provider_really_says_so(
    content: Reply, about: Reply, error: type[Exception]
) -> None:
    _, serve = file_server(lambda *_: content, about)
    with serving(serve) as server, pytest.raises(error):
        read(server)
