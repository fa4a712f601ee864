"""Each function is told exactly what its settings model reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tallybatch import settings
from tallybatch.settings import FUNCTIONS, PREFIX, StoreSettings


def _environment(template: Mapping[str, Any], model: type[StoreSettings]) -> dict[str, Any]:
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::Lambda::Function" and properties["FunctionName"].endswith(f"-{model.function}"):
            variables: dict[str, Any] = properties["Environment"]["Variables"]
            return variables
    raise AssertionError(f"no function for {model.function}")


def _deployed(value: Any) -> str:
    """A variable's value as it is after deployment: what a reference resolves to is some text."""
    if isinstance(value, str):
        return value
    assert set(value) <= {"Ref", "Fn::GetAtt"}, value
    return "physical-" + str(next(iter(value.values())))


@pytest.mark.parametrize("model", FUNCTIONS, ids=lambda model: model.function)
def test_the_environment_parses_as_the_functions_settings(
    template: Mapping[str, Any], model: type[StoreSettings]
) -> None:
    environ = {name: _deployed(value) for name, value in _environment(template, model).items()}
    loaded = model.load(environ)
    ours = {name for name in environ if name.startswith(PREFIX)}
    assert ours == {PREFIX + name.upper() for name in model.model_fields}
    assert model.load(loaded.environment()) == loaded
    for name, field in model.model_fields.items():
        if not field.is_required():
            assert getattr(loaded, name) == field.default


@pytest.mark.parametrize("model", FUNCTIONS, ids=lambda model: model.function)
def test_store_variables_point_at_the_stacks_own(template: Mapping[str, Any], model: type[StoreSettings]) -> None:
    variables, outputs = _environment(template, model), template["Outputs"]
    expected = {
        "bucket": "Bucket",
        "table": "Table",
        "event_bus": "EventBus",
        "state_machine_arn": "StateMachineArn",
        "openai_secret": "OpenAISecret",
        "gemini_secret": "GeminiSecret",
    }
    for field, output in expected.items():
        if field in model.model_fields:
            assert variables[PREFIX + field.upper()] == outputs[output]["Value"], field


def test_no_variable_is_a_secret(template: Mapping[str, Any]) -> None:
    for model in FUNCTIONS:
        for name, value in _environment(template, model).items():
            assert "resolve:secretsmanager" not in str(value), name
    for name in ("TALLYBATCH_OPENAI_SECRET", "TALLYBATCH_GEMINI_SECRET"):
        assert _environment(template, settings.SubmitShard)[name].keys() == {"Ref"}
