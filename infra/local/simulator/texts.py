"""What faults make of a good answer's text, for every provider."""

from __future__ import annotations

import orjson

from infra.local.simulator.answers import Prompt, answer_text


def bent_text(prompt: Prompt, fault: str, *, variant: int) -> str:
    """The answer of `bad_json` and `bad_schema`; "" for any other fault."""
    if fault == "bad_json":
        return "Sure! Here is the JSON: {'answer': " + answer_text(prompt, variant=variant)
    if fault == "bad_schema":
        return orjson.dumps({"unexpected": answer_text(prompt, variant=variant)}).decode()
    return ""


def with_separators(text: str) -> str:
    """Inside the first JSON string, or at the end of plain text: legal there, and poison to `str.splitlines`."""
    marks = "\u2028\u0085"
    at = text.find('": "') if '": "' in text else text.find('":"')
    if at < 0:
        return text + marks
    at = text.index('"', at + 2) + 1
    return text[:at] + marks + text[at:]
