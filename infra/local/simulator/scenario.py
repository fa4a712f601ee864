"""The scenario: how fast, how large and how badly the simulated providers behave. One YAML format for all of them."""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tallybatch.domain.errors import BadInput, Problem

SCENARIOS_DIR = Path(__file__).parent / "scenarios"
DAY_S = 86_400

ProviderName = Literal["any", "openai", "bedrock", "gemini"]
Call = Literal["create", "upload", "get", "list", "content", "cancel", "delete", "file_get", "file_list", "sync"]


class RecordFault(StrEnum):
    """What can happen to one record. The first group changes the answer itself and also hits synchronous calls."""

    ERROR_400 = "error_400"
    ERROR_429 = "error_429"
    ERROR_500 = "error_500"
    ERROR_503 = "error_503"
    ERROR_IN_BODY = "error_in_body"
    REFUSAL = "refusal"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    BAD_JSON = "bad_json"
    BAD_SCHEMA = "bad_schema"
    FENCED_JSON = "fenced_json"
    WRONG_MODEL = "wrong_model"
    U2028 = "u2028"
    CACHED_PROMPT = "cached_prompt"
    THINKING = "thinking"
    LONG_PROMPT = "long_prompt"

    MISSING = "missing"
    STATUS_ZERO = "status_zero"
    NULL_RESPONSE = "null_response"
    BODY_AS_STRING = "body_as_string"
    NO_ERROR_KEY = "no_error_key"
    DUPLICATE_SAME = "duplicate_same"
    DUPLICATE_DIFFERENT = "duplicate_different"
    SUCCESS_AND_ERROR = "success_and_error"
    UNKNOWN_ID = "unknown_id"
    SWAPPED_ID = "swapped_id"
    GARBAGE_LINE = "garbage_line"
    TRUNCATED_LAST_LINE = "truncated_last_line"
    CRLF = "crlf"
    BLANK_LINES = "blank_lines"
    BOM = "bom"


ANSWER_FAULTS = frozenset(list(RecordFault)[: list(RecordFault).index(RecordFault.MISSING)])
"""Those that change the answer itself, so that a synchronous call can have them too."""

CALL_FAULTS: dict[str, str] = {
    "lost_reply": "",
    "drop_before": "",
    "reply_500_after": "",
    "status": "int",
    "delay_s": "float",
    "late_reply_s": "float",
    "cut_body": "",
    "garbled_body": "",
    "empty_page": "",
    "strangers": "int",
}
JOB_FAULTS: dict[str, str] = {
    "none": "",
    "fail_validation": "str",
    "expire": "",
    "cancel": "",
    "stuck": "",
    "vanish": "",
    "unknown_state": "",
    "backwards": "",
    "only_error_file": "optional",
    "empty_string_ids": "",
    "wrong_counts": "",
    "results_gone": "",
    "invisible_in_list_for_s": "float",
    "content_404_for_s": "float",
}
"""Each fault's argument, written `name:argument`."""


def split_fault(text: str) -> tuple[str, str]:
    """`fail_validation:empty_file` -> (`fail_validation`, `empty_file`)."""
    name, _, argument = text.partition(":")
    return name.strip(), argument.strip()


def _checked(known: dict[str, str]) -> AfterValidator:
    def check(text: str) -> str:
        name, argument = split_fault(text)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            raise ValueError(f"no such fault {name!r}{hint}")
        wanted = known[name]
        if wanted == "" and argument:
            raise ValueError(f"fault {name!r} takes no argument")
        if wanted in ("int", "float", "str") and not argument:
            raise ValueError(f"fault {name!r} needs an argument: write {name}:VALUE")
        if wanted in ("int", "float"):
            try:
                int(argument) if wanted == "int" else float(argument)
            except ValueError:
                raise ValueError(f"fault {name!r} needs a number, not {argument!r}") from None
        if name == "only_error_file" and argument and argument not in set(RecordFault):
            raise ValueError(f"fault {name!r} takes a record fault, not {argument!r}")
        return text

    return AfterValidator(check)


