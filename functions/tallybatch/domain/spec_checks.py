"""Checks on a spec that look at more than one key, or inside a value: templates, schemas, endpoints, aliases.

A check runs only if the keys it reads are sound, so that one mistake is reported once.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jsonschema_rs

from tallybatch.domain import templates
from tallybatch.domain.bedrock_models import Family, family_of
from tallybatch.domain.parameters import ENDPOINT_LACKS, KNOWN, OWNED
from tallybatch.domain.spec import ENDPOINTS, MAX_BYTES, NATIVE_KEYS, Spec
from tallybatch.domain.spec_support import NOT_SUPPORTED, unsupported
from tallybatch.domain.units import format_duration, shown

Path = tuple[str | int, ...]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_SCHEMA_PATH: Path = ("output", "schema")
_USER: Path = ("prompt", "user")
_JSON_TYPES = ["array", "boolean", "integer", "null", "number", "object", "string"]
_FLOATING = re.compile(r"(^|[-:/.])latest$", re.IGNORECASE)
_POINTER = re.compile(r"(/([^~/]|~[01])*)+")


@dataclass(frozen=True, slots=True)
class Finding:
    """`text_line` is the 1-based line within the text at `path`, 0 if the text as a whole is meant."""

    path: Path
    reason: str
    code: str
    text_line: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    reads: tuple[Path, ...]
    run: Callable[[Spec], Iterator[Finding]]


def nearest(word: str, valid: list[str]) -> str:
    """`; did you mean 'shards'?`, or "" if nothing is near."""
    by_lower = {name.lower(): name for name in valid}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean '{by_lower[close[0]]}'?" if close else ""


def _supported(spec: Spec) -> Iterator[Finding]:
    for path, reason in unsupported(spec):
        yield Finding(path, reason, NOT_SUPPORTED)


def _exact_model(spec: Spec) -> Iterator[Finding]:
    what = "moves to another model without notice"
    if spec.model not in spec.aliases and _FLOATING.search(spec.model):
        reason = f"'{spec.model}' {what}; name an exact version, or list it under `aliases` with the version it means"
        yield Finding(("model",), reason, "model_not_exact")
    for alias, target in spec.aliases.items():
        path = ("aliases", alias)
        if target in spec.aliases:
            yield Finding(path, f"'{target}' is an alias itself; name an exact version", "model_not_exact")
        elif _FLOATING.search(target):
            yield Finding(path, f"'{target}' {what}; name an exact version", "model_not_exact")


def _pointers(spec: Spec) -> Iterator[Finding]:
    for name, value in (("key", spec.input.key), ("source_version", spec.input.source_version)):
        if value and value.startswith("/") and not _POINTER.fullmatch(value):
            reason = f"{shown(value)} is not a JSON pointer; `~` is written `~0`, and `/` inside a name `~1`"
            yield Finding(("input", name), reason, "pointer")


def _native(spec: Spec) -> Iterator[Finding]:
    """A native line is a whole request; whatever the spec said about one would be ignored."""
    if not spec.is_native:
        return
    form, given = spec.input.format, spec.input
    own = NATIVE_KEYS.get(form, "")
    if form != spec.provider:
        reason = f"a native {form} file needs provider {form}, not {spec.provider}"
        yield Finding(("input", "format"), reason, "native")
    why = "not allowed with a native file, whose lines are whole requests; remove it"
    if spec.prompt is not None:
        yield Finding(("prompt",), why, "native")
    if given.fields:
        yield Finding(("input", "fields"), why, "native")
    if given.source_version is not None:
        yield Finding(("input", "source_version"), why, "native")
    if "key" in given.model_fields_set and given.key != own:
        yield Finding(("input", "key"), f"the key of a native file is its own id ({own}); remove it", "native")
    for name in spec.generation:
        yield Finding(("generation", name), why, "native")


def _prompt(spec: Spec) -> Iterator[Finding]:
    if spec.is_native:
        return
    if spec.prompt is None:
        yield Finding(_USER, "is required, unless input.format is a native one", "missing")
        return
    broken = templates.faults(spec.prompt.user)
    for fault in broken:
        yield Finding(_USER, fault.reason, "template", fault.line)
    if broken:
        return
    used = templates.variables(spec.prompt.user)
    if not used:
        yield Finding(_USER, "uses no field of the record, so each record would get the same answer", "template")
    known = templates.variables(spec.prompt.system) & (used | set(spec.input.fields))
    for name in sorted(known):
        reason = f"is sent as it is, `{{{{ {name} }}}}` would not be filled in; move it to prompt.user"
        yield Finding(("prompt", "system"), reason, "template", templates.line_of(spec.prompt.system, name))


def _listed_once(spec: Spec) -> Iterator[Finding]:
    fields = spec.input.fields
    for i, name in enumerate(fields):
        if name in fields[:i]:
            yield Finding(("input", "fields", i), f"'{name}' is listed twice", "fields")


def _fields(spec: Spec) -> Iterator[Finding]:
    """The template may use only what may leave the account."""
    fields = list(spec.input.fields)
    if spec.prompt is None or not fields:
        return
    for name in sorted(templates.variables(spec.prompt.user) - set(fields)):
        reason = f"uses '{name}', which is not in input.fields{nearest(name, fields)}"
        yield Finding(_USER, reason, "fields", templates.line_of(spec.prompt.user, name))


def _bedrock(spec: Spec) -> Iterator[Finding]:
    """What Bedrock would refuse on each record, hours later: its validation does not look into `modelInput`."""
    if spec.provider != "bedrock" or spec.endpoint not in ENDPOINTS["bedrock"]:
        return
    family = family_of(spec.model_resolved)
    if spec.is_embedding and spec.endpoint == "Converse":
        yield Finding(("endpoint",), "an embedding model has no conversation; write InvokeModel", "endpoint")
    elif spec.is_native:
        return
    elif family is Family.OTHER and spec.endpoint == "InvokeModel":
        reason = f"the request body of '{spec.model_resolved}' is not known; write Converse, or drop a native file"
        yield Finding(("endpoint",), reason, "endpoint")
    elif family is Family.ANTHROPIC and spec.endpoint == "InvokeModel" and "max_output_tokens" not in spec.generation:
        yield Finding(("generation",), "Claude's own body needs max_output_tokens", "parameter")
    temperature = spec.generation.get("temperature")
    if isinstance(temperature, int | float) and temperature > 1:
        yield Finding(("generation", "temperature"), "must be at most 1 on Bedrock", "range")


def _parameters(spec: Spec) -> Iterator[Finding]:
    dialect = "InvokeModel embeddings" if spec.provider == "bedrock" and spec.is_embedding else spec.endpoint
    for name in spec.generation:
        path = ("generation", name)
        near = difflib.get_close_matches(name.lower(), KNOWN, n=1, cutoff=0.8)
        if name in OWNED:
            yield Finding(path, f"does not belong here: {OWNED[name]}", "parameter")
        elif name in ENDPOINT_LACKS[dialect]:
            yield Finding(path, f"the endpoint {spec.endpoint} has no such parameter", "parameter")
        elif name not in KNOWN and near:
            yield Finding(path, f"unknown key '{name}'; did you mean '{near[0]}'?", "unknown_key")


def _provider_limits(spec: Spec) -> Iterator[Finding]:
    endpoints, most = ENDPOINTS.get(spec.provider, ()), MAX_BYTES.get(spec.provider, 0)
    if endpoints and spec.endpoint not in endpoints:
        reason = f"'{spec.endpoint}' is no endpoint of {spec.provider}; it has {', '.join(endpoints)}"
        yield Finding(("endpoint",), reason, "endpoint")
    if most and spec.shards.max_bytes > most:
        reason = f"must be at most {most // 1_000_000}MB, which is what {spec.provider} takes in one file"
        yield Finding(("shards", "max_bytes"), reason, "range")
    if spec.provider == "gemini" and spec.model_resolved.startswith("models/"):
        yield Finding(("model",), "write it without `models/`, as answers name it", "model_not_exact")


def _strata(spec: Spec) -> Iterator[Finding]:
    """A shard holds only the fields that may leave the account: those named, or else those that the template uses."""
    used = templates.variables(spec.prompt.user) if spec.prompt is not None else frozenset()
    fields = list(spec.input.fields) or sorted(used)
    for number, name in enumerate(spec.canary.strata if spec.canary else ()):
        path: Path = ("canary", "strata", number)
        if spec.is_native:
            yield Finding(path, "a native file's lines are whole requests and have no fields; remove it", "native")
        elif name not in fields:
            near = nearest(name, fields)
            yield Finding(path, f"{shown(name)} is not among input.fields{near}", "unknown_field")


def _embeddings(spec: Spec) -> Iterator[Finding]:
    if not spec.is_embedding:
        return
    if spec.prompt is not None and spec.prompt.system:
        yield Finding(("prompt", "system"), "an embedding has no system prompt; remove it", "embeddings")
    if spec.output.schema_ is not None:
        yield Finding(_SCHEMA_PATH, "an embedding is a vector and has no schema; remove it", "embeddings")


@functools.cache
def _meta_schema() -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for({"$ref": _DRAFT}, offline=True)


def _output_schema(spec: Spec) -> Iterator[Finding]:
    schema = spec.output.schema_
    if schema is None:
        return
    findings: list[Finding] = []
    dialect = schema.get("$schema", _DRAFT)
    if dialect == _DRAFT:
        findings = [
            Finding((*_SCHEMA_PATH, *error.instance_path), _schema_reason(error), "schema")
            for error in _meta_schema().iter_errors(schema)
        ]
    if not findings:
        try:
            jsonschema_rs.validator_for(schema, offline=True)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            where = getattr(error, "instance_path", [])
            told = getattr(error, "message", None) or str(error)
            findings.append(Finding((*_SCHEMA_PATH, *where), f"not JSON Schema: {told}", "schema"))
    if schema.get("type") != "object" and all(finding.path != (*_SCHEMA_PATH, "type") for finding in findings):
        reason = "must describe an object: give it `type: object` at the top and the answer's parts as `properties`"
        findings.append(Finding(_SCHEMA_PATH, reason, "schema"))
    yield from findings


def _schema_reason(error: jsonschema_rs.ValidationError) -> str:
    if error.schema_path[-2:] == ["type", "anyOf"] and isinstance(error.instance, str):
        return f"{shown(error.instance)} is none of {', '.join(_JSON_TYPES)}{nearest(error.instance, _JSON_TYPES)}"
    return f"not JSON Schema: {error.message}"


def _keeps_long_enough(spec: Spec) -> Iterator[Finding]:
    """What a running job still reads must not expire before its deadline."""
    deadline = spec.limits.deadline
    for name in ("working", "raw"):
        kept = getattr(spec.retention, name)
        if kept < deadline:
            reason = f"{format_duration(kept)} is shorter than limits.deadline, {format_duration(deadline)}"
            yield Finding(("retention", name), reason, "retention")


def _rescue(spec: Spec) -> Iterator[Finding]:
    rescue, deadline = spec.retry.deadline_rescue, spec.limits.deadline
    if rescue is not None and rescue >= deadline:
        reason = f"{format_duration(rescue)} is not shorter than limits.deadline, {format_duration(deadline)}"
        yield Finding(("retry", "deadline_rescue"), reason, "range")


def _retries(spec: Spec) -> Iterator[Finding]:
    """What a retry can change of a request."""
    retry, base = spec.retry, spec.generation.get("max_output_tokens")
    whole = spec.is_native or spec.is_embedding
    if retry.window is not None and retry.window_s is not None and len(set(retry.window_s)) == 1:
        yield Finding(("retry", "window"), "must open and close at different times", "range")
    if retry.feedback and not retry.retry_unqualified:
        reason = "is told with another try, and retry_unqualified is false; remove one of them"
        yield Finding(("retry", "feedback"), reason, "retry")
    if retry.feedback and whole:
        yield Finding(("retry", "feedback"), "there is no prompt of ours to put it after; remove it", "retry")
    if retry.raise_output_cap is None:
        return
    path: Path = ("retry", "raise_output_cap")
    if whole:
        yield Finding(path, "there is no generation.max_output_tokens to raise; remove it", "retry")
    elif base is None:
        yield Finding(path, "needs generation.max_output_tokens, which it raises", "retry")
    elif retry.raise_output_cap.max <= base:
        reason = f"must be more than generation.max_output_tokens, {base}"
        yield Finding((*path, "max"), reason, "range")


def _fallback(spec: Spec) -> Iterator[Finding]:
    """A record keeps its prompt, settings and schema wherever it goes, so each target must take them."""
    seen = {spec.place}
    own = {(finding.path, finding.code) for check in _OF_A_TARGET for finding in check(spec)}
    for number, target in enumerate(spec.fallback):
        path: Path = ("fallback", number)
        if spec.is_native:
            yield Finding(path, "a native file's lines are requests to one model; remove it", "native")
            continue
        if spec.is_embedding:
            yield Finding(path, "vectors of two models cannot be compared; remove it", "embeddings")
            continue
        there = spec.at(target)
        if there.place in seen:
            yield Finding(path, f"{' '.join(there.place)} is tried already; remove it", "fallback")
        seen.add(there.place)
        if there.is_embedding:
            yield Finding((*path, "model"), "an embedding model gives no answers", "embeddings")
            continue
        if target.model not in spec.aliases and _FLOATING.search(target.model):
            reason = f"'{target.model}' moves to another model without notice; name an exact version"
            yield Finding((*path, "model"), reason, "model_not_exact")
        for finding in (finding for check in _OF_A_TARGET for finding in check(there)):
            if finding.path == ("shards", "max_bytes") or (finding.path, finding.code) in own:
                continue
            key = ".".join(map(str, finding.path))
            yield Finding(path, f"{' '.join(there.place)}: {key}: {finding.reason}", finding.code)


_OF_A_TARGET = (_provider_limits, _bedrock, _parameters)

_NATIVE_READS: tuple[Path, ...] = (("input", "format"), ("prompt",), ("provider",), ("input", "key"))

CHECKS: tuple[Check, ...] = (
    Check((), _supported),
    Check((("model",), ("aliases",)), _exact_model),
    Check((("input", "key"), ("input", "source_version")), _pointers),
    Check(_NATIVE_READS, _native),
    Check((("input", "format"), ("prompt", "user"), ("prompt", "system")), _prompt),
    Check((("input", "fields"), ("prompt", "user")), _fields),
    Check((("input", "fields"),), _listed_once),
    Check((("canary",), ("input", "format"), ("input", "fields"), ("prompt", "user")), _strata),
    Check((("provider",), ("endpoint",), ("shards",), ("model",), ("aliases",)), _provider_limits),
    Check((("provider",), ("endpoint",), ("model",), ("aliases",), ("generation",)), _bedrock),
    Check((("endpoint",), ("model",), ("aliases",)), _parameters),
    Check((("endpoint",), ("model",), ("aliases",)), _embeddings),
    Check(
        (("fallback",), ("provider",), ("endpoint",), ("model",), ("aliases",), ("generation",), ("input", "format")),
        _fallback,
    ),
    Check((_SCHEMA_PATH,), _output_schema),
    Check((("retry",), ("generation",), ("input", "format"), ("endpoint",), ("model",), ("aliases",)), _retries),
    Check((("retention",), ("limits", "deadline")), _keeps_long_enough),
    Check((("retry", "deadline_rescue"), ("limits", "deadline")), _rescue),
)
