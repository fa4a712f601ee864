"""The CDK's own command line on this app, with which the README deploys: as far as it needs no account."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from infra.bundling import ROOT


def test_given_the_pinned_cdk_when_it_synthesises_then_the_assembly_holds_the_packed_functions(tmp_path: Path) -> None:
    """The CDK runs the app with colours forced on, which must not find their way into what the app reads."""
    command = [sys.executable, "-m", "infra.npm", "cdk", "--app", f"{sys.executable} -m infra.app"]
    output = tmp_path / "cdk.out"
    done = subprocess.run(
        [*command, "ls", "--output", str(output)], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Tallybatch"]
    template = json.loads((output / "Tallybatch.template.json").read_text(encoding="utf-8"))
    assert "OpenAISecret" in template["Outputs"]
    assert len(list(output.glob("asset.*.zip"))) == 2
