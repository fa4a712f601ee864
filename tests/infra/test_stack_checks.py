"""cdk-nag and cfn-lint find nothing, and are seen to look."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_s3 as s3
from cdk_nag import AwsSolutionsChecks

TEMPLATE = "Tallybatch.template.json"


def _report(assembly: Path) -> list[dict[str, Any]]:
    reports: list[dict[str, Any]] = json.loads((assembly / "validation-report.json").read_text())["pluginReports"]
    return reports


def test_cdk_nag_finds_nothing_in_either_stack(assembly: Path, local_assembly: Path) -> None:
    assert _report(assembly) == []
    assert _report(local_assembly) == []


def test_cdk_nag_stops_a_synthesis_that_breaks_a_rule(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    s3.Bucket(Stack(app, "Probe"), "Open")
    Validations.of(app).add_plugins(AwsSolutionsChecks())
    with pytest.raises(RuntimeError, match="AwsSolutions-S10"):
        app.synth()
    rules = {each["ruleName"] for report in _report(tmp_path) for each in report["violations"]}
    assert "AwsSolutions-S10" in rules


def _acknowledged(assembly: Path) -> Iterator[tuple[str, str, str]]:
    """(construct path, finding, reason) of each acknowledgement, from the metadata that synthesis keeps."""
    metadata = json.loads((assembly / "Tallybatch.metadata.json").read_text())
    for path, entries in metadata.items():
        for entry in entries:
            data = entry.get("data")
            if isinstance(data, dict):
                for finding, reason in data.items():
                    if "AwsSolutions" in str(finding):
                        yield path, str(finding), str(reason)


def test_each_acknowledgement_is_below_the_stack_and_has_a_reason(assembly: Path) -> None:
    found = list(_acknowledged(assembly))
    assert found
    for path, finding, reason in found:
        assert path.strip("/").count("/") >= 2, f"{finding} is acknowledged for too much: {path}"
        assert len(reason) > 30, f"{finding} at {path} needs a reason"
    everything = [finding for _, finding, _ in found if finding.endswith(("IAM5", "IAM5[Action::*]"))]
    assert everything == []


def test_only_these_rules_are_acknowledged_at_all(assembly: Path) -> None:
    rules = Counter(
        finding.rpartition("AwsSolutions-")[2].partition("[")[0] for _, finding, _ in _acknowledged(assembly)
    )
    assert set(rules) == {"S1", "SQS3", "SMG4", "L1", "IAM5"}
    assert (rules["S1"], rules["SMG4"]) == (1, 2)


def _lint(*templates: Path) -> str:
    """What cfn-lint has to say; "" is nothing."""
    program = Path(sys.executable).with_name("cfn-lint")
    command = [str(program), "--format", "parseable", "--regions", "us-east-1", "--", *map(str, templates)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode == 0) == (done.stdout.strip() == ""), done.stderr
    return done.stdout


def test_cfn_lint_finds_nothing_in_either_stack(assembly: Path, local_assembly: Path) -> None:
    assert _lint(assembly / TEMPLATE, local_assembly / TEMPLATE) == ""


def test_cfn_lint_sees_a_wrong_property_of_a_function_of_ours(template: dict[str, Any], tmp_path: Path) -> None:
    function = next(each for each in template["Resources"].values() if each["Type"] == "AWS::Lambda::Function")
    properties = {name: value for name, value in function["Properties"].items() if isinstance(value, (str, int))}
    wrong = {
        **properties,
        "Runtime": "python9",
        "Role": "arn:aws:iam::000000000000:role/probe",
        "Code": {"ZipFile": "#"},
    }
    broken = tmp_path / "broken.template.json"
    broken.write_text(json.dumps({"Resources": {"Probe": {"Type": function["Type"], "Properties": wrong}}}))
    assert "python9" in _lint(broken)
