"""The emulator behaves as AWS where the workflow depends on it, and nothing of this shell reaches a function."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from infra.local import assembly, deploy, emulator, launcher, loopback
from tallybatch.domain.errors import BadInput
from tests.support import small_stack


@pytest.fixture(scope="module")
def stack(emulator: str, tmp_path_factory: pytest.TempPathFactory) -> deploy.Deployment:
    directory = small_stack.write(tmp_path_factory.mktemp("assembly"))
    return deploy.deploy(emulator, assembly.read(directory, "Small"))


def execute(endpoint: str, stack: deploy.Deployment, payload: dict[str, Any]) -> dict[str, Any]:
    states = loopback.Aws(endpoint).client("stepfunctions")
    started = states.start_execution(stateMachineArn=stack.outputs["StateMachineArn"], input=json.dumps(payload))
    for _ in range(200):
        found = states.describe_execution(executionArn=started["executionArn"])
        if found["status"] != "RUNNING":
            assert found["status"] == "SUCCEEDED", found
            output: dict[str, Any] = json.loads(found["output"])
            return output
        time.sleep(0.1)
    raise AssertionError("the execution did not end")


def invoke(endpoint: str, stack: deploy.Deployment, payload: dict[str, Any]) -> dict[str, Any]:
    answer = loopback.Aws(endpoint).lambda_.invoke(
        FunctionName=stack.outputs["BuildManifestFunction"], Payload=json.dumps(payload)
    )
    body: dict[str, Any] = json.loads(answer["Payload"].read())
    return body


@pytest.mark.parametrize(
    ("payload", "caught"),
    [
        ({"raise": "Retryable"}, "Retryable"),
        ({"raise": "KeyError"}, "other: KeyError"),
        ({"raise": "Narrower"}, "other: Narrower"),
        ({"exit": True}, "Runtime.ExitError"),
    ],
)
def test_given_an_exception_when_a_task_fails_then_catch_sees_its_class_name(
    emulator: str, stack: deploy.Deployment, payload: dict[str, Any], caught: str
) -> None:
    assert execute(emulator, stack, payload) == {"caught": caught}


def test_given_retry_names_the_class_when_it_is_raised_twice_then_the_third_try_succeeds(
    emulator: str, stack: deploy.Deployment, tmp_path: Path
) -> None:
    payload = {"raise": "Retryable", "times": 2, "count_in": str(tmp_path / "tries")}
    assert execute(emulator, stack, payload) == {"tries": 3}


def test_given_an_exception_when_invoked_again_then_the_environment_is_still_warm(
    emulator: str, stack: deploy.Deployment
) -> None:
    before = invoke(emulator, stack, {})["runs"]
    assert invoke(emulator, stack, {"raise": "KeyError"}) == {"errorMessage": "'as asked'", "errorType": "KeyError"}
    assert invoke(emulator, stack, {})["runs"] == before + 2


def test_given_a_failing_function_when_eventbridge_invokes_it_then_it_is_tried_three_times_and_dead_lettered(
    emulator: str, stack: deploy.Deployment, tmp_path: Path
) -> None:
    aws = loopback.Aws(emulator)
    detail = {"raise": "Retryable", "count_in": str(tmp_path / "tries")}
    entry = {
        "Source": "test",
        "DetailType": "t",
        "Detail": json.dumps(detail),
        "EventBusName": stack.outputs["EventBus"],
    }
    aws.client("events").put_events(Entries=[entry])
    sqs = aws.client("sqs")
    letters: list[Any] = []
    for _ in range(60):
        got = sqs.receive_message(QueueUrl=stack.outputs["DeadLetters"], WaitTimeSeconds=1)
        letters += got.get("Messages", [])
        if letters:
            break
    assert (tmp_path / "tries").read_text() == "xxx"
    assert len(letters) == 1
    assert "as asked" in json.dumps(letters[0])


def test_given_variables_in_the_shell_when_a_function_runs_then_it_sees_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY", "AWS_PROFILE"):
        monkeypatch.setenv(name, "leaked")
    for name in ("GOOGLE_GEMINI_BASE_URL", "AWS_ENDPOINT_URL", "TALLYBATCH_BUCKET", "X_LEAK"):
        monkeypatch.setenv(name, "leaked")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    directory = small_stack.write(tmp_path / "assembly")
    changed = assembly.local_environment("http://127.0.0.1:9/openai/v1", "http://127.0.0.1:9/gemini")
    config = emulator.Emulator(loopback.free_port(), tmp_path / "data", tmp_path / "log", persist=False)
    # WHEN
    running, _ = emulator.start(config)
    try:
        deployed = deploy.deploy(config.endpoint_url, assembly.read(directory, "Small", changed))
        seen = invoke(config.endpoint_url, deployed, {})["environment"]
    finally:
        emulator.stop(running)
    # THEN
    assert "leaked" not in seen.values()
    assert "HTTP_PROXY" not in seen
    assert seen["AWS_ENDPOINT_URL"] == config.endpoint_url
    assert seen["TALLYBATCH_BUCKET"] == "told-by-template"
    assert seen["TALLYBATCH_SETTLE_WINDOW_S"] == "3"
    assert seen["OPENAI_BASE_URL"] == "http://127.0.0.1:9/openai/v1"
    assert seen["GOOGLE_GEMINI_BASE_URL"] == "http://127.0.0.1:9/gemini"
    assert seen["AWS_ACCESS_KEY_ID"] == loopback.ACCOUNT


def test_given_another_version_when_its_source_is_mended_then_it_fails_by_name() -> None:
    mend = launcher.MENDS[0]
    with pytest.raises(launcher.MendDoesNotFit, match=mend.module):
        launcher.mended_source(mend.module, "a source that has changed")


@pytest.mark.parametrize(
    "url", ["https://dynamodb.us-east-1.amazonaws.com", "http://10.0.0.1:4566", "http://127.0.0.1.example.org", ""]
)
def test_given_an_endpoint_elsewhere_when_a_client_is_asked_for_then_it_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="not on this machine"):
        loopback.Aws(url)
