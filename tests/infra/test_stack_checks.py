"""cdk-nag and cfn-lint find nothing, and are seen to look."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cfnlint.api
import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_s3 as s3
from cdk_nag import AwsSolutionsChecks
from cfnlint.config import ManualArgs

REGIONS = ["us-east-1", "eu-central-1"]


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
    assert rules["S1"] == rules["SMG4"] == 1


@pytest.mark.parametrize("variant", ["assembly", "local_assembly"])
def test_cfn_lint_finds_nothing(variant: str, request: pytest.FixtureRequest) -> None:
    directory: Path = request.getfixturevalue(variant)
    text = (directory / "Tallybatch.template.json").read_text()
    found = cfnlint.api.lint(text, config=ManualArgs(regions=REGIONS))
    assert [f"{match.rule.id} {match.message}" for match in found] == []


def test_cfn_lint_sees_a_wrong_property(assembly: Path) -> None:
    text = (
        (assembly / "Tallybatch.template.json").read_text().replace('"Runtime": "python3.13"', '"Runtime": "python9"')
    )
    assert cfnlint.api.lint(text, config=ManualArgs(regions=["us-east-1"]))
