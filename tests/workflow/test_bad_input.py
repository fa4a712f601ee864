"""Refused input: each bad line is named, the job FAILED, nothing is spent and nothing is lost."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import Any

import pytest

from tallybatch.domain.rows import Job
from tests.support.films import DATA, film, films, key_of, lines, report, results, scenario, spec
from tests.support.pipeline import Pipeline, s3_event

GOOD = film(1) + b"\n" + film(2) + b"\n"
GZIPPED = gzip.compress(films(500), mtime=0)
HUGE = 2**64 * 10**30 + 7


def title(value: bytes) -> bytes:
    """A film whose title is this piece of JSON."""
    return b'{"id": "x", "title": ' + value + b"}\n"


@dataclass(frozen=True)
class Bad:
    """A file, and the (line, code, words of the reason) of each of its bad lines."""

    name: str
    body: bytes
    found: tuple[tuple[int, str, str], ...]
    key: str = "films.jsonl"


BAD = [
    Bad("empty", b"", ((0, "empty_file", "no record"),)),
    Bad("whitespace only", b"  \n\t\n", ((1, "blank_line", "blank"), (2, "blank_line", "blank"))),
    Bad("blank line", GOOD + b"\n" + film(3), ((3, "blank_line", "blank"),)),
    Bad("json array", b"[" + film(1) + b"]", ((0, "json_array", "one JSON object per line"),)),
    Bad("utf-16", GOOD.decode().encode("utf-16"), ((0, "utf16", "UTF-16"),)),
    Bad("utf-16 without a mark", GOOD.decode().encode("utf-16-le"), ((0, "utf16", "UTF-16"),)),
    Bad("byte order mark", b"\xef\xbb\xbf" + GOOD, ((1, "byte_order_mark", "byte order mark"),)),
    Bad("invalid utf-8", GOOD + title(b'"caf\xe9"'), ((3, "invalid_utf8", "byte 26"),)),
    Bad("lone surrogate", GOOD + title(b'"\\ud800"'), ((3, "lone_surrogate", "half of a surrogate pair"),)),
    Bad("NaN", GOOD + title(b"NaN"), ((3, "not_a_number", "NaN"),)),
    Bad("infinity", GOOD + title(b"-Infinity"), ((3, "not_a_number", "-Infinity"),)),
    Bad("key twice", GOOD + title(b'"a", "title": "b"'), ((3, "duplicate_json_key", "'title' twice"),)),
    Bad("key twice inside", GOOD + title(b'{"a": 1, "a": 2}'), ((3, "duplicate_json_key", "'a' twice"),)),
    Bad("long line", GOOD + title(b'"' + b"x" * 2_000_000 + b'"'), ((3, "line_too_long", "1,048,576"),)),
    Bad("deep", GOOD + title(b"[" * 2_000 + b"]" * 2_000), ((3, "too_deep", "deeper than"),)),
    Bad("cut line", GOOD + film(3)[:20], ((3, "invalid_json", "not valid JSON"),)),
    Bad("not an object", GOOD + b'"film"\n12\n', ((3, "not_an_object", "a string"), (4, "not_an_object", "a number"))),
    Bad("no key", GOOD + b'{"title": "x"}\n', ((3, "missing_field", "'id'"),)),
    Bad("no field", GOOD + b'{"id": "x"}\n', ((3, "missing_field", "'title'"),)),
    Bad("empty key", GOOD + b'{"id": "", "title": "x"}\n', ((3, "key_shape", "empty"),)),
    Bad("key that is a list", GOOD + b'{"id": [1], "title": "x"}\n', ((3, "key_shape", "an array"),)),
    Bad("same key twice", GOOD + film(3) + b"\n" + film(1) + b"\n", ((4, "duplicate_key", "line 1"),)),
    Bad("gzip cut off", GZIPPED[:-40], ((494, "truncated_gzip", "early"),), "films.jsonl.gz"),
    Bad(
        "gzip damaged",
        GZIPPED[:2000] + b"\xff" * 30 + GZIPPED[2030:],
        ((1, "damaged_gzip", "damaged"),),
        "films.jsonl.gz",
    ),
    Bad("not gzip", GOOD, ((1, "not_gzip", "gzip"),), "films.jsonl.gz"),
    Bad("gzip by another name", gzip.compress(GOOD), ((0, "gzip_name", ".jsonl.gz"),)),
    Bad("wrong suffix", GOOD, ((0, "wrong_suffix", ".jsonl"),), "films.json"),
    Bad("too deep a place", GOOD, ((0, "wrong_prefix_depth", "<tenant>/<spec>"),), "more/films.jsonl"),
    Bad(
        "many bad lines",
        b"\n".join([b"x", *(film(number) for number in range(1, 200)), b"{", b"{}"]),
        ((1, "invalid_json", ""), (201, "invalid_json", ""), (202, "missing_field", "")),
    ),
]


def refused(pipeline: Pipeline, key: str, body: bytes) -> tuple[Job, list[dict[str, Any]]]:
    """Drop a file that is refused; returns its job and the lines of its refusal, after checking what always holds."""
    reply = pipeline.drop(body, name=key)
    job = pipeline.job(reply["job_key"])

    assert (reply["state"], job.state.value) == ("FAILED", "FAILED")
    assert pipeline.executions.started == {}
    assert pipeline.simulator.control.journal()["calls"] == {}
    assert pipeline.objects.get(f"inbox/acme/genre/v1/{key}") == body
    assert pipeline.events.kinds() == ["JobFailed"]
    told = report(pipeline.objects, job)
    assert (told["state"], told["refusal"]["bad_lines"]) == (
        "FAILED",
        pipeline.objects.uri(f"quarantine/acme/{job.job_key}/bad_lines.jsonl"),
    )
    left = {info.key for info in pipeline.objects.list("") if not info.key.startswith(("inbox/", "specs/"))}
    assert left == {
        f"jobs/acme/{job.job_key}/report.json",
        f"jobs/acme/{job.job_key}/report.html",
        f"quarantine/acme/{job.job_key}/bad_lines.jsonl",
    }
    bad_lines = lines(pipeline.objects.get(f"quarantine/acme/{job.job_key}/bad_lines.jsonl"))
    assert told["refusal"]["bad_count"] == len(bad_lines) == pipeline.events.published[0][1]["bad_count"]
    return job, bad_lines


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_given_a_bad_file_when_dropped_then_each_bad_line_is_named_and_nothing_is_spent(
    pipeline: Pipeline, bad: Bad
) -> None:
    pipeline.push_spec(spec())

    job, bad_lines = refused(pipeline, bad.key, bad.body)

    assert [(row["line"], row["code"]) for row in bad_lines] == [(line, code) for line, code, _ in bad.found]
    for row, (_, _, words) in zip(bad_lines, bad.found, strict=True):
        assert words in row["reason"]
    assert bad_lines[0]["reason"] in job.reason
    assert "1 problems" not in job.reason
    assert pipeline.drop(bad.body, name=bad.key)["job_key"] == job.job_key


def test_given_a_record_twice_when_refused_then_both_lines_are_named(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())

    _, bad_lines = refused(pipeline, "films.jsonl", GOOD + film(3) + b"\n" + film(2) + b"\n" + film(2) + b"\n")

    assert [(row["line"], row["first_line"], row["key"]) for row in bad_lines] == [(4, 2, "f002"), (5, 2, "f002")]


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", "", "missing_spec"),
        (spec() + "retrry: {}\n", "unknown_key", "'retry'"),
        (spec().replace("name: genre", "name: other"), "spec_name", "'other'"),
        (spec().replace("provider: openai", "provider: openia"), "", "openai"),
        ("name: [", "", ""),
        (spec().replace("on_bad_line: reject", "redact: [email]"), "", "not supported yet"),
    ],
    ids=["missing", "unknown key", "another name", "wrong value", "not YAML", "later"],
)
def test_given_a_spec_that_cannot_be_used_when_a_file_is_dropped_then_it_is_refused(
    pipeline: Pipeline, text: str, code: str, words: str
) -> None:
    if text:
        pipeline.push_spec(text)

    job, bad_lines = refused(pipeline, "films.jsonl", GOOD)

    assert bad_lines[0]["code"] == code or not code
    assert words in json.dumps(bad_lines) or not words
    pipeline.push_spec(spec())
    mended = pipeline.run(GOOD)
    assert (mended.state.value, mended.job_key != job.job_key) == ("COMPLETED", True)


def test_given_a_prompt_that_changed_under_its_label_when_dropped_then_both_digests_are_named(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(spec())
    first = pipeline.run(GOOD)
    calls = pipeline.simulator.control.journal()["calls"]
    pipeline.push_spec(spec(system="You label films with care."))

    reply = pipeline.drop(GOOD, version="v2")

    job = pipeline.job(reply["job_key"])
    assert job.state.value == "FAILED"
    (problem,) = lines(pipeline.objects.get(f"quarantine/acme/{job.job_key}/bad_lines.jsonl"))
    assert (problem["code"], problem["key"]) == ("prompt_conflict", "prompt.version")
    manifest = json.loads(pipeline.objects.get(pipeline.keys(first).manifest))
    assert manifest["prompt_digest"][:16] in problem["reason"]
    assert problem["reason"].count(" has ") == 2
    assert pipeline.simulator.control.journal()["calls"] == calls
    pipeline.push_spec(spec(system="You label films with care.", prompt_version="genre-v2"))
    assert pipeline.run(GOOD, version="v2").state.value == "COMPLETED"


@pytest.mark.parametrize(
    ("key", "tenant"),
    [
        ("inbox/films.jsonl", "_unplaced"),
        ("inbox/acme/films.jsonl", "acme"),
        ("inbox/acme/genre/films.jsonl", "acme"),
        ("inbox/acme/genre/v1/more/films.jsonl", "acme"),
        ("inbox/-bad-/genre/v1/films.jsonl", "_unplaced"),
    ],
)
def test_given_a_file_in_the_wrong_place_when_dropped_then_it_is_filed_under_its_tenant_if_it_has_one(
    pipeline: Pipeline, key: str, tenant: str
) -> None:
    pipeline.push_spec(spec())
    pipeline.objects.put(key, GOOD)

    reply = pipeline.build(s3_event(key))

    assert pipeline.job(reply["job_key"]).state.value == "FAILED"
    assert pipeline.objects.head(f"quarantine/{tenant}/{reply['job_key']}/bad_lines.jsonl") is not None
    assert pipeline.executions.started == {}


def test_given_bad_lines_that_are_quarantined_when_run_then_the_good_ones_are_answered(pipeline: Pipeline) -> None:
    body = film(1) + b"\n{\n" + film(2) + b"\n\n" + b'{"id":"x","title":"\xff"}\n' + film(1) + b"\n" + film(3)
    pipeline.push_spec(spec(on_bad_line="quarantine"))

    job = pipeline.run(body)

    assert (job.state.value, job.expected, job.counts["succeeded"]) == ("COMPLETED", 3, 3)
    assert [row["business_key"] for row in results(pipeline.objects, job)] == [key_of(1), key_of(2), key_of(3)]
    kept = lines(pipeline.objects.get(f"quarantine/acme/{job.job_key}/bad_lines.jsonl"))
    assert [(row["line"], row["code"]) for row in kept] == [
        (2, "invalid_json"), (4, "blank_line"), (5, "invalid_utf8"), (6, "duplicate_key"),
    ]  # fmt: skip
    assert kept[0]["raw"] == "{"
    assert "raw_base64" in kept[2]
    assert kept[3]["raw"].encode() == film(1)
    manifest = json.loads(pipeline.objects.get(pipeline.keys(job).manifest))
    assert (manifest["source"]["lines"], manifest["source"]["quarantined_lines"]) == (7, 4)


def test_given_nothing_but_bad_lines_when_quarantined_then_the_file_is_refused(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec(on_bad_line="quarantine"))

    _, bad_lines = refused(pipeline, "films.jsonl", b"{\n}\n")

    assert [row["line"] for row in bad_lines] == [1, 2]


def test_given_numbers_beyond_64_bits_when_run_then_they_survive_unchanged(pipeline: Pipeline) -> None:
    pipeline.push_spec(spec())
    body = b'{"id": %d, "title": {"n": %d}}\n' % (HUGE, HUGE + 1)

    job = pipeline.run(body)

    (row,) = results(pipeline.objects, job)
    assert row["business_key"] == str(HUGE)
    (request,) = [info.key for info in pipeline.objects.list("jobs/") if info.key.endswith("/request.jsonl")]
    assert str(HUGE + 1).encode() in pipeline.objects.get(request)


@pytest.mark.parametrize("members", [1, 3])
def test_given_a_gzip_file_when_run_then_it_is_read_like_a_plain_one(pipeline: Pipeline, members: int) -> None:
    pipeline.push_spec(spec())
    parts = [films(4, first=1 + 4 * number) for number in range(members)]

    job = pipeline.run(b"".join(gzip.compress(part) for part in parts), name="films.jsonl.gz")
    plain = pipeline.drop(b"".join(parts))

    assert (job.state.value, job.counts["succeeded"]) == ("COMPLETED", 4 * members)
    assert plain["job_key"] == job.job_key


def test_given_a_native_batch_file_when_run_then_its_own_ids_are_the_business_keys(pipeline: Pipeline) -> None:
    pipeline.push_spec((DATA / "specs" / "native-openai.yaml").read_text(), name="native-openai")
    scenario(pipeline.simulator.control, records=[{"fault": "error_500", "contains": "Film-004."}])
    requests = [
        {
            "custom_id": f"row/{number} + é",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "gpt-5-mini-2025-08-07",
                "messages": [{"role": "user", "content": f"Film-{number:03}."}],
                "max_completion_tokens": 300,
            },
        }
        for number in range(1, 9)
    ]
    body = b"".join(json.dumps(request, ensure_ascii=False).encode() + b"\n" for request in requests)

    job = pipeline.run(body, spec="native-openai")

    assert (job.state.value, job.attempt, job.counts["succeeded"]) == ("COMPLETED", 2, 8)
    rows = results(pipeline.objects, job)
    assert [row["business_key"] for row in rows] == [request["custom_id"] for request in requests]
    assert all(isinstance(row["output"], str) for row in rows)
    sent = pipeline.objects.get(next(i.key for i in pipeline.objects.list("jobs/") if i.key.endswith("request.jsonl")))
    assert [line["body"] for line in lines(sent)] == [request["body"] for request in requests]
    assert {line["custom_id"] for line in lines(sent)} == {row["record_id"] for row in rows}
    assert pipeline.verify(job).ok


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"url": "/v1/embeddings"}, "url"),
        ({"method": "GET"}, "method"),
        ({"body": {"model": "gpt-4o-2024-08-06", "messages": []}}, "model"),
        ({"body": None}, "body"),
    ],
)
def test_given_a_native_line_that_the_provider_would_refuse_when_dropped_then_it_is_refused_here(
    pipeline: Pipeline, change: dict[str, Any], words: str
) -> None:
    pipeline.push_spec((DATA / "specs" / "native-openai.yaml").read_text(), name="native-openai")
    body = {"model": "gpt-5-mini-2025-08-07", "messages": [{"role": "user", "content": "x"}]}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}

    reply = pipeline.drop(json.dumps({**line, **change}).encode(), spec="native-openai")

    (bad_line,) = lines(pipeline.objects.get(f"quarantine/acme/{reply['job_key']}/bad_lines.jsonl"))
    assert (reply["state"], bad_line["line"], bad_line["code"]) == ("FAILED", 1, "native_line")
    assert words in bad_line["reason"]


def test_given_earthquakes_when_embedded_then_each_has_one_vector(pipeline: Pipeline) -> None:
    pipeline.push_spec((DATA / "specs" / "earthquakes-embedding.yaml").read_text(), name="earthquakes-embedding")
    scenario(pipeline.simulator.control, records=[{"fault": "error_429", "rate": 0.1}])
    body = (DATA / "earthquakes.jsonl").read_bytes()
    sources = lines(body)

    job = pipeline.run(body, spec="earthquakes-embedding")

    assert (job.state.value, job.counts["succeeded"], job.attempt) == ("COMPLETED", len(sources), 2)
    rows = results(pipeline.objects, job)
    assert [row["business_key"] for row in rows] == [source["id"] for source in sources]
    assert {len(row["output"]) for row in rows} == {256}
    assert all(abs(sum(x * x for x in row["output"]) - 1) < 1e-3 for row in rows)
    assert pipeline.verify(job).ok


@pytest.mark.parametrize(("asked", "tag"), [("", ""), ("retention: {inbox: 2d}\n", "2d")])
@pytest.mark.parametrize("body", [GOOD, b"nonsense"], ids=["taken", "refused"])
def test_given_a_spec_that_says_how_long_the_inbox_keeps_when_dropped_then_the_file_is_tagged_so(
    pipeline: Pipeline, asked: str, tag: str, body: bytes
) -> None:
    pipeline.push_spec(spec(deadline="24h") + asked)
    pipeline.drop(body)
    stored = pipeline.objects.stored("inbox/acme/genre/v1/films.jsonl")
    assert stored is not None
    assert (stored.retention, stored.body) == (tag, body)
