"""What ends a whole job: a file that cannot be read. Gemini names one reason, as a google.rpc.Status."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from infra.local.simulator.execution import canonical_bytes
from infra.local.simulator.gemini.model import RPC_NUMBERS
from infra.local.simulator.gemini.requests import input_tokens

_OF_OTHER_NAMES = {"token_limit_exceeded": "RESOURCE_EXHAUSTED", "billing_hard_limit_reached": "FAILED_PRECONDITION"}
"""Names of job faults that scenarios give for every provider; any other one is a wrong file."""


@dataclass(frozen=True, slots=True)
class JobFault:
    status: str
    message: str

    @classmethod
    def of_scenario(cls, name: str) -> JobFault:
        status = name if name in RPC_NUMBERS else _OF_OTHER_NAMES.get(name, "INVALID_ARGUMENT")
        return cls(status, f"The scenario lets this batch fail with {name}.")


@dataclass(slots=True)
class Validated:
    """`spans` are the byte ranges of the request lines."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    prompt_tokens: int = 0
    problem: JobFault | None = None


def validate(data: bytes, *, method: str, most: int) -> Validated:
    """Blank lines are passed over. Reading ends at the first line that is wrong."""
    found = Validated()
    start = number = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        line = data[start:end]
        if line.strip():
            reason = _wrong_with(line)
            if reason:
                found.problem = JobFault("INVALID_ARGUMENT", f"Line {number} of the input file: {reason}")
                return found
            found.prompt_tokens += input_tokens(method, orjson.loads(line)["request"])
            found.spans.append((start, end))
        start = end + 1
    if not found.spans:
        found.problem = JobFault("INVALID_ARGUMENT", "The input file holds no requests.")
    elif len(found.spans) > most:
        found.problem = JobFault("INVALID_ARGUMENT", "The input file holds too many requests.")
    return found


def _wrong_with(line: bytes) -> str:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error.msg}."
    if not isinstance(row, dict) or not isinstance(row.get("request"), dict):
        return "request is missing, or no object."
    if not isinstance(row.get("key"), str) or not row["key"]:
        return "key is missing, or no text."
    try:
        canonical_bytes({"response": {"echo": row["request"]}})
    except orjson.JSONEncodeError:
        return "nested too deeply."
    return ""