class _Loader(yaml.SafeLoader):
    """YAML as people write it today: `on` is a key, not a boolean; a key that occurs twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} occurs twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Durations(_Strict):
    """Virtual seconds that a job spends in each state."""

    validating: float = Field(default=0.5, ge=0)
    in_progress: float = Field(default=1.5, ge=0)
    finalizing: float = Field(default=0.3, ge=0)
    cancelling: float = Field(default=0.2, ge=0)


class RecordRule(_Strict):
    """Chosen by a hash of the record's body and the seed, so that the same content always has the same fate."""

    provider: ProviderName = "any"
    fault: RecordFault
    rate: float = Field(default=1.0, ge=0, le=1)
    times: Annotated[int, Field(ge=1)] | Literal["always"] = 1
    """How often one content is hit: with 1, a retry of the record succeeds."""
    contains: str = ""
    """Only records whose body holds this text."""


class _Occurrence(_Strict):
    provider: ProviderName = "any"
    nth: int = Field(default=1, ge=1)
    """The first occurrence that is hit, 1-based, counted since the scenario was loaded."""
    count: Annotated[int, Field(ge=1)] | Literal["always"] = 1

    def hits(self, ordinal: int) -> bool:
        return ordinal >= self.nth and (self.count == "always" or ordinal < self.nth + self.count)


class CallRule(_Occurrence):
    """A fault of one HTTP call. `lost_reply`: carried out, then the connection closes without an answer.

    `delay_s` and `late_reply_s` are real seconds, before the call is carried out and between that and its answer.
    `strangers`: so many jobs of other people come into being before a list is read, so that its pages shift.
    """

    on: Call
    fault: Annotated[str, _checked(CALL_FAULTS)]
    retry_after_s: float | None = Field(default=None, ge=0)
    """Sent as `retry-after` (whole seconds) and `retry-after-ms`."""
    should_retry: bool | None = None
    """Sent as `x-should-retry`, which the OpenAI SDK obeys."""


class JobRule(_Occurrence):
    """A fault of one job, in the order of creation."""

    fault: Annotated[str, _checked(JOB_FAULTS)] = "none"
    done: float = Field(default=0.5, ge=0, le=1)
    """Share of the records that `expire`, `cancel` and `stuck` let through."""
    durations: Durations | None = None


