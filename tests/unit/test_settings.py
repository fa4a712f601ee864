"""What a function is told: nothing is read that the model does not name, nothing that is needed may be missing."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tallybatch import settings
from tallybatch.settings import FUNCTIONS, PREFIX, PollShard, StoreSettings, SubmitShard

VALUES: dict[str, Any] = {
    "bucket": "the-bucket",
    "table": "the-table",
    "event_bus": "the-bus",
    "state_machine_arn": "arn:aws:states:eu-central-1:111122223333:stateMachine:job",
    "openai_secret": "tallybatch/openai",
    "gemini_secret": "tallybatch/gemini",
    "bedrock_role_arn": "arn:aws:iam::111122223333:role/bedrock",
    "bedrock_min_records": 7,
    "settle_window_s": 12.5,
    "create_within_s": 7.0,
    "unknown_wait_s": 3.25,
    "max_wait_s": 99.0,
    "provider_file_hours": 48,
    "work_s": 55.0,
    "call_timeout_s": 44.0,
}


def made(model: type[StoreSettings]) -> StoreSettings:
    return model(**{name: VALUES[name] for name in model.model_fields})


@pytest.mark.parametrize("model", FUNCTIONS, ids=lambda model: model.function)
def test_given_settings_when_they_go_through_an_environment_then_they_come_back_the_same(
    model: type[StoreSettings],
) -> None:
    one = made(model)
    environ = one.environment()
    assert all(isinstance(value, str) and name == name.upper() for name, value in environ.items())
    assert model.load({**environ, "PATH": "/bin", "BUCKET": "other", "bucket": "other", PREFIX + "NEW": "1"}) == one


@pytest.mark.parametrize("model", FUNCTIONS, ids=lambda model: model.function)
def test_given_an_environment_when_a_needed_variable_is_missing_then_loading_names_it(
    model: type[StoreSettings],
) -> None:
    environ = made(model).environment()
    needed = [name for name, field in model.model_fields.items() if field.is_required()]
    assert {"bucket", "table"} <= set(needed)
    for name in needed:
        with pytest.raises(ValidationError, match=name):
            model.load({key: value for key, value in environ.items() if key != PREFIX + name.upper()})


def test_given_no_environment_in_hand_when_loaded_then_the_process_own_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in made(SubmitShard).environment().items():
        monkeypatch.setenv(name, value)
    assert SubmitShard.load() == made(SubmitShard)


def test_given_only_what_is_needed_when_loaded_then_the_defaults_are_those_of_the_design() -> None:
    providers = {f"{PREFIX}{name}": "s" for name in ("OPENAI_SECRET", "GEMINI_SECRET", "BEDROCK_ROLE_ARN")}
    base = {f"{PREFIX}BUCKET": "b", f"{PREFIX}TABLE": "t", **providers}
    submit = SubmitShard.load(base)
    assert (submit.settle_window_s, submit.create_within_s, submit.unknown_wait_s) == (900, 60, 30)
    assert PollShard.load(base).max_wait_s == 600


def test_given_a_number_that_is_none_when_loaded_then_it_is_refused() -> None:
    environ = {**made(SubmitShard).environment(), f"{PREFIX}SETTLE_WINDOW_S": "soon"}
    with pytest.raises(ValidationError, match="settle_window_s"):
        SubmitShard.load(environ)


def test_given_settings_when_somebody_changes_or_adds_to_them_then_it_is_refused() -> None:
    one = made(PollShard)
    with pytest.raises(ValidationError, match="frozen"):
        one.bucket = "other"
    with pytest.raises(ValidationError, match="extra"):
        PollShard(**{**one.model_dump(), "other": "x"})


def test_given_the_functions_when_listed_then_every_model_with_a_name_is_there_once() -> None:
    named = {
        model
        for model in vars(settings).values()
        if isinstance(model, type) and issubclass(model, settings.Settings) and model.function
    }
    assert named == set(FUNCTIONS)
    assert len({model.function for model in FUNCTIONS}) == len(FUNCTIONS)
