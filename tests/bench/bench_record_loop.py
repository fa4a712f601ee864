"""The record loop alone: CPU seconds and peak memory of preparing and of reconciling, in a process of its own each.

`uv run python -m tests.bench.bench_record_loop` runs all sizes and prints a table; `... prepare 200000` runs one.
Each is run three times and the quickest counts: what a shared machine adds is not ours. `bare_cpu_s` is what
bare_loop.py, a script with the same checks and nothing else, takes for the same files in between: machines differ by a
factor of two, and one machine from hour to hour, the ratio does not. Input is made on local disk first and not counted.
Local files stand in for S3, and the ledger says yes to everything, so that only our own work is measured (bench_ledger
measures the ledger).
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import zstandard

from tallybatch import wiring
from tallybatch.contracts import ShardItem
from tallybatch.domain.identity import submission_key
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import SubmissionState
from tallybatch.domain.manifest import Manifest
from tallybatch.domain.rows import AcceptedAnswer, Submission
from tallybatch.domain.shards import read_zstd_lines
from tallybatch.ports import ObjectInfo
from tallybatch.steps import build_manifest, reconcile_shard
from tests.bench import bare_loop
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_misc import ManualClock, MemoryEvents, MemoryExecutions
from tests.support.memory_objects import MemoryObjects
from tests.support.pipeline import s3_event

SIZES = (50_000, 200_000, 400_000)
RUNS = 3
INBOX_KEY = "inbox/bench/films/v1/films.jsonl"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["genre", "confidence"],
    "additionalProperties": False,
    "properties": {"genre": {"type": "string"}, "confidence": {"type": "number", "minimum": 0, "maximum": 1}},
}
SPEC = f"""\
name: films
provider: openai
model: gpt-5-mini-2025-08-07
input: {{fields: [title, plot]}}
prompt: {{system: You label films., user: "Title: {{{{ title }}}}\\nPlot: {{{{ plot }}}}"}}
generation: {{max_output_tokens: 60}}
output: {{schema: {json.dumps(SCHEMA)}}}
"""


class DiskObjects(MemoryObjects):
    """Large objects are files below a folder, so that they are not counted as our memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def _path(self, key: str) -> Path:
        return self._folder / key

    def head(self, key: str, *, version_id: str = "") -> ObjectInfo | None:
        path = self._path(key)
        return ObjectInfo(key, path.stat().st_size, "etag") if path.exists() else super().head(key)

    def get(self, key: str) -> bytes:
        path = self._path(key)
        return path.read_bytes() if path.exists() else super().get(key)

    def open(self, key: str, *, version_id: str = "", etag: str = "") -> AbstractContextManager[BinaryIO]:
        path = self._path(key)
        return path.open("rb") if path.exists() else super().open(key)

    def put_once(self, key: str, body: bytes | BinaryIO, *, content_type: str = "", retention: str = "") -> ObjectInfo:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            if isinstance(body, bytes):
                file.write(body)
            else:
                body.seek(0)
                shutil.copyfileobj(body, file)
        return ObjectInfo(key, path.stat().st_size, "etag")


class YesLedger(MemoryLedger):
    """Accepts every answer without keeping it."""

    def accept_records(self, answers: Sequence[AcceptedAnswer]) -> Sequence[bool]:
        return [True] * len(answers)


def make_input(folder: Path, records: int) -> None:
    """Records of about 1 KB."""
    dice = random.Random(1)
    words = ["alpha", "beta", "gamma", "delta", "movie", "great", "bad", "epsilon", "café", "noir"]
    plots = [" ".join(dice.choice(words) for _ in range(150)) for _ in range(500)]
    path = folder / INBOX_KEY
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for number in range(records):
            row = {"id": f"film-{number:08d}", "title": f"The Land {number}", "plot": plots[number % 500]}
            file.write(msgspec.json.encode({**row, "us_gross": number * 7, "rating": 6.1, "source": None}) + b"\n")


def prepare(folder: Path) -> str:
    """Runs build_manifest over the input; returns the job_key."""
    objects = DiskObjects(folder)
    objects.put("specs/bench/films.yaml", SPEC.encode())
    clock = ManualClock()
    ports = build_manifest.Ports(objects, MemoryLedger(), MemoryExecutions(), MemoryEvents(), clock, wiring.formats)
    reply = build_manifest.run(s3_event(INBOX_KEY), ports)
    assert reply["state"] == "VALIDATED", reply
    return str(reply["job_key"])


def make_outputs(folder: Path, job_key: str) -> None:
    """Shuffled result files of about 1.5 KB a line; 2 % are errors, 1 % missing."""
    keys = JobKeys("bench", job_key)
    manifest = Manifest.model_validate_json((folder / keys.manifest).read_bytes())
    dice = random.Random(2)
    filler = "".join(dice.choice("abcdefghij ") for _ in range(560))
    answer = json.dumps(json.dumps({"genre": "Drama", "confidence": 0.9}))
    for shard in manifest.shards:
        packed = (folder / keys.shard(shard.sha256)).read_bytes()
        ids = [json.loads(line)["record_id"] for line in read_zstd_lines(io.BytesIO(packed))]
        dice.shuffle(ids)
        lines = [_output_line(record_id, number, answer, filler) for number, record_id in enumerate(ids)]
        marker = submission_key(job_key=job_key, shard_sha256=shard.sha256, attempt=1, generation=1)
        objects = DiskObjects(folder)
        objects.put_once(keys.raw(1, marker, "output.jsonl"), "".join(lines).encode())
        objects.put_once(keys.claims(1, marker), zstandard.ZstdCompressor().compress(b""))


