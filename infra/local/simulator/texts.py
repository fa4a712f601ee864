"""An answer's text under a fault and a token cap, in no provider's dialect."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from infra.local.simulator.answers import Prompt, answer_text, tokens_of


@dataclass(frozen=True, slots=True)
class Text:
    """`finish`: stop, length or content_filter; with a `refusal` there is no content."""

    content: str
    finish: str = "stop"
    refusal: str = ""


def text_for(prompt: Prompt, fault: str, variant: int, limit: int | None) -> Text:
    """`limit` is in tokens."""
    if fault == "refusal":
        return Text("", refusal="I cannot help with this request.")
    if fault == "content_filter":
        return Text("", "content_filter")
    if fault == "bad_json":
        return Text("Sure! Here is the JSON: {'answer': " + answer_text(prompt, variant=variant))
    if fault == "bad_schema":
        return Text(orjson.dumps({"unexpected": answer_text(prompt, variant=variant)}).decode())
    text = answer_text(prompt, variant=variant)
    if fault == "fenced_json":
        text = f"```json\n{text}\n```"
    if fault == "u2028":
        text = _with_separators(text)
    cut = len(text) // 2 if fault == "length" else len(text)
    if limit is not None and tokens_of(text[:cut]) > limit:
        cut = len(text.encode()[: limit * 4].decode(errors="ignore"))
    return Text(text[:cut], "length") if cut < len(text) else Text(text)


def _with_separators(text: str) -> str:
    """Inside the first JSON string, or at the end of plain text: legal there, and poison to `str.splitlines`."""
    marks = "\u2028\u0085"
    at = text.find('": "') if '": "' in text else text.find('":"')
    if at < 0:
        return text + marks
    at = text.index('"', at + 2) + 1
    return text[:at] + marks + text[at:]
