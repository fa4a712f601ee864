"""`on_bad_line: quarantine` leaves out single lines; a file that breaks off is refused all the same."""

from __future__ import annotations

import gzip
import json

import pytest

from tallybatch import wiring
from tallybatch.contracts import S3Event
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.manifest import Manifest
from tallybatch.steps import build_manifest
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_misc import ManualClock, MemoryEvents, MemoryExecutions
from tests.support.memory_objects import MemoryObjects

SPEC = (
    b"{name: genre, provider: openai, model: gpt-5-mini-2025-08-07, input: {on_bad_line: quarantine},"
    b" prompt: {user: 'Title: {{ title }}'}}"
)
LINES = [b'{"id":"k%d","title":"%x"}' % (number, number * 2654435761) for number in range(2000)]


class Drop:
    """One file, dropped under the spec, and what became of it."""

    def __init__(self, body: bytes, name: str = "films.jsonl") -> None:
        self.objects, self.ledger, self.executions = MemoryObjects(), MemoryLedger(), MemoryExecutions()
        self.objects.put("specs/acme/genre.yaml", SPEC)
        key = f"inbox/acme/genre/v1/{name}"
        self.objects.put(key, body)
        event = S3Event.model_validate({"detail": {"bucket": {"name": "bucket"}, "object": {"key": key}}})
        ports = build_manifest.Ports(
            self.objects, self.ledger, self.executions, MemoryEvents(), ManualClock(), wiring.formats
        )
        self.job_key = build_manifest.run(event, ports)["job_key"]
        job = self.ledger.job(self.job_key)
        assert job is not None
        self.job = job

    @property
    def bad_lines(self) -> list[dict[str, object]]:
        body = self.objects.get(f"quarantine/acme/{self.job_key}/bad_lines.jsonl")
        return [json.loads(line) for line in body.splitlines()]


def test_given_bad_lines_when_dropped_then_the_others_are_a_job_and_the_manifest_counts_both() -> None:
    drop = Drop(b"\n".join([LINES[0], b"nonsense", LINES[1], LINES[0], LINES[2]]))
    assert (drop.job.state, drop.job.expected) == (JobState.VALIDATED, 3)
    manifest = Manifest.model_validate_json(drop.objects.get(f"jobs/acme/{drop.job_key}/manifest.json"))
    assert (manifest.source.lines, manifest.source.quarantined_lines, manifest.expected_record_count) == (5, 2, 3)
    assert [(bad["line"], bad["code"]) for bad in drop.bad_lines] == [(2, "invalid_json"), (4, "duplicate_key")]
    assert drop.bad_lines[0]["raw"] == "nonsense"


@pytest.mark.parametrize("bad", [b"", b"\nnonsense"], ids=["only cut off", "a bad line, too"])
def test_given_a_file_that_is_cut_off_when_dropped_then_it_is_refused_and_nothing_of_it_goes_on(bad: bytes) -> None:
    whole = gzip.compress(LINES[0] + bad + b"\n" + b"\n".join(LINES))
    drop = Drop(whole[: len(whole) // 2], "films.jsonl.gz")
    assert drop.job.state is JobState.FAILED
    assert drop.executions.started == {}
    assert list(drop.objects.list(f"jobs/acme/{drop.job_key}/shards/")) == []
    assert "truncated_gzip" in {found["code"] for found in drop.bad_lines}


def test_given_nothing_but_bad_lines_when_dropped_then_each_is_named() -> None:
    drop = Drop(b"nonsense\n[]\n")
    assert drop.job.state is JobState.FAILED
    assert drop.executions.started == {}
    assert [bad["line"] for bad in drop.bad_lines] == [1, 2]


def test_given_an_empty_file_when_dropped_then_it_is_refused_as_empty() -> None:
    drop = Drop(b"")
    assert drop.job.state is JobState.FAILED
    assert [(bad["line"], bad["code"]) for bad in drop.bad_lines] == [(0, "empty_file")]