def _output_line(record_id: str, number: int, answer: str, filler: str) -> str:
    if number % 100 == 0:
        return ""
    head = f'{{"id":"batch_req_{number}","custom_id":"{record_id}","response":{{"status_code":'
    if number % 50 == 1:
        error = '{"error":{"message":"try again","type":"server_error","param":null,"code":"server_error"}}'
        return f'{head}500,"request_id":"req_{number}","body":{error}}},"error":null}}\n'
    body = (
        f'{{"id":"resp_{number}","object":"response","created_at":1795900500,"status":"completed","error":null,'
        f'"incomplete_details":null,"instructions":"{filler}","max_output_tokens":60,"model":"gpt-5-mini-2025-08-07",'
        f'"output":[{{"id":"msg_{number}","type":"message","status":"completed","role":"assistant","content":'
        f'[{{"type":"output_text","annotations":[],"text":{answer}}}]}}],"parallel_tool_calls":true,'
        '"temperature":1.0,"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","metadata":{},'
        '"usage":{"input_tokens":253,"input_tokens_details":{"cached_tokens":0},"output_tokens":12,'
        '"output_tokens_details":{"reasoning_tokens":0},"total_tokens":265}}'
    )
    return f'{head}200,"request_id":"req_{number}","body":{body}}},"error":null}}\n'


def reconcile(folder: Path, job_key: str) -> None:
    """Runs ReconcileShard for every shard of the job."""
    objects, ledger, clock = DiskObjects(folder), YesLedger(), ManualClock()
    keys = JobKeys("bench", job_key)
    manifest = Manifest.model_validate_json(objects.get(keys.manifest))
    ports = reconcile_shard.Ports(objects, ledger, clock, wiring.formats)
    for shard in manifest.shards:
        marker = submission_key(job_key=job_key, shard_sha256=shard.sha256, attempt=1, generation=1)
        row = Submission(
            job_key=job_key,
            tenant="bench",
            attempt=1,
            shard_id=shard.shard_id,
            shard_sha256=shard.sha256,
            state=SubmissionState.COLLECTED,
            provider="openai",
            submission_key=marker,
            updated_at=0,
            channels={"output": keys.raw(1, marker, "output.jsonl")},
        )
        ledger.put_submission(row, expected_version=None)
        item = ShardItem(
            tenant="bench",
            job_key=job_key,
            attempt=1,
            shard_id=shard.shard_id,
            shard_sha256=shard.sha256,
            record_count=shard.record_count,
        )
        counts = reconcile_shard.run(item, ports)
        assert sum(counts.values()) == shard.record_count


def bare_reconcile(folder: Path, job_key: str) -> None:
    objects, keys = DiskObjects(folder), JobKeys("bench", job_key)
    manifest = Manifest.model_validate_json(objects.get(keys.manifest))
    for shard in manifest.shards:
        marker = submission_key(job_key=job_key, shard_sha256=shard.sha256, attempt=1, generation=1)
        output = folder / keys.raw(1, marker, "output.jsonl")
        bare_loop.reconcile(folder / keys.shard(shard.sha256), output, folder / "bare.zst", SCHEMA)


def measured(what: str, folder: Path, job_key: str) -> dict[str, Any]:
    began = time.process_time()
    if what == "prepare":
        job_key = prepare(folder)
    elif what == "reconcile":
        reconcile(folder, job_key)
    elif what == "bare prepare":
        bare_loop.prepare(folder / INBOX_KEY, folder / "bare.zst")
    else:
        bare_reconcile(folder, job_key)
    cpu_s = time.process_time() - began
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"job_key": job_key, "cpu_s": round(cpu_s, 2), "peak_mb": round(peak_mb, 1)}


def in_own_process(what: str, folder: Path, job_key: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.bench_record_loop", "--child", what, str(folder), job_key]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return cast("dict[str, Any]", json.loads(done.stdout.splitlines()[-1]))


def in_a_copy(what: str, made: Path, job_key: str) -> dict[str, Any]:
    """So that no run finds what an earlier one has left."""
    with tempfile.TemporaryDirectory(prefix="tallybatch-bench-", dir=made.parent) as name:
        shutil.copytree(made, name, copy_function=os.link, dirs_exist_ok=True)
        return in_own_process(what, Path(name), job_key)


def run(what: str, records: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tallybatch-bench-") as name:
        made, job_key = Path(name) / "made", "-"
        make_input(made, records)
        if what == "reconcile":
            job_key = in_own_process("prepare", made, "-")["job_key"]
            make_outputs(made, job_key)
        ours, bare = [], []
        for _ in range(RUNS):
            ours.append(in_a_copy(what, made, job_key))
            bare.append(in_a_copy(f"bare {what}", made, job_key)["cpu_s"])
        spent = sorted(run["cpu_s"] for run in ours)
        return {
            "what": what,
            "records": records,
            "cpu_s": spent,
            "cpu_s_per_200k": round(spent[0] * 200_000 / records, 2),
            "peak_mb": max(run["peak_mb"] for run in ours),
            "bare_cpu_s": min(bare),
            "times_bare": round(spent[0] / min(bare), 2),
        }


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--child"]:
        what, folder, job_key = arguments[1:]
        print(json.dumps(measured(what, Path(folder), job_key)))
    elif arguments:
        print(json.dumps(run(arguments[0], int(arguments[1]))))
    else:
        for what in ("prepare", "reconcile"):
            for records in SIZES:
                print(json.dumps(run(what, records)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
