"""The table of sampling parameters, held against the providers' own SDKs."""

import pytest
from google.genai.types import EmbedContentConfig, GenerateContentConfig
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from tallybatch.domain.parameters import ENDPOINT_LACKS, KNOWN, OWNED

REQUEST_TYPES = {
    "/v1/responses": ResponseCreateParamsBase,
    "/v1/chat/completions": CompletionCreateParamsBase,
    "/v1/embeddings": EmbeddingCreateParams,
    "generateContent": GenerateContentConfig,
    "embedContent": EmbedContentConfig,
}
ELSEWHERE = {
    "/v1/responses": {"reasoning_effort": "reasoning", "verbosity": "text"},
    "/v1/chat/completions": {"max_output_tokens": "max_completion_tokens"},
    "/v1/embeddings": {},
    "generateContent": {
        "stop": "stop_sequences",
        "reasoning_effort": "thinking_config",
        "thinking_budget": "thinking_config",
    },
    "embedContent": {"dimensions": "output_dimensionality"},
}
"""Our name to the field of the request that carries it."""


@pytest.mark.parametrize("endpoint", sorted(REQUEST_TYPES))
def test_given_an_endpoint_when_a_known_parameter_is_allowed_then_its_request_type_has_it(endpoint: str) -> None:
    fields = set(REQUEST_TYPES[endpoint].__annotations__)

    has = {name for name in KNOWN if ELSEWHERE[endpoint].get(name, name) in fields}

    assert KNOWN - ENDPOINT_LACKS[endpoint] == has


def test_given_the_names_that_the_spec_owns_when_compared_then_none_is_a_parameter() -> None:
    assert not KNOWN & OWNED.keys()
