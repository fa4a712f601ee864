"""What a deployment may choose, and what happens to a wrong choice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from pydantic import ValidationError

from infra.app import main
from infra.bundling import ROOT
from infra.node import JSII_NODE, packaged_node
from infra.options import Backfill, Source, StackOptions

BACKFILL: dict[str, Any] = {
    "name": "films",
    "schedule": "rate(1 day)",
    "tenant": "acme",
    "spec": "films",
    "prefix": "landing/{yyyy}/",
}


def _options(**context: Any) -> StackOptions:
    return StackOptions.from_context(App(context=context))


def test_defaults() -> None:
    options = _options()
    assert (options.stack, options.local, options.log_days) == ("Tallybatch", False, 30)
    assert options.retention.model_dump() == {"inbox": 30, "working": 30, "raw": 90, "results": 365, "noncurrent": 7}
    assert (options.backfills, options.sources) == ((), ())


def test_the_command_line_gives_text_a_context_file_gives_json(tmp_path: Path) -> None:
    file = tmp_path / "backfills.json"
    file.write_text(json.dumps([BACKFILL]))
    expected = (Backfill(**BACKFILL),)
    assert _options(backfills=[BACKFILL]).backfills == expected
    assert _options(backfills=json.dumps([BACKFILL])).backfills == expected
    assert _options(backfills=str(file)).backfills == expected
    assert _options(local="true", retention='{"raw": 7}', log_days="14").retention.raw == 7


def test_the_context_names_the_stack_before_the_environment_does() -> None:
    app = App(context={"stack": "FromContext"})
    assert StackOptions.from_context(app, stack="FromEnvironment").stack == "FromContext"
    assert StackOptions.from_context(App(), stack="FromEnvironment").stack == "FromEnvironment"


def test_sources_are_the_fixed_parts_of_the_prefixes_each_once() -> None:
    second = {**BACKFILL, "name": "again"}
    foreign = {**BACKFILL, "name": "foreign", "source_bucket": "other", "prefix": "{yyyy}/"}
    options = _options(backfills=[BACKFILL, second, foreign], backfill_sources='[{"prefix": "archive/"}]')
    assert options.sources == (Source(prefix="landing/"), Source(bucket="other"), Source(prefix="archive/"))


@pytest.mark.parametrize(
    ("context", "complaint"),
    [
        ({"stack": "with space"}, "stack"),
        ({"stack": "x" * 41}, "stack"),
        ({"log_days": "2"}, "log_days: must be one of 1, 3"),
        ({"retention": '{"raws": 1}'}, "raws"),
        ({"retention": '{"raw": 0}'}, "greater than or equal to 1"),
        ({"backfills": "nowhere.json"}, "neither JSON nor the path of a JSON file: 'nowhere.json'"),
        ({"backfills": "[{]"}, "backfills"),
        ({"backfills": [{**BACKFILL, "shedule": "x"}]}, "shedule"),
        ({"backfills": [{**BACKFILL, "schedule": "daily"}]}, "schedule"),
        ({"backfills": [{**BACKFILL, "max_objects": 0}]}, "max_objects"),
        ({"backfills": [{**BACKFILL, "prefix": "/landing/"}]}, "no leading slash"),
        (
            {"backfills": [{**BACKFILL, "prefix": "{yyyy}/"}]},
            "in the pipeline's own bucket a prefix begins with text: films",
        ),
        ({"backfills": [BACKFILL, BACKFILL]}, "declared twice: films"),
        ({"backfill_sources": "[{}]"}, "needs a prefix"),
    ],
)
def test_a_wrong_option_is_named(context: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _options(**context)
    assert complaint in str(caught.value)


def test_the_command_refuses_an_option_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--context", "retension={}"])
    assert caught.value.code == 2
    assert "no option 'retension'" in capsys.readouterr().err


def test_the_command_says_which_value_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--context", "log_days=2", "--output", str(tmp_path)])
    assert "log_days" in str(caught.value.code)


def test_the_command_synthesises_a_local_stack_of_another_name(tmp_path: Path) -> None:
    main(["--context", "local=true", "--context", "stack=Other", "--output", str(tmp_path / "out")])
    template = json.loads((tmp_path / "out" / "Other.template.json").read_text())
    functions = [
        each["Properties"] for each in template["Resources"].values() if each["Type"] == "AWS::Lambda::Function"
    ]
    assert {function["FunctionName"].partition("-")[0] for function in functions} == {"Other"}
    (asset,) = {function["Code"]["S3Key"].removesuffix(".zip") for function in functions}
    shipped = tmp_path / "out" / f"asset.{asset}"
    assert (shipped / "tallybatch" / "settings.py").is_file()
    assert not (shipped / "tallybatch" / "cli").exists()
    assert not list(shipped.rglob("__pycache__"))


def test_jsii_runs_on_the_node_that_came_with_the_wheels() -> None:
    node = packaged_node()
    assert node is not None
    environ = {name: value for name, value in os.environ.items() if name != JSII_NODE}
    code = f"import infra.options, os; print(os.environ[{JSII_NODE!r}])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == str(node)
    assert "end-of-life" not in done.stderr


@pytest.mark.parametrize("address", ["nobody", "a b@example.com", "@example.com", "me@here"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="alarm_email"):
        _options(alarm_email=address)
