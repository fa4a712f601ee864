"""`tallybatch spec`: checked before anything is sent, every problem with its place."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tallybatch.domain.spec_file import parse_spec, spec_schema
from tests.support.operating import SPEC, Operator


def _write(folder: Path, text: str) -> Path:
    path = folder / "genre.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_sound_spec(tmp_path: Path, operator: Operator) -> None:
    said = operator.run("spec", "check", _write(tmp_path, SPEC), "--json")
    assert said.code == 0
    assert said.json["ok"] is True
    assert said.json["name"] == "genre"
    assert not operator.targets


def test_every_problem_is_printed_with_file_line_and_key(tmp_path: Path, operator: Operator) -> None:
    path = _write(tmp_path, SPEC.replace("provider: openai", "provider: opnai") + "shard: {max_records: 5}\n")
    said = operator.run("spec", "check", path)
    assert (said.code, said.out) == (3, "")
    assert f"{path}:2: provider: " in said.err
    assert f"{path}:{SPEC.count(chr(10)) + 1}: shard: " in said.err
    assert "shards" in said.err


def test_problems_as_json(tmp_path: Path, operator: Operator) -> None:
    said = operator.run("spec", "check", _write(tmp_path, SPEC + "bogus: 1\n"), "--json")
    assert said.code == 3
    problem = said.json["error"]["problems"][0]
    assert (problem["line"], problem["key"]) == (SPEC.count("\n") + 1, "bogus")


def test_a_file_that_is_not_there_and_a_folder(tmp_path: Path, operator: Operator) -> None:
    assert operator.run("spec", "check", tmp_path / "none.yaml").code == 4
    assert operator.run("spec", "check", tmp_path).code == 3


def test_show_prints_the_keys_as_written(tmp_path: Path, operator: Operator) -> None:
    said = operator.run("spec", "show", _write(tmp_path, SPEC))
    assert yaml.safe_load(said.out) == yaml.safe_load(SPEC)


def test_show_resolved_is_the_same_spec_with_every_default(tmp_path: Path, operator: Operator) -> None:
    path = _write(tmp_path, SPEC)
    said = operator.run("spec", "show", path, "--resolved")
    assert parse_spec(said.out.encode()) == parse_spec(SPEC.encode())
    assert yaml.safe_load(said.out)["retry"]["max_attempts"] == 3
    assert operator.run("spec", "show", path, "--resolved", "--json").json == yaml.safe_load(said.out)


def test_schema_is_one_json_document(operator: Operator) -> None:
    assert operator.run("spec", "schema").json == json.loads(json.dumps(spec_schema()))


def test_push_stores_the_file_byte_for_byte_and_says_when_it_was_there(tmp_path: Path, operator: Operator) -> None:
    path = _write(tmp_path, SPEC)
    said = operator.run("spec", "push", path, "--tenant", "acme", "--json")
    assert (said.json["changed"], said.json["uri"]) == (True, "s3://bucket/specs/acme/genre.yaml")
    assert operator.pipeline.objects.get("specs/acme/genre.yaml") == SPEC.encode()
    assert operator.run("spec", "push", path, "--tenant", "acme", "--json").json["changed"] is False


def test_a_wrong_spec_or_tenant_is_not_pushed(tmp_path: Path, operator: Operator) -> None:
    assert operator.run("spec", "push", _write(tmp_path, "name: x\n")).code == 3
    assert operator.run("spec", "push", _write(tmp_path, SPEC), "--tenant", "../x").code == 3
    assert not list(operator.pipeline.objects.list(""))
