"""The README's own example of a spec, of records and of a refusal, run through the line."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tallybatch.domain.lifecycle import JobState
from tests.support.pipeline import TENANT, Pipeline

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first of its kind: of the yaml blocks that is the whole spec, the others show single keys."""
    first, *_ = re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return str(first)


def test_given_the_readmes_spec_and_records_when_dropped_then_each_has_an_answer(pipeline: Pipeline) -> None:
    pipeline.push_spec(block("yaml"), name="tickets")
    job = pipeline.run(block("jsonl").encode(), spec="tickets")
    assert job.state is JobState.COMPLETED
    assert (job.expected, job.counts["succeeded"]) == (3, 3)


def test_given_the_faults_that_the_readme_shows_when_dropped_then_it_is_refused_in_those_words(
    pipeline: Pipeline,
) -> None:
    pipeline.push_spec(block("yaml"), name="tickets")
    rows = [{"id": "T-1", "text": "one"}, {"id": "T-2"}, {"id": "T-1", "text": "two"}]
    dropped = pipeline.drop(b"".join(json.dumps(row).encode() + b"\n" for row in rows), spec="tickets")
    job_key = dropped["job_key"]
    stored = pipeline.objects.get(f"quarantine/{TENANT}/{job_key}/bad_lines.jsonl")
    refused = {problem["line"]: problem["reason"] for problem in map(json.loads, stored.splitlines())}
    shown = re.findall(r"^  tickets\.jsonl:(\d+): (.*)$", block("text"), flags=re.MULTILINE)
    assert refused == {int(line): reason for line, reason in shown}