class Quota(_Strict):
    enqueued_tokens: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Prompt tokens of all unfinished jobs, by model as asked; `*` is every other model. Unlimited if not named."""
    release_delay_s: float = Field(default=0, ge=0)
    """How long a finished job keeps its share (openai-python#2084)."""
    creates_per_hour: int = Field(default=2_000, ge=0)
    concurrent_jobs: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Bedrock: unfinished jobs at most, by model; `*` is every other model. Unlimited if not named."""
    spend_cap_tokens: int | None = Field(default=None, ge=0)
    """Billed tokens after which validation ends with `billing_hard_limit_reached`."""


class Limits(_Strict):
    max_requests: int = Field(default=50_000, ge=1)
    max_embedding_inputs: int = Field(default=50_000, ge=1)
    max_file_bytes: int = Field(default=200_000_000, ge=1)
    min_records: int = Field(default=100, ge=1)
    """Bedrock: records that a job must have."""
    max_bedrock_bytes: int = Field(default=1_000_000_000, ge=1)
    max_validation_errors: int = Field(default=100, ge=1)
    """How many entries `errors.data` holds at most."""


class Models(_Strict):
    resolve: dict[str, str] = {
        "gpt-5": "gpt-5-2025-08-07",
        "gpt-5-mini": "gpt-5-mini-2025-08-07",
        "gpt-5-nano": "gpt-5-nano-2025-08-07",
        "gpt-6-luna": "gpt-6-luna-2026-09-01",
    }
    """What an alias answers as; any other name answers as itself."""
    refuse: list[str] = ["no-such-*"]
    """Shell patterns of names that do not exist or have no batch access."""


class GeminiOptions(_Strict):
    """What only Gemini has."""

    window_s: float = Field(default=2 * DAY_S, gt=0)
    """A job that is pending or running for longer expires, without any result."""
    concurrent_jobs: int = Field(default=100, ge=0)
    storage_bytes: int = Field(default=20_000_000_000, ge=0)
    max_file_bytes: int = Field(default=2_000_000_000, ge=1)
    mime_types: list[str] = ["jsonl", "application/jsonl", "application/json", "text/plain"]
    """What an upload may be called (googleapis/python-genai#1547: the documented `jsonl` is refused at times)."""
    upload_error_bodies: int = Field(default=0, ge=0)
    """The first so many uploads are answered with HTTP 200 and an `error` (googleapis/python-genai#1248)."""
    list_needs_page_size: bool = False
    """A list without `pageSize` is empty (googleapis/python-genai#1250)."""
    cancelled_output: bool = True
    """Whether a cancelled job leaves a file of what it had done; else that is lost, and not billed."""
    inline_metadata: bool = True
    """Whether inline results carry the key of their request (googleapis/python-genai#1886)."""


class Scenario(_Strict):
    name: str
    description: str = ""
    seed: int = 1
    durations: Durations = Durations()
    window_s: float = Field(default=DAY_S, gt=0)
    """The completion window: a job that is not done by then expires."""
    input_files_live_s: float = Field(default=30 * DAY_S, gt=0)
    output_files_live_s: float = Field(default=30 * DAY_S, gt=0)
    cancelled_rows: Literal["absent", "error_line"] = "absent"
    """Whether rows that a cancel left undone appear in the error file as `batch_cancelled`."""
    records: list[RecordRule] = []
    calls: list[CallRule] = []
    jobs: list[JobRule] = []
    quota: Quota = Quota()
    limits: Limits = Limits()
    models: Models = Models()
    gemini: GeminiOptions = GeminiOptions()


def scenario_names() -> list[str]:
    """Those that are shipped."""
    return sorted(path.stem for path in SCENARIOS_DIR.glob("*.yaml"))


def load_scenario(path_or_name: str) -> Scenario:
    """A shipped scenario by name, or a file by path. Raises `BadInput`."""
    path = Path(path_or_name)
    if path.suffix not in (".yaml", ".yml"):
        if path_or_name not in scenario_names():
            raise BadInput(
                f"no scenario named {path_or_name!r}",
                where="scenario",
                do=f"use one of {', '.join(scenario_names())}, or the path of a .yaml file",
            )
        path = SCENARIOS_DIR / f"{path_or_name}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("the scenario cannot be read", [Problem(str(error))], where=str(path)) from error
    return parse_scenario(text, source=str(path))


def parse_scenario(text: str, *, source: str) -> Scenario:
    """Raises `BadInput`, which names `source` and each offending key."""
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise BadInput("the scenario is not YAML", [Problem(" ".join(str(error).split()))], where=source) from error
    if not isinstance(document, dict):
        raise BadInput("a scenario is a mapping of keys", where=source, do="see the shipped scenarios")
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        raise BadInput("the scenario is refused", [_problem(item) for item in error.errors()], where=source) from error


def _problem(item: Any) -> Problem:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(item["loc"][-1]), _KEYS, n=1)
        return Problem("unknown key" + (f"; did you mean {near[0]!r}?" if near else ""), key=key, code="unknown_key")
    return Problem(str(item["msg"]).removeprefix("Value error, "), key=key)


_MODELS: tuple[type[BaseModel], ...] = (
    *(Scenario, Durations, RecordRule, CallRule, JobRule, Quota, Limits, Models),
    GeminiOptions,
)
_KEYS = sorted({name for model in _MODELS for name in model.model_fields})
