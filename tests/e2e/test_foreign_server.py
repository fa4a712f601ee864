"""`--provider-url openai=…`: the local stack sends its jobs to a server that is not ours and loses the first create."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.films import DATA
from tests.support.foreign_openai import ForeignOpenAI, foreign_openai

pytestmark = pytest.mark.xdist_group("e2e")

KEY = "sk-foreign"
COUNT = 120
COMMAND = Path(sys.executable).with_name("tallybatch")


def tallybatch(*arguments: str, exit_code: int = 0) -> dict[str, Any]:
    """Run the installed command; its JSON document."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TALLYBATCH_"))}
    ran = subprocess.run(
        [COMMAND, *arguments, "--json"],
        capture_output=True,
        timeout=240,
        check=False,
        env={**environment, "OPENAI_API_KEY": KEY},
    )
    assert ran.returncode == exit_code, ran.stderr.decode()
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


@pytest.fixture
def server() -> Iterator[tuple[ForeignOpenAI, str]]:
    state = ForeignOpenAI(key=KEY, lose=1)
    with foreign_openai(state) as url:
        yield state, url


def test_given_a_foreign_server_that_creates_and_answers_500_when_submitted_then_one_job_exists_and_the_run_completes(
    server: tuple[ForeignOpenAI, str], tmp_path: Path
) -> None:
    # GIVEN
    foreign, url = server
    films = tmp_path / "movies.jsonl"
    films.write_bytes(b"".join((DATA / "movies.jsonl").read_bytes().splitlines(keepends=True)[:COUNT]))
    where = ("--state-dir", str(tmp_path / "state"))
    try:
        up = tallybatch("local", "up", "--provider-url", f"openai={url}", *where)
        stack = ("--stack", up["stack"], "--endpoint-url", up["endpoint_url"])
        # WHEN
        spec = str(DATA / "specs" / "film-genre.yaml")
        dropped = tallybatch("submit", str(films), "--spec", spec, "--tenant", "foreign", *stack)
        job = tallybatch("follow", dropped["job_key"], *stack)
        verified = tallybatch("verify", dropped["job_key"], *stack)
    finally:
        tallybatch("local", "down", *where)
    # THEN
    assert foreign.creates == [500]
    assert len(foreign.batches) == 1
    assert (job["state"], job["succeeded"], job["missing"]) == ("COMPLETED", COUNT, 0)
    assert (job["submissions"], job["provider_jobs"], job["attempts"]) == (1, 1, 1)
    assert verified["ok"] is True
