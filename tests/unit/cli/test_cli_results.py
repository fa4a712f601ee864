"""`tallybatch results` and `verify`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tallybatch.domain.certificate import from_bytes
from tallybatch.domain.errors import LedgerBusy
from tallybatch.domain.layout import JobKeys
from tallybatch.domain.lifecycle import JobState
from tallybatch.domain.rows import Job
from tests.support import rows
from tests.support.memory_ledger import MemoryLedger
from tests.support.operating import SPEC, Operator


def _keys(job: Job) -> JobKeys:
    return JobKeys(job.tenant, job.job_key)


def test_results_are_fetched_with_their_certificate(tmp_path: Path, operator: Operator) -> None:
    spec = SPEC + "shards: {max_records: 2}\n"
    job = operator.completed(5, spec=spec)
    said = operator.run("results", job.job_key, "--out", tmp_path / "new" / "folder", "--json")
    assert (said.code, said.json["records"]) == (0, 5)
    lines = Path(said.json["results"]).read_bytes().splitlines()
    assert [json.loads(line)["business_key"] for line in lines] == [f"film-{n}" for n in range(1, 6)]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "certificate.json",
        "results.jsonl",
    ]
    stored = Path(said.json["certificate"]).read_bytes()
    assert from_bytes(stored, where="").job_key == job.job_key


def test_compressed_results_stay_compressed(tmp_path: Path, operator: Operator) -> None:
    spec = SPEC.replace("output:\n", "output:\n  compression: gzip\n") + "shards: {max_records: 2}\n"
    job = operator.completed(5, spec=spec)
    said = operator.run("results", job.job_key, "--out", tmp_path, "--json")
    assert said.json["results"].endswith("results.jsonl.gz")
    assert len(gzip.decompress(Path(said.json["results"]).read_bytes()).splitlines()) == 5


def test_given_a_part_with_other_bytes_when_fetched_then_it_is_named_and_no_file_is_left(
    tmp_path: Path, operator: Operator
) -> None:
    job = operator.completed()
    part = next(info.key for info in operator.pipeline.objects.list("results/") if "/parts/" in info.key)
    body = operator.pipeline.objects.get(part)
    operator.pipeline.objects.put(part, body.replace(b"film-1", b"film-9"))
    said = operator.run("results", job.job_key, "--out", tmp_path, "--json")
    assert said.code == 1
    assert said.json["error"]["where"].endswith(part)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [("results", "--out", "x"), ("verify",)])
def test_a_job_without_a_certificate_has_no_results(
    command: tuple[str, ...], operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    partial = rows.job(state=JobState.PARTIAL, reason="3 missing", report="s3://bucket/report.html")
    operator.pipeline.ledger.put_job(partial, expected_version=None)
    said = operator.run(*command, partial.job_key)
    assert said.code == 1
    assert "PARTIAL" in said.err
    assert "s3://bucket/report.html" in said.err


def test_verify_passes_and_counts(operator: Operator) -> None:
    job = operator.completed()
    said = operator.run("verify", job.job_key[:8], "--json")
    assert said.code == 0
    assert said.json["ok"] is True
    assert said.json["checked_records"] == 5
    assert said.json["difference"] is None


def test_verify_fails_at_one_flipped_byte_and_names_the_object(operator: Operator) -> None:
    job = operator.completed()
    key = _keys(job).spec
    body = bytearray(operator.pipeline.objects.get(key))
    body[0] ^= 1
    operator.pipeline.objects.put(key, bytes(body))
    said = operator.run("verify", job.job_key, "--json")
    assert said.code == 1
    assert key in said.json["difference"]
    assert key in said.err


class AwayLedger(MemoryLedger):
    def jobs_with_prefix(self, *_: Any, **__: Any) -> Any:
        raise LedgerBusy("the table does not answer")


@pytest.mark.parametrize("ledger", [MemoryLedger(), AwayLedger()], ids=["empty", "away"])
def test_given_no_ledger_when_verified_then_the_objects_are_enough(
    ledger: MemoryLedger, operator: Operator, tmp_path: Path
) -> None:
    job = operator.completed()
    operator.ledger = ledger
    assert operator.run("verify", job.job_key[:8], "--json").json["ok"] is True
    assert operator.run("results", job.job_key, "--out", tmp_path).code == 0
    assert operator.run("verify", "zzz").code == 4


@pytest.mark.parametrize("command", ["verify", "results"])
def test_given_a_lost_certificate_when_asked_for_then_it_is_named(
    tmp_path: Path, operator: Operator, command: str
) -> None:
    job = operator.completed()
    key = _keys(job).certificate
    operator.pipeline.objects.delete(key)
    out: tuple[str | Path, ...] = ("--out", tmp_path) if command == "results" else ()
    said = operator.run(command, job.job_key, *out, "--json")
    assert (said.code, said.json["error"]["type"]) == (1, "ObjectDamaged")
    assert said.json["error"]["where"].endswith(key)
