"""`up` mends whatever state it finds, `down` leaves no process, and nothing is started that is not asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.local import emulator, loopback, processes, stack
from infra.local.commands import app
from infra.local.logs import logs
from infra.local.processes import Running
from infra.local.stack import LocalStatus
from infra.local.state import State, StateDir
from tallybatch.domain.errors import BadInput, Permanent
from tests.support import small_stack

ELSEWHERE = {
    "openai": "http://127.0.0.1:9/v1",
    "bedrock": "http://127.0.0.1:9",
    "gemini": "http://127.0.0.1:9/gemini",
}
"""Addresses of our own for each provider, so that no simulator is started."""


@pytest.fixture(scope="module")
def assembly_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_stack.write(tmp_path_factory.mktemp("assembly"))


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "state"
    yield directory
    stack.down(directory)
    assert running_in(directory) == []


def running_in(directory: Path) -> list[Running]:
    return emulator.strays(StateDir(directory).emulator)


def bring_up(state_dir: Path, assembly_dir: Path) -> tuple[LocalStatus, list[str]]:
    said: list[str] = []
    found = stack.up(
        state_dir,
        provider_urls=ELSEWHERE,
        assembly_dir=assembly_dir,
        stack="Small",
        wait_scale=0.01,
        report=said.append,
    )
    return found, said


def test_given_nothing_when_up_twice_then_the_second_changes_nothing(state_dir: Path, assembly_dir: Path) -> None:
    first, _ = bring_up(state_dir, assembly_dir)
    process = StateDir(state_dir).load().emulator
    second, said = bring_up(state_dir, assembly_dir)
    assert first.state == "up"
    assert second == first
    assert said == ["Small is deployed already, unchanged"]
    assert StateDir(state_dir).load().emulator == process


def test_given_data_when_down_and_up_then_it_is_still_there_and_the_ports_too(
    state_dir: Path, assembly_dir: Path
) -> None:
    before, _ = bring_up(state_dir, assembly_dir)
    assert before.bucket
    assert before.endpoint_url
    loopback.Aws(before.endpoint_url).s3.put_object(Bucket=before.bucket, Key="inbox/a b+c.jsonl", Body=b"kept")
    down = stack.down(state_dir)
    assert (down.state, down.endpoint_url, running_in(state_dir)) == ("down", None, [])
    after, said = bring_up(state_dir, assembly_dir)
    assert after == before
    assert said == ["starting the AWS emulator", "Small is deployed already, unchanged"]
    kept = loopback.Aws(before.endpoint_url).s3.get_object(Bucket=before.bucket, Key="inbox/a b+c.jsonl")
    assert kept["Body"].read() == b"kept"


def test_given_a_killed_emulator_when_up_then_it_begins_empty_and_says_so(state_dir: Path, assembly_dir: Path) -> None:
    before, _ = bring_up(state_dir, assembly_dir)
    remembered = StateDir(state_dir).load().emulator
    assert remembered is not None
    os.kill(remembered.pid, signal.SIGKILL)
    processes.stop(remembered)
    assert stack.status(state_dir).state == "down"
    after, said = bring_up(state_dir, assembly_dir)
    assert after.state == "up"
    assert after.endpoint_url == before.endpoint_url
    assert any("begins empty" in line for line in said)
    assert any("deploying Small" in line for line in said)


def test_given_a_lost_state_file_when_up_then_the_stray_emulator_is_ended(state_dir: Path, assembly_dir: Path) -> None:
    bring_up(state_dir, assembly_dir)
    stray = StateDir(state_dir).load().emulator
    StateDir(state_dir).file.write_text("{ damaged")
    after, _ = bring_up(state_dir, assembly_dir)
    assert after.state == "up"
    assert stray not in running_in(state_dir)
    assert len(running_in(state_dir)) == 1


def test_given_a_pid_that_now_belongs_to_another_when_down_then_that_process_lives(state_dir: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        StateDir(state_dir).save(State(emulator=Running(other.pid, 1.0), emulator_port=4566))
        assert stack.down(state_dir).state == "down"
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_given_an_assembly_that_cannot_be_deployed_when_up_then_it_fails_and_nothing_runs(
    state_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(Permanent, match="no synthesised stack"):
        bring_up(state_dir, tmp_path)
    assert running_in(state_dir) == []


def test_given_up_at_work_when_interrupted_then_nothing_is_left_running(state_dir: Path) -> None:
    program = "import sys; from pathlib import Path; from infra.local import stack; stack.up(Path(sys.argv[1]), "
    program += f"provider_urls={ELSEWHERE!r}, assembly_dir=Path('/nowhere'), report=print)"
    child = subprocess.Popen([sys.executable, "-c", program, str(state_dir)], cwd=emulator.ROOT)
    try:
        deadline = time.monotonic() + 20
        while not running_in(state_dir):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=30) != 0
    finally:
        child.kill()
        child.wait()
    assert running_in(state_dir) == []


def test_given_data_when_reset_then_all_of_it_is_gone(state_dir: Path, assembly_dir: Path) -> None:
    bring_up(state_dir, assembly_dir)
    stack.reset(state_dir)
    assert running_in(state_dir) == []
    assert not StateDir(state_dir).emulator.exists()
    assert stack.status(state_dir) == LocalStatus("down")


def test_given_a_key_in_the_shell_when_up_then_only_an_explicit_url_gets_it(
    state_dir: Path, assembly_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-that-costs-money")
    found, _ = bring_up(state_dir, assembly_dir)
    assert found.endpoint_url
    aws = loopback.Aws(found.endpoint_url)
    names = [each["Name"] for each in aws.secretsmanager.list_secrets()["SecretList"]]
    values = {aws.secretsmanager.get_secret_value(SecretId=name)["SecretString"] for name in names}
    assert values == {"a-key-that-costs-money", stack.DUMMY_KEY}
    function = aws.lambda_.list_functions()["Functions"][0]
    assert function["Environment"]["Variables"]["OPENAI_BASE_URL"] == ELSEWHERE["openai"]
    assert function["Environment"]["Variables"]["AWS_ENDPOINT_URL_BEDROCK"] == ELSEWHERE["bedrock"]


def test_given_a_function_that_ran_when_logs_are_read_then_its_lines_are_there_once(
    state_dir: Path, assembly_dir: Path
) -> None:
    found, _ = bring_up(state_dir, assembly_dir)
    assert found.endpoint_url
    functions = loopback.Aws(found.endpoint_url).lambda_
    name = functions.list_functions()["Functions"][0]["FunctionName"]
    functions.invoke(FunctionName=name, Payload=b"{}")
    lines = list(logs(state_dir))
    assert [line.text for line in lines if line.source == name and line.text.startswith("run ")] == ["run 1"]
    assert any(line.source == "emulator" and "Lambda worker spawned" in line.text for line in lines)
    listed = CliRunner().invoke(app, ["logs", "--json", "--state-dir", str(state_dir)])
    assert {"source": name, "text": "run 1"} in json.loads(listed.stdout)


@pytest.mark.parametrize(
    ("urls", "target"),
    [
        ({}, ("http://127.0.0.1:4600/openai/v1", stack.DUMMY_KEY)),
        ({"openai": "https://api.example.org/v1"}, ("https://api.example.org/v1", "real")),
    ],
)
def test_given_a_key_in_the_shell_when_no_url_is_given_then_only_the_simulator_is_called_and_without_it(
    urls: dict[str, str], target: tuple[str, str]
) -> None:
    host = {"OPENAI_API_KEY": "real", "OPENAI_BASE_URL": "https://elsewhere.example.org/v1"}
    assert stack.openai_target(urls, 4600, host) == target


@pytest.mark.parametrize("name", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
def test_given_a_gemini_key_in_the_shell_when_no_url_is_given_then_only_the_simulator_is_called(name: str) -> None:
    elsewhere = "https://generativelanguage.googleapis.com"
    assert stack.gemini_target({}, 4600, {name: "real"}) == ("http://127.0.0.1:4600/gemini", stack.DUMMY_KEY)
    assert stack.gemini_target({"gemini": elsewhere}, 4600, {name: "real"}) == (elsewhere, "real")


def test_given_another_address_when_up_then_it_is_told_whether_money_may_be_spent_and_when_it_no_longer_is() -> None:
    real, mine = {"openai": "https://api.example.org/v1"}, {"bedrock": "http://127.0.0.1:9"}

    with_key = stack.new_routes({}, real, {"OPENAI_API_KEY": "sk"})
    assert with_key == ["openai: calls go to https://api.example.org/v1, with OPENAI_API_KEY: this may cost money"]
    assert "OPENAI_API_KEY is not set" in stack.new_routes({}, real, {})[0]
    assert stack.new_routes({}, mine, {}) == ["bedrock: calls go to http://127.0.0.1:9"]
    assert stack.new_routes(real, real, {}) == []
    assert stack.new_routes(real, {}, {}) == ["openai: calls go to the simulator again"]


def test_given_a_state_directory_that_cannot_be_when_up_then_it_is_a_usage_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["up", "--json", "--state-dir", str(tmp_path / "file" / "state")])

    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["type"] == "BadInput"
    assert "do: name a folder that you may write to with --state-dir" in result.stderr


@pytest.mark.parametrize(
    "urls",
    [{"opnai": "http://x/v1"}, {"openai": "ftp://x"}, {"openai": "x:8000"}, {"openai": ""}, {"openai": "http://"}],
)
def test_given_a_provider_url_that_cannot_be_used_when_checked_then_it_is_refused(urls: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        stack.checked_urls(urls)


def test_given_nothing_runs_when_status_is_asked_then_json_has_exactly_the_public_keys(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["status", "--json", "--state-dir", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "state": "down",
        "endpoint_url": None,
        "region": "us-east-1",
        "bucket": None,
        "table": None,
        "state_machine_arn": None,
        "simulator_url": None,
        "stack": None,
    }


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["up", "--provider-url", "openai"], 2),
        (["up", "--provider-url", "nobody=http://127.0.0.1:1"], 2),
        (["up", "--no-such-option"], 2),
        (["logs"], 1),
        (["down"], 0),
        (["reset"], 0),
    ],
)
def test_given_an_argument_when_a_command_runs_then_its_exit_code_is_that_of_the_contract(
    tmp_path: Path, arguments: list[str], code: int
) -> None:
    result = CliRunner().invoke(app, [*arguments, "--json", "--state-dir", str(tmp_path / "none")])
    assert result.exit_code == code, result.output
    if code in (0, 1):
        json.loads(result.stdout)


@pytest.mark.parametrize("command", ["up", "down", "status", "reset", "logs"])
def test_given_help_when_asked_then_it_shows_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"tallybatch local {command}" in result.output
