"""Specs for Bedrock: defaults by model, and what the service would refuse only hours later, record by record."""

from __future__ import annotations

import pytest

from tallybatch.domain.bedrock_models import Family, family_of
from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.spec import Spec
from tallybatch.domain.spec_file import parse_spec

NOVA = "amazon.nova-lite-v1:0"
CLAUDE = "us.anthropic.claude-haiku-4-5-20251001-v1:0"
TITAN = "amazon.titan-embed-text-v2:0"
LLAMA = "meta.llama3-3-70b-instruct-v1:0"
PROFILE = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abcdefghij12"


def read(model: str, *more: str, prompt: bool = True) -> Spec:
    lines = ["name: genre", "provider: bedrock", f"model: '{model}'", *more]
    return parse_spec("\n".join([*lines, *(["prompt: {user: '{{ title }}'}"] if prompt else [])]).encode())


def problem(model: str, *more: str) -> Problem:
    with pytest.raises(BadInput) as caught:
        read(model, *more)
    (found,) = caught.value.problems
    return found


@pytest.mark.parametrize(
    ("model", "family"),
    [
        (NOVA, Family.NOVA),
        ("global.amazon.nova-2-lite-v1:0", Family.NOVA),
        ("amazon.nova-canvas-v1:0", Family.OTHER),
        ("amazon.nova-2-multimodal-embeddings-v1:0", Family.OTHER),
        (CLAUDE, Family.ANTHROPIC),
        ("arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-5", Family.ANTHROPIC),
        ("arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-pro-v1:0", Family.NOVA),
        (TITAN, Family.TITAN_EMBED),
        ("cohere.embed-v4:0", Family.COHERE_EMBED),
        ("cohere.command-r-v1:0", Family.OTHER),
        (LLAMA, Family.OTHER),
        (PROFILE, Family.OTHER),
    ],
)
def test_given_a_model_id_when_its_family_is_asked_then_prefixes_and_arns_do_not_hide_it(
    model: str, family: Family
) -> None:
    assert family_of(model) is family


@pytest.mark.parametrize(
    ("model", "endpoint", "embeds"),
    [
        (NOVA, "Converse", False),
        (CLAUDE, "Converse", False),
        (PROFILE, "Converse", False),
        (TITAN, "InvokeModel", True),
    ],
)
def test_given_no_endpoint_when_read_then_the_model_decides(model: str, endpoint: str, embeds: bool) -> None:
    spec = read(model)

    assert (spec.endpoint, spec.is_embedding) == (endpoint, embeds)


def test_given_an_alias_of_an_embedding_model_when_read_then_the_model_it_means_decides() -> None:
    spec = read("vectors", f"aliases: {{vectors: '{TITAN}'}}")

    assert (spec.endpoint, spec.is_embedding, spec.model_resolved) == ("InvokeModel", True, TITAN)


@pytest.mark.parametrize(
    ("model", "line", "key"),
    [
        (NOVA, "endpoint: /v1/responses", "endpoint"),
        (TITAN, "endpoint: Converse", "endpoint"),
        (LLAMA, "endpoint: InvokeModel", "endpoint"),
        (NOVA, "generation: {temperature: 1.5}", "generation.temperature"),
        (NOVA, "generation: {seed: 7}", "generation.seed"),
        (NOVA, "generation: {reasoning_effort: low}", "generation.reasoning_effort"),
        (NOVA, "generation: {dimensions: 256}", "generation.dimensions"),
        (TITAN, "generation: {max_output_tokens: 5}", "generation.max_output_tokens"),
        (TITAN, "output: {schema: {type: object}}", "output.schema"),
        (NOVA, "shards: {max_records: 50001}", "shards.max_records"),
        (NOVA, "shards: {max_bytes: 1001MB}", "shards.max_bytes"),
    ],
)
def test_given_what_bedrock_does_not_take_when_read_then_the_key_is_named(model: str, line: str, key: str) -> None:
    assert problem(model, line).key == key


def test_given_claude_by_its_own_body_when_it_has_no_token_cap_then_the_missing_one_is_named() -> None:
    assert "max_output_tokens" in problem(CLAUDE, "endpoint: InvokeModel").reason
    assert read(CLAUDE, "endpoint: InvokeModel", "generation: {max_output_tokens: 9}").endpoint == "InvokeModel"


def test_given_openai_when_its_endpoint_is_bedrocks_then_it_is_refused() -> None:
    with pytest.raises(BadInput, match="is no endpoint of openai"):
        parse_spec(b"name: a\nprovider: openai\nmodel: m\nendpoint: Converse\nprompt: {user: '{{ t }}'}")


def test_given_a_native_file_when_read_then_its_own_id_is_the_key_and_any_model_goes() -> None:
    spec = read(LLAMA, "endpoint: InvokeModel", "input: {format: bedrock}", prompt=False)

    assert (spec.input.key, spec.is_native) == ("recordId", True)


def test_given_a_gigabyte_per_shard_when_read_then_bedrock_takes_it() -> None:
    assert read(NOVA, "shards: {max_bytes: 1GB, max_records: 50000}").shards.max_bytes == 10**9
