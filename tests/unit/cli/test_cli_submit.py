"""`tallybatch submit`, from the file to the certificate, on the real steps."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tallybatch.steps import cancel_job
from tests.support.operating import SPEC, Operator, films


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "genre.yaml"
    path.write_text(SPEC)
    return path


def _file(folder: Path, body: bytes, name: str = "films.jsonl") -> Path:
    path = folder / name
    path.write_bytes(body)
    return path


def test_submit_names_the_job(tmp_path: Path, spec_file: Path, operator: Operator) -> None:
    said = operator.run("submit", _file(tmp_path, films(3)), "--spec", spec_file, "--dataset-version", "v1", "--json")
    assert said.code == 0
    assert list(said.json) == ["job_key", "state", "source_uri", "bucket"]
    assert said.json["source_uri"] == "s3://bucket/inbox/default/genre/v1/films.jsonl"
    job = operator.pipeline.job(said.json["job_key"])
    assert (job.source_uri, job.expected) == (said.json["source_uri"], 3)


def test_submit_and_follow_to_the_certificate(tmp_path: Path, spec_file: Path, operator: Operator) -> None:
    file = _file(tmp_path, gzip.compress(films(4)), "films.jsonl.gz")
    said = operator.run("submit", file, "--spec", spec_file, "--tenant", "acme", "--follow", "--json")
    assert (said.code, said.json["state"], said.json["tenant"]) == (0, "COMPLETED", "acme")
    assert said.json["expected"] == said.json["succeeded"] == 4
    assert operator.run("verify", said.json["job_key"], "--json").json["ok"] is True


def test_a_pushed_spec_is_used_by_its_name(tmp_path: Path, operator: Operator) -> None:
    operator.pipeline.push_spec(SPEC)
    file = _file(tmp_path, films(2))
    said = operator.run("submit", file, "--spec", "genre", "--tenant", "acme", "--follow", "--json")
    assert (said.code, said.json["succeeded"]) == (0, 2)


def test_given_the_same_file_dropped_again_when_submitted_then_its_job_is_named_and_nothing_is_paid(
    tmp_path: Path, spec_file: Path, operator: Operator
) -> None:
    file = _file(tmp_path, films(3))
    first = operator.run("submit", file, "--spec", spec_file, "--follow", "--json").json
    creates = operator.pipeline.simulator.control.journal()["creates"]
    again = operator.run("submit", file, "--spec", "genre", "--json")
    renamed = operator.run("submit", _file(tmp_path, films(3), "a b+%ü.jsonl"), "--spec", "genre", "--json")
    assert (again.code, again.json["job_key"], again.json["state"]) == (0, first["job_key"], "COMPLETED")
    assert renamed.json["job_key"] == first["job_key"]
    assert "nothing is sent or paid again" in again.err
    assert operator.pipeline.simulator.control.journal()["creates"] == creates


def test_given_bad_lines_that_are_quarantined_when_submitted_then_they_are_told_and_the_report_says_where_they_are(
    tmp_path: Path, operator: Operator
) -> None:
    spec = tmp_path / "genre.yaml"
    spec.write_text(SPEC.replace("fields: [title]", "fields: [title], on_bad_line: quarantine"))
    file = _file(tmp_path, films(3) + b"no json\n" + films(1))

    said = operator.run("submit", file, "--spec", spec, "--follow", "--json")

    assert (said.code, said.json["expected"]) == (0, 3)
    assert "2 bad lines stay behind" in said.err
    report = operator.run("report", said.json["job_key"], "--json").json
    assert "2 bad lines of the file are no part of this job" in report["next_steps"][-1]
    assert report["places"]["bad_lines"] in said.err
    assert operator.pipeline.objects.get(report["places"]["bad_lines"].removeprefix("s3://bucket/")).count(b"\n") == 2


def test_given_a_slash_in_the_dataset_version_when_submitted_then_it_is_the_option_that_is_named(
    tmp_path: Path, spec_file: Path, operator: Operator
) -> None:
    said = operator.run("submit", _file(tmp_path, films(3)), "--spec", spec_file, "--dataset-version", "a/b")

    assert said.code == 3
    assert "--dataset-version: 'a/b' has a slash" in said.err
    assert not operator.targets


def test_given_other_content_under_the_same_name_when_submitted_then_it_is_the_new_job_that_is_named(
    tmp_path: Path, spec_file: Path, operator: Operator
) -> None:
    first = operator.run("submit", _file(tmp_path, films(3)), "--spec", spec_file, "--follow", "--json").json
    second = operator.run("submit", _file(tmp_path, films(4)), "--spec", spec_file, "--follow", "--json").json
    assert first["job_key"] != second["job_key"]
    assert (second["expected"], second["reused"]) == (4, 3)


def test_given_the_same_records_in_other_bytes_when_submitted_then_their_job_is_named(
    tmp_path: Path, spec_file: Path, operator: Operator
) -> None:
    first = operator.run("submit", _file(tmp_path, films(3)), "--spec", spec_file, "--json").json
    spaced = films(3).replace(b'": "', b'" :   "')
    assert (
        operator.run("submit", _file(tmp_path, spaced), "--spec", spec_file, "--json").json["job_key"]
        == (first["job_key"])
    )


def test_a_refused_file_is_told_line_by_line(tmp_path: Path, spec_file: Path, operator: Operator) -> None:
    file = _file(tmp_path, films(2) + b"nonsense\n" + films(1))
    said = operator.run("submit", file, "--spec", spec_file, "--json")
    assert said.code == 3
    assert [problem["line"] for problem in said.json["error"]["problems"]] == [3, 4]
    assert f"{file}:3: " in said.err
    assert operator.run("submit", file, "--spec", spec_file, "--follow").code == 3
    assert not operator.pipeline.simulator.control.journal()["creates"]


def test_given_a_file_that_was_refused_for_want_of_a_price_when_submitted_with_one_then_its_job_is_named(
    tmp_path: Path, operator: Operator
) -> None:
    file, spec = _file(tmp_path, films(2)), _file(tmp_path, SPEC.replace("mini-2025-08-07", "99").encode(), "s.yaml")
    refused = operator.run("submit", file, "--spec", spec, "--json")
    assert (refused.code, "no price is known" in refused.err) == (3, True)
    row = '{{provider: openai, model: gpt-5-99, class: {}, as_of: "2026-01-01", source: ours, input: 1, output: 2}}'
    rows = "".join(f"  - {row.format(lane)}\n" for lane in ("batch", "on_demand"))
    operator.pipeline.objects.put("prices/prices.yaml", f"prices:\n{rows}".encode())

    said = operator.run("submit", file, "--spec", spec, "--follow", "--json")

    assert (said.code, said.json["state"]) == (0, "COMPLETED")
    assert said.json["job_key"] != refused.json["error"].get("job_key")


def test_what_is_wrong_is_found_before_anything_is_uploaded(
    tmp_path: Path, spec_file: Path, operator: Operator
) -> None:
    good = _file(tmp_path, films(1))
    cases: list[tuple[int, tuple[str | Path, ...]]] = [
        (3, (_file(tmp_path, films(1), "films.csv"), "--spec", spec_file)),
        (4, (tmp_path / "none.jsonl", "--spec", spec_file)),
        (4, (good, "--spec", "unknown")),
        (4, (good, "--spec", tmp_path / "none.yaml")),
        (3, (good, "--spec", _file(tmp_path, b"name: x\n", "bad.yaml"))),
        (3, (good, "--spec", spec_file, "--tenant", "a/b")),
        (3, (good, "--spec", spec_file, "--dataset-version", "a/b")),
        (2, (good,)),
    ]
    for code, args in cases:
        assert operator.run("submit", *args).code == code, args
    assert not list(operator.pipeline.objects.list("inbox/"))


def test_given_a_pipeline_that_never_answers_when_submitted_then_the_command_says_where_to_look(
    tmp_path: Path, spec_file: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "_arrive", lambda _: None)
    said = operator.run("submit", _file(tmp_path, films(1)), "--spec", spec_file)
    assert said.code == 4
    assert "BuildManifest" in said.err
    assert "being prepared" in said.err


def test_given_a_file_refused_for_what_was_mended_elsewhere_when_submitted_again_then_the_job_it_becomes_is_told(
    tmp_path: Path, operator: Operator
) -> None:
    spec = tmp_path / "genre.yaml"
    spec.write_text(SPEC + "quality: {golden: {file: g.jsonl, field: genre, label: genre, min_accuracy: 0.0}}\n")
    submit = ("submit", _file(tmp_path, films(3)), "--spec", spec, "--follow", "--json")
    assert "there is no golden/default/g.jsonl" in operator.run(*submit).json["error"]["message"]
    again = operator.run(*submit)
    assert (again.code, len(operator.world)) == (3, 0), "told by this drop's own refusal"
    operator.pipeline.objects.put("golden/default/g.jsonl", b'{"id": "film-1", "genre": "Drama"}\n')
    said = operator.run(*submit)
    assert (said.code, said.json["state"]) == (0, "COMPLETED")


def test_given_a_cancelled_job_whose_file_is_slow_to_prepare_when_submitted_again_then_its_next_end_is_told(
    tmp_path: Path, spec_file: Path, operator: Operator
) -> None:
    pipeline = operator.pipeline
    submit = ("submit", _file(tmp_path, films(3)), "--spec", spec_file, "--json")
    job_key = operator.run(*submit).json["job_key"]
    cancel_job.run(job_key, pipeline.ledger, pipeline.clock)
    operator.world.popleft()()
    assert pipeline.job(job_key).state.value == "CANCELLED"
    pipeline.clock.advance(60)

    operator.world.extend([lambda: None] * 60)
    said = operator.run(*submit, "--follow")

    assert (said.code, said.json["job_key"], said.json["state"]) == (0, job_key, "COMPLETED")
