"""Each target of a spec must take its prompt, settings and schema: what it would refuse is a fault of the spec."""

import pytest
import yaml

from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_file import parse_spec, resolved

BASE = "name: genre\nprovider: openai\nmodel: gpt-5-mini-2025-08-07\nprompt: {user: '{{ title }}'}\n"
NOVA = "{provider: bedrock, model: 'amazon.nova-lite-v1:0'}"


def spec_of(text: str) -> Spec:
    return parse_spec((BASE + text).encode())


def problems_of(text: str, base: str = BASE) -> list[Problem]:
    with pytest.raises(BadInput) as caught:
        parse_spec((base + text).encode(), file="genre.yaml")
    return list(caught.value.problems)


def test_given_a_fallback_when_read_then_each_target_has_its_endpoint_and_all_else_is_the_specs() -> None:
    spec = spec_of(f"fallback: [{NOVA}, {{provider: openai, model: gpt-5-2025-08-07}}]\nendpoint: /v1/chat/completions")

    assert [(*there.place, there.endpoint) for there in spec.targets] == [
        ("openai", "gpt-5-mini-2025-08-07", "/v1/chat/completions"),
        ("bedrock", "amazon.nova-lite-v1:0", "Converse"),
        ("openai", "gpt-5-2025-08-07", "/v1/chat/completions"),
    ]
    keys = [there.identity("acme").record_key("00", "v") for there in spec.targets]
    assert len(set(keys)) == 3
    assert {there.prompt_version for there in spec.targets} == {spec.prompt_version}


def test_given_a_fallback_when_it_is_added_then_record_ids_job_key_and_own_record_key_stay_what_they_were() -> None:
    with_fallback, without = spec_of(f"fallback: [{NOVA}]"), spec_of("")

    assert with_fallback.model_config_version == without.model_config_version
    assert with_fallback.generation_config_hash == without.generation_config_hash
    assert with_fallback.identity("acme") == without.identity("acme")


def test_given_an_alias_in_a_fallback_when_read_then_it_is_resolved() -> None:
    spec = spec_of("fallback: [{provider: openai, model: big}]\naliases: {big: gpt-5-2025-08-07}")

    assert spec.targets[1].place == ("openai", "gpt-5-2025-08-07")


def test_given_a_spec_with_a_fallback_when_shown_resolved_then_it_reads_back_as_the_same() -> None:
    spec = spec_of(f"fallback: [{NOVA}]")

    assert parse_spec(yaml.safe_dump(resolved(spec)).encode()) == spec


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        (f"generation: {{reasoning_effort: low}}\nfallback: [{NOVA}]", "fallback[0]", "generation.reasoning_effort"),
        (f"generation: {{temperature: 1.5}}\nfallback: [{NOVA}]", "fallback[0]", "must be at most 1 on Bedrock"),
        ("fallback: [{provider: gemini, model: models/gemini-2.5-flash}]", "fallback[0]", "without `models/`"),
        ("fallback: [{provider: gemini, model: gemini-latest}]", "fallback[0].model", "name an exact version"),
        ("fallback: [{provider: openai, model: gpt-5-mini-2025-08-07}]", "fallback[0]", "is tried already"),
        (f"fallback: [{NOVA}, {NOVA}]", "fallback[1]", "is tried already"),
        (
            "fallback: [{provider: bedrock, model: 'amazon.titan-embed-text-v2:0'}]",
            "fallback[0].model",
            "gives no answers",
        ),
        ("fallback: [{provider: gemini, model: g-1, endpoint: Converse}]", "fallback[0]", "is no endpoint of gemini"),
        ("fallback: [{provider: gemini, model: g-1, endpoint: embedContent}]", "fallback[0].model", "gives no answers"),
    ],
)
def test_given_a_target_that_cannot_take_the_request_when_read_then_the_spec_is_refused(
    text: str, key: str, reason: str
) -> None:
    (problem,) = problems_of(text)

    assert problem.key == key
    assert reason in problem.reason


def test_given_a_native_file_when_it_is_to_fall_back_then_the_spec_is_refused() -> None:
    base = "name: genre\nprovider: openai\nmodel: m-1\ninput: {format: openai}\n"
    (problem,) = problems_of(f"fallback: [{NOVA}]", base)

    assert (problem.key, problem.code) == ("fallback[0]", "native")


def test_given_embeddings_when_they_are_to_fall_back_then_the_spec_is_refused() -> None:
    base = BASE + "endpoint: /v1/embeddings\n"
    (problem,) = problems_of("fallback: [{provider: openai, model: text-embedding-3-large}]", base)

    assert (problem.key, problem.code) == ("fallback[0]", "embeddings")


def test_given_a_setting_that_no_endpoint_has_when_there_is_a_fallback_then_it_is_told_once() -> None:
    (problem,) = problems_of(f"generation: {{max_tokens: 5}}\nfallback: [{NOVA}]")

    assert problem.key == "generation.max_tokens"
