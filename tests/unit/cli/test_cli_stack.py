"""Which stack a command talks to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tallybatch.cli.stack import DEFAULT_STACK, Place, Target, locate
from tallybatch.domain.errors import Permanent
from tests.support.operating import SPEC, Operator


@dataclass(frozen=True)
class Status:
    state: str
    stack: str | None = None
    endpoint_url: str | None = None
    region: str = "us-east-1"


UP = Status("up", "Local", "http://127.0.0.1:4566")


def test_without_options_the_local_stack_if_it_is_up() -> None:
    assert locate(Target(), lambda: UP) == Place("Local", "http://127.0.0.1:4566", "us-east-1")


@pytest.mark.parametrize("status", [None, Status("down")], ids=["no checkout", "down"])
def test_without_options_and_without_a_local_stack_it_is_aws(status: Status | None) -> None:
    assert locate(Target(), lambda: status) == Place(DEFAULT_STACK)


def test_a_half_dead_local_stack_is_never_mistaken_for_aws() -> None:
    with pytest.raises(Permanent, match="degraded"):
        locate(Target(), lambda: Status("degraded"))


def test_what_is_named_is_meant_whatever_runs_locally() -> None:
    assert locate(Target("Prod"), lambda: UP) == Place("Prod")
    assert locate(Target("", "http://localhost:9000"), lambda: UP) == Place(DEFAULT_STACK, "http://localhost:9000")


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("", False),
        ("http://localhost:4566", True),
        ("http://127.0.0.1:4566", True),
        ("http://[::1]:4566", True),
        ("https://s3.eu-central-1.amazonaws.com", False),
        ("http://localhost.example.com", False),
    ],
)
def test_only_this_machine_is_local(url: str, local: bool) -> None:
    assert Place("S", url).local is local


def test_options_and_environment_reach_the_connector(operator: Operator, tmp_path: Path) -> None:
    (tmp_path / "genre.yaml").write_text(SPEC)
    operator.run("jobs", "--stack", "Prod", "--endpoint-url", "http://localhost:1")
    operator.run("jobs", env={"TALLYBATCH_STACK": "Other", "AWS_ENDPOINT_URL": "http://localhost:2"})
    assert operator.targets == [Target("Prod", "http://localhost:1"), Target("Other", "http://localhost:2")]
