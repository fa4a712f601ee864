"""The stack, synthesised once per run: with production's settings, and as the embedded default deploys it.

Nothing of `aws_cdk` is imported here, so that `infra`, which says which Node to use, comes first.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.app import build_app
from infra.options import StackOptions
from infra.stack import function_code

BACKFILLS = [
    {
        "name": "daily-films",
        "schedule": "rate(1 day)",
        "tenant": "acme",
        "spec": "film-genre",
        "prefix": "landing/films/{yyyy}/{mm}/{dd}/",
        "flexible_minutes": 15,
    },
    {
        "name": "quakes",
        "schedule": "cron(0 3 * * ? *)",
        "timezone": "Europe/Berlin",
        "tenant": "geo",
        "spec": "quakes",
        "prefix": "raw/{yyyy}/",
        "source_bucket": "geo-source",
        "max_objects": 5,
        "enabled": False,
    },
]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process of the test run at a time."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _assembly(tmp_path_factory: pytest.TempPathFactory, name: str, context: dict[str, Any]) -> Path:
    """The cloud assembly of one variant, shared by the workers of a run. Function code is the bare source: what
    dependencies a package holds is the subject of test_bundling."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    output = shared / f"assembly-{name}"
    with _alone(shared / f"assembly-{name}.lock"):
        if not (output / "manifest.json").is_file():
            build_app(context, output=output, code=function_code(StackOptions(local=True))).synth()
    return output


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _assembly(tmp_path_factory, "aws", {"backfills": json.dumps(BACKFILLS)})


@pytest.fixture(scope="session")
def local_assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _assembly(tmp_path_factory, "local", {"local": "true", "backfills": json.dumps(BACKFILLS)})


def _template(assembly: Path) -> dict[str, Any]:
    template: dict[str, Any] = json.loads((assembly / "Tallybatch.template.json").read_text(encoding="utf-8"))
    return template


@pytest.fixture(scope="session")
def template(assembly: Path) -> dict[str, Any]:
    """The template of a production stack with two declared backfills."""
    return _template(assembly)


@pytest.fixture(scope="session")
def local_template(local_assembly: Path) -> dict[str, Any]:
    """The template of the same stack for the embedded default."""
    return _template(local_assembly)


@pytest.fixture(autouse=True, scope="session")
def _no_aws_environment() -> Iterator[None]:
    """Account, region and name of the stack do not come from the machine that runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CDK_DEFAULT_ACCOUNT", "CDK_DEFAULT_REGION", "CDK_OUTDIR", "CDK_CONTEXT_JSON", "TALLYBATCH_STACK"):
            patch.delenv(name, raising=False)
        yield
