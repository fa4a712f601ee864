"""The spec: what a job is to do, one frozen model per section. `spec_file` reads it; everything later trusts it.

Attribute names are the keys of the file. Field descriptions are the reference: they appear in the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, Strict, StringConstraints, model_validator
from pydantic_core import CoreSchema, core_schema

from tallybatch.domain import identity as ids
from tallybatch.domain.bedrock_models import is_embedding_model
from tallybatch.domain.parameters import Generation
from tallybatch.domain.spec_quality import FieldName, Quality, Share
from tallybatch.domain.spec_sections import (
    Owner,
    Retention,
    Retry,
    Review,
    Section,
)
from tallybatch.domain.units import DurationBetween, SizeBetween, UsdBetween

LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MODEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}$"

MAX_RECORDS = 50_000
"""Requests in one provider job, the same for OpenAI (batch guide) and Bedrock (Service Quotas, records per job)."""
MAX_BYTES: Mapping[str, int] = {"openai": 200_000_000, "bedrock": 1_000_000_000, "gemini": 2_000_000_000}
"""Bytes of one request file by provider. Sources: OpenAI batch guide (that MB means 10^6 was observed in
bespokelabsai/curator#113); Bedrock, Service Quotas, "Batch inference input file size"; Gemini's Batch guide, "2 GB"."""
MIN_RECORDS: Mapping[str, int] = {"bedrock": 100}
"""Records that a provider job must have, where there is a minimum. Source: Bedrock, Service Quotas, "Minimum number of
records per batch inference job", the usual default; it differs by model and region."""

ENDPOINTS: Mapping[str, tuple[str, ...]] = {
    "openai": ("/v1/responses", "/v1/chat/completions", "/v1/embeddings"),
    "bedrock": ("Converse", "InvokeModel"),
    "gemini": ("generateContent", "embedContent"),
}
"""By provider; the first is the default. Bedrock's are its `modelInvocationType`s."""
EMBEDDING_ENDPOINTS = frozenset({"/v1/embeddings", "embedContent"})
"""Those that have no other use; Bedrock's InvokeModel has, see `Spec.is_embedding`."""

NATIVE_LABEL = "native"
NATIVE_KEYS: Mapping[str, str] = {"openai": "custom_id", "bedrock": "recordId", "gemini": "key"}
"""The field of a native line that is its own id, by format."""

Label = Annotated[str, StringConstraints(pattern=LABEL_PATTERN)]
ModelName = Annotated[str, StringConstraints(pattern=MODEL_PATTERN)]
Provider = Literal["openai", "bedrock", "gemini"]
Endpoint = Literal[
    "/v1/responses",
    "/v1/chat/completions",
    "/v1/embeddings",
    "Converse",
    "InvokeModel",
    "generateContent",
    "embedContent",
]


class _Parameters:
    """Validated as `Generation`, kept as the mapping of those parameters that were written."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            Generation.written,
            handler.generate_schema(Generation),
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )


def _drop_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _derived(description: str) -> Any:
    """A field that is "" until `spec_file` fills in what the description says."""
    return Field(default="", description=description, json_schema_extra=_drop_default)


class Input(Section):
    format: Literal["records", "openai", "bedrock", "gemini"] = Field(
        default="records",
        description="Shape of the input lines: `records` is one JSON object a line, rendered through the prompt; the "
        "others are native batch files, sent as they are with their own id as business key. Default: records.",
    )
    key: FieldName = Field(
        default="id",
        description="Field (or JSON pointer such as /meta/id) of the business key. Default: id; in a native file its "
        "own id (openai: custom_id, bedrock: recordId, gemini: key), and nothing else.",
    )
    source_version: FieldName | None = Field(
        default=None,
        description="Field (or JSON pointer) that tells versions of one record apart. Default: none, the digest of the "
        "used fields is taken.",
    )
    fields: Annotated[tuple[FieldName, ...], Strict(False)] = Field(
        default=(),
        description="Top-level fields that may leave the account; all that the template uses must be among them. "
        "Default: those that the template uses, in alphabetical order.",
        json_schema_extra=_drop_default,
    )
    data_class: Literal["public", "internal", "confidential", "restricted"] = Field(
        default="internal", description="Sensitivity of the data, recorded in the manifest. Default: internal."
    )
    redact: Annotated[tuple[Literal["email", "phone", "card"], ...], Strict(False)] = Field(
        default=(), description="Kinds of personal data to remove before a record leaves. Default: none."
    )
    on_bad_line: Literal["reject", "quarantine"] = Field(
        default="reject",
        description="One bad line refuses the whole file (`reject`), or only itself (`quarantine`). Default: reject.",
    )


class Prompt(Section):
    version: Label = Field(
        default="v1",
        description="Label of the prompt. It is bound to the prompt's content: the same label with other content is "
        "another version. Default: v1.",
    )
    system: str = Field(default="", description="System prompt, sent as it is. Default: none.")
    user: Annotated[str, StringConstraints(min_length=1)] = Field(
        description="MiniJinja template of the user message (for embeddings: of the text), strict: an undefined "
        "variable is an error. Variables are the record's top-level fields."
    )


class Output(Section):
    schema_version: Label = _derived(
        "Label of the answer's form, part of record_key. Default: `text`, or `schema-` and 12 characters of the "
        "schema's digest when there is a schema."
    )
    compression: Literal["none", "gzip"] = Field(
        default="none", description="Of the published results. Default: none (plain JSONL)."
    )
    schema_: dict[str, Any] | None = Field(
        default=None,
        alias="schema",
        description="JSON Schema of an object (draft 2020-12, no remote references) that each answer must satisfy. "
        "Default: none, answers are text.",
    )


class Target(Section):
    """A further provider and model."""

    provider: Provider = Field(description="Provider to fall back to; it may be the same with another model.")
    model: ModelName = Field(description="Exact model version there, or a key of `aliases`.")
    endpoint: Endpoint | None = Field(
        default=None,
        description="What each request calls there. Default: the spec's own endpoint at the same provider, else the "
        "provider's first.",
    )


class Canary(Section):
    records: Annotated[int, Field(ge=1, le=MAX_RECORDS)] = Field(
        description="Size of the sample that is tried first; raised to what the provider takes at least. A job that is "
        "hardly larger has no canary."
    )
    min_acceptance: Share = Field(default=0.9, description="Share of it that must be accepted, 0 to 1. Default: 0.9.")
    approval: Literal["auto", "manual"] = Field(
        default="auto",
        description="What lets the rest go once the canary has passed: its figures (`auto`), or a person with "
        "`tallybatch approve` (`manual`). Default: auto.",
    )
    approval_timeout: Annotated[timedelta, DurationBetween("1m", "7d")] = Field(
        default=timedelta(hours=24),
        description="How long a person may take, limits.deadline permitting; then the job ends EXPIRED. Default: 24h.",
    )
    strata: Annotated[tuple[FieldName, ...], Strict(False)] = Field(
        default=(),
        description="Fields (of `input.fields`) whose values must all be represented in the sample, beside size and "
        "script of the records. Default: none.",
    )


class Shards(Section):
    max_records: Annotated[int, Field(ge=1, le=MAX_RECORDS)] = Field(
        default=10_000, description="Records of one shard at most. Default: 10000; the provider takes 50000."
    )
    max_bytes: Annotated[int, SizeBetween("1KB", "2GB")] = Field(
        default=100_000_000,
        description="Bytes of one request file at most. Default: 100MB; OpenAI takes 200MB, Bedrock 1GB, Gemini 2GB.",
    )
    max_parallel: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=4, description="Shards in flight at once. Default: 4."
    )


class Limits(Section):
    max_cost_usd: Annotated[Decimal, UsdBetween("0", "1000000")] | None = Field(
        default=None,
        description="Dollars the job may cost at most: a file whose worst case is above that is refused before "
        "anything is spent. Default: no limit.",
    )
    max_cost_per_record_usd: Annotated[Decimal, UsdBetween("0", "1000")] | None = Field(
        default=None,
        description="Dollars that one record may cost over all attempts: it is tried again only while a further try "
        "like those before stays within. Default: no limit.",
    )
    allow_unpriced: bool = Field(
        default=False,
        description="Whether a model that no list has a price for may be used; what it costs is then unknown and "
        "counted. Default: false, the file is refused.",
    )
    max_tokens_per_record: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Tokens (input and output) that one record may use over all attempts: it is tried again only while "
        "a further try like those before stays within. Default: no limit.",
    )
    deadline: Annotated[timedelta, DurationBetween("1m", "7d")] = Field(
        default=timedelta(hours=48), description="After this long the job ends with what it has. Default: 48h."
    )
    priority: Literal["low", "normal", "high"] = Field(
        default="normal", description="Order in which jobs of one pool get quota. Default: normal."
    )


class Spec(Section):
    """One spec file. Made by `spec_file.parse_spec`, which also fills in the defaults that depend on other keys."""

    model_config = ConfigDict(title="Tallybatch spec")

    name: Label = Field(description="Name of the spec; with the tenant, its place in the inbox and the results.")
    purpose: Label = _derived(
        "What the answers are for; part of record_key, so that one purpose's answer never stands in for another's. "
        "Default: the spec's name."
    )
    provider: Provider = Field(description="Whose batch API runs the job.")
    model: ModelName = Field(description="An exact model version, or a key of `aliases`.")
    endpoint: Endpoint = Field(
        default="/v1/responses",
        description="What each request calls; openai: /v1/responses, /v1/chat/completions, /v1/embeddings; bedrock: "
        "Converse, InvokeModel; gemini: generateContent, embedContent. Default: the provider's first; for Bedrock's "
        "embedding models InvokeModel.",
        json_schema_extra=_drop_default,
    )
    lane: Literal["batch", "on_demand"] = Field(
        default="batch",
        description="`batch`: provider jobs; `on_demand`: one call per record at the full price, for models that take "
        "no batches. Default: batch.",
    )
    aliases: dict[ModelName, ModelName] = Field(
        default={}, description="Model names that stand for an exact version. Default: none."
    )
    input: Input = Field(default=Input(), description="What the input lines look like, and what of them is used.")
    prompt: Prompt | None = Field(
        default=None,
        description="What each record is asked. Required, except for a native file, which has its own. Default: none.",
    )
    generation: Annotated[Mapping[str, Any], _Parameters()] = Field(
        default={}, description="Sampling parameters. Default: none, the provider's own defaults apply."
    )
    output: Output = Field(default=Output(), description="What an answer must look like, and how results are written.")
    quality: Quality = Field(default=Quality(), description="Checks on answers beyond their schema.")
    retry: Retry = Field(default=Retry(), description="What happens to records without an accepted answer.")
    review: Review = Field(default=Review(), description="Which records people decide about.")
    fallback: Annotated[tuple[Target, ...], Strict(False)] = Field(
        default=(),
        description="Other providers and models, in order, for records that would else fail: each record whose tries "
        "(retry.max_attempts at each target) are used up without an answer, or without one that passes its checks, and "
        "each that is refused. Default: none.",
    )
    canary: Canary | None = Field(default=None, description="A small first run. Default: none.")
    shards: Shards = Field(default=Shards(), description="How a file is cut into provider jobs.")
    limits: Limits = Field(default=Limits(), description="Money and time.")
    retention: Retention = Field(default=Retention(), description="How long each class of object is kept.")
    owner: Owner = Field(default=Owner(), description="For the manifest and the bill.")

    @model_validator(mode="before")
    @classmethod
    def _default_endpoint(cls, data: Any) -> Any:
        """Each provider has its own."""
        if not isinstance(data, dict) or "endpoint" in data or str(data.get("provider")) not in ENDPOINTS:
            return data
        provider, model, aliases = str(data["provider"]), data.get("model"), data.get("aliases")
        resolved = aliases.get(model, model) if isinstance(aliases, dict) and isinstance(model, str) else model
        embeds = provider == "bedrock" and isinstance(resolved, str) and is_embedding_model(resolved)
        return {**data, "endpoint": "InvokeModel" if embeds else ENDPOINTS[provider][0]}

    @property
    def is_embedding(self) -> bool:
        """Whether an answer is a vector."""
        if self.provider == "bedrock":
            return is_embedding_model(self.model_resolved)
        return self.endpoint in EMBEDDING_ENDPOINTS

    @property
    def is_native(self) -> bool:
        """Whether the input is a native batch file, whose requests are sent as they are."""
        return self.input.format != "records"

    @property
    def model_resolved(self) -> str:
        return self.aliases.get(self.model, self.model)

    @property
    def place(self) -> tuple[str, str]:
        """Provider and model, as resolved."""
        return self.provider, self.model_resolved

    @property
    def targets(self) -> tuple[Spec, ...]:
        """The spec as it is at each provider and model that a record may go to, in order; its own comes first."""
        return (self, *(self.at(target) for target in self.fallback))

    def at(self, target: Target) -> Spec:
        """The same prompt, settings, schema and checks at another provider or model. Its `identity` gives the
        record_key of an answer from there; record_ids and job_key are those of the spec itself."""
        own = self.endpoint if target.provider == self.provider else ENDPOINTS[target.provider][0]
        place = {"provider": target.provider, "model": target.model, "endpoint": target.endpoint or own}
        return self.model_copy(update=place)

    @property
    def system_digest(self) -> str:
        """SHA-256 of the system prompt's UTF-8 bytes, "" if there is none."""
        return ids.sha256_hex(self.prompt.system.encode()) if self.prompt and self.prompt.system else ""

    @property
    def prompt_content_digest(self) -> str:
        """Over (system, user); a native file has no prompt of ours, and a constant digest."""
        return ids.digest(self.prompt.system, self.prompt.user) if self.prompt else ids.digest(NATIVE_LABEL)

    @property
    def prompt_version(self) -> str:
        """`label@16 hex characters`."""
        label = self.prompt.version if self.prompt else NATIVE_LABEL
        return ids.prompt_version(label, self.prompt_content_digest)

    @property
    def tool_schema_digest(self) -> str:
        """ "" if there are no tools."""
        tools = self.generation.get("tools")
        return ids.settings_digest({"tools": tools}) if tools else ""

    @property
    def schema_digest(self) -> str:
        """ "" if there is no output schema."""
        return ids.settings_digest(self.output.schema_) if self.output.schema_ is not None else ""

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """All that shapes an answer but the prompt and the model."""
        parameters = {key: value for key, value in self.generation.items() if key != "tools"}
        return {
            "provider": self.provider,
            "endpoint": self.endpoint,
            "parameters": parameters,
            "tools": self.generation.get("tools") or [],
            "output_schema": self.output.schema_,
        }

    @property
    def generation_config_hash(self) -> str:
        return ids.settings_digest(self.generation_config)

    @property
    def model_config_version(self) -> str:
        return ids.digest(self.model_resolved, self.generation_config_hash)

    def identity(self, tenant: str) -> ids.RecordIdentity:
        """What the records of a job of `tenant` under this spec share."""
        return ids.RecordIdentity(
            tenant=tenant,
            purpose=self.purpose,
            prompt_version=self.prompt_version,
            model_config_version=self.model_config_version,
            schema_version=self.output.schema_version,
            model_resolved=self.model_resolved,
        )
