"""`tallybatch submit --dry-run`, on the real steps."""

from __future__ import annotations

from pathlib import Path

from tests.support.operating import SPEC, Operator, films


def test_a_dry_run_tells_what_the_job_would_take_and_a_real_one_starts_it(operator: Operator, tmp_path: Path) -> None:
    file, spec = tmp_path / "films.jsonl", tmp_path / "genre.yaml"
    file.write_bytes(films(12))
    spec.write_text(SPEC + "canary: {records: 4}\n")
    words = ("submit", file, "--spec", spec, "--dataset-version", "v1")

    dry = operator.run(*words, "--dry-run", "--json")

    assert dry.code == 0, dry.err
    assert (dry.json["state"], dry.json["dry_run"]) == ("VALIDATED", True)
    plan = dry.json["plan"]
    assert (plan["records"], plan["canary_records"], plan["provider_jobs"], plan["cost_high_usd"]) == (12, 4, 2, None)
    assert plan["worst_case_output_tokens"] is None
    job_key = dry.json["job_key"]
    followed = operator.run("follow", job_key, "--json")
    assert (followed.json["dry_run"], followed.json["state"]) == (True, "VALIDATED")
    assert "dry run" in operator.run("show", job_key).out
    assert operator.pipeline.simulator.control.journal()["creates"] == []

    people = operator.run(*words, "--dry-run").out
    assert "input tokens" in people and "hours" in people
    assert "{" not in people, "no raw structure"

    real = operator.run(*words, "--follow", "--json")

    assert real.code == 0, real.err
    assert (real.json["job_key"], real.json["state"], real.json["succeeded"]) == (job_key, "COMPLETED", 12)
    assert "dry_run" not in real.json
    again = operator.run(*words, "--dry-run", "--json")
    assert again.json == {"job_key": job_key, "state": "COMPLETED", "dry_run": False, "plan": None}


def test_a_dry_run_of_a_bad_file_names_its_lines(operator: Operator, tmp_path: Path) -> None:
    file, spec = tmp_path / "films.jsonl", tmp_path / "genre.yaml"
    file.write_bytes(films(2) + b"{}\n")
    spec.write_text(SPEC)

    said = operator.run("submit", file, "--spec", spec, "--tenant", "acme", "--dry-run")

    assert said.code == 3
    assert "films.jsonl:3:" in said.err


def test_nobody_is_told_to_wait_for_the_end_of_a_dry_run(operator: Operator, tmp_path: Path) -> None:
    operator.pipeline.push_spec(SPEC)
    job_key = operator.pipeline.drop(films(2), intent="dry-run")["job_key"]
    for words in (("results", job_key, "--out", tmp_path), ("verify", job_key), ("report", job_key)):
        said = operator.run(*words).err
        assert ("it is a dry run" in said, "drop the file in earnest" in said, "follow" in said) == (True, True, False)
    assert "drop the file in earnest" in operator.run("review", "export", job_key, "--out", tmp_path / "x").err
    assert "Nothing to cancel: it was a dry run." in operator.run("cancel", job_key).out
