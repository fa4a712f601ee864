"""Sampling parameters of a spec: the known ones with their types, and which of them an endpoint has.

A parameter that is not listed goes to the provider as written, so that a new one can be used the day it appears.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError


def _stop_list(value: Any) -> Any:
    """One sequence may be written without brackets."""
    sequences = [value] if isinstance(value, str) else value
    if not isinstance(sequences, list) or not 1 <= len(sequences) <= 4 or not all(_is_text(s) for s in sequences):
        raise PydanticCustomError("stop", "must be a text or a list of 1 to 4 texts, none of them empty")
    return sequences


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


class Generation(BaseModel):
    """Values and bounds as in OpenAI's API reference; a provider's own names are the adapter's matter."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    max_output_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        default=None, description="Tokens of an answer at most, reasoning included. Default: the model's own limit."
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, description="Sampling temperature, 0 to 2; reasoning models refuse it. Default: the provider's."
    )
    top_p: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="Nucleus sampling, 0 to 1. Default: the provider's."
    )
    top_k: Annotated[int, Field(ge=1, le=1_000)] | None = Field(
        default=None, description="Sample from so many of the likeliest tokens (gemini). Default: the model's."
    )
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = Field(
        default=None, description="Seed for repeatable sampling (chat completions, gemini). Default: none."
    )
    stop: Annotated[list[str], BeforeValidator(_stop_list, json_schema_input_type=str | list[str])] | None = Field(
        default=None, description="1 to 4 sequences that end an answer (chat completions, gemini). Default: none."
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        default=None, description="How much a reasoning model thinks. Default: the model's."
    )
    thinking_budget: Annotated[int, Field(ge=-1, le=1_000_000)] | None = Field(
        default=None,
        description="Tokens for thinking (gemini); 0 is none, -1 leaves it to the model. Default: the model's.",
    )
    verbosity: Literal["low", "medium", "high"] | None = Field(
        default=None, description="How long answers are. Default: the model's."
    )
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = Field(
        default=None, description="-2 to 2 (chat completions). Default: the provider's."
    )
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = Field(
        default=None, description="-2 to 2 (chat completions). Default: the provider's."
    )
    tools: list[dict[str, Any]] | None = Field(
        default=None, description="Tool definitions as the provider takes them. Default: none."
    )
    dimensions: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None, description="Length of an embedding vector (embeddings). Default: the model's."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description="How vectors are written (embeddings). Default: float."
    )
    user: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="Stable identifier of the end user, for the provider. Default: none."
    )

    def written(self) -> dict[str, Any]:
        """The parameters of the file; a known one that is null counts as not written."""
        known = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in known.items() if value is not None} | (self.model_extra or {})


KNOWN = frozenset(Generation.model_fields)
_VECTORS = frozenset({"dimensions", "encoding_format"})
_THINKS_ELSEWHERE = frozenset({"top_k", "thinking_budget"})

ENDPOINT_LACKS: Mapping[str, frozenset[str]] = {
    "/v1/responses": frozenset({"seed", "stop", "frequency_penalty", "presence_penalty"})
    | _VECTORS
    | _THINKS_ELSEWHERE,
    "/v1/chat/completions": _VECTORS | _THINKS_ELSEWHERE,
    "/v1/embeddings": KNOWN - {"dimensions", "encoding_format", "user"},
    "generateContent": frozenset({"verbosity", "user"}) | _VECTORS,
    "embedContent": KNOWN - {"dimensions"},
    "Converse": KNOWN - {"max_output_tokens", "temperature", "top_p", "stop", "tools"},
    "InvokeModel": KNOWN - {"max_output_tokens", "temperature", "top_p", "stop", "tools"},
    "InvokeModel embeddings": KNOWN - {"dimensions"},
}
"""Known parameters that an endpoint refuses, each time and for each record. Sources: request types of the OpenAI and
Google SDKs; Bedrock's InferenceConfiguration (botocore, bedrock-runtime) and the families' request bodies. `tools` has
a rule of its own."""

OWNED: Mapping[str, str] = {
    "model": "it is the spec's `model`",
    "input": "it comes from `prompt.user`",
    "messages": "they come from `prompt`",
    "instructions": "they come from `prompt.system`",
    "prompt": "it is the spec's `prompt`",
    "response_format": "it comes from `output.schema`",
    "text": "its format comes from `output.schema`; write `verbosity` for the rest",
    "reasoning": "write `reasoning_effort`",
    "max_tokens": "write `max_output_tokens`",
    "max_completion_tokens": "write `max_output_tokens`",
    "stream": "a batch has no stream",
    "stream_options": "a batch has no stream",
    "background": "a batch is in the background",
    "n": "a record has exactly one answer",
    "previous_response_id": "each record stands for itself",
    "conversation": "each record stands for itself",
    "contents": "they come from `prompt`",
    "content": "it comes from `prompt.user`",
    "systemInstruction": "it comes from `prompt.system`",
    "generationConfig": "write its settings one by one",
    "maxOutputTokens": "write `max_output_tokens`",
    "stopSequences": "write `stop`",
    "thinkingConfig": "write `reasoning_effort` or `thinking_budget`",
    "responseMimeType": "it comes from `output.schema`",
    "responseSchema": "it comes from `output.schema`",
    "responseJsonSchema": "it comes from `output.schema`",
    "candidateCount": "a record has exactly one answer",
    "outputDimensionality": "write `dimensions`",
}
"""Names that would override what the spec says elsewhere, and where it says it."""
