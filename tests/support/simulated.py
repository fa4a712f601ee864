"""What tests of the simulator, and tests that run against it, share: request lines and the way of one batch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import openai
from openai.types import Batch

from infra.local.simulator.client import SimulatorControl

CHAT: Final = "/v1/chat/completions"
MARKER = "tallybatch_submission"
GENRE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["genre", "confidence"],
    "additionalProperties": False,
    "properties": {"genre": {"type": "string"}, "confidence": {"type": "number", "minimum": 0, "maximum": 1}},
}


def chat_body(text: str, *, schema: dict[str, Any] | None = GENRE_SCHEMA, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": text}], **more}
    if schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return body


def chat_line(custom_id: str, text: str, **more: Any) -> bytes:
    return line(custom_id, CHAT, chat_body(text, **more))


def line(custom_id: str, url: str, body: Any) -> bytes:
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).encode()


def chat_lines(count: int) -> list[bytes]:
    return [chat_line(f"row-{number:04}", f"Title: Film {number}") for number in range(count)]


def scenario(control: SimulatorControl, **keys: Any) -> None:
    """Replace the scenario by these keys."""
    control.set_scenario_text(json.dumps({"name": "test", **keys}))


def upload(client: openai.OpenAI, lines: Iterable[bytes]) -> str:
    data = b"".join(text + b"\n" for text in lines)
    return client.files.create(file=("input.jsonl", data), purpose="batch").id


def start(
    client: openai.OpenAI, lines: Iterable[bytes], *, endpoint: Any = CHAT, metadata: dict[str, str] | None = None
) -> Batch:
    file_id = upload(client, lines)
    return client.batches.create(
        input_file_id=file_id, endpoint=endpoint, completion_window="24h", metadata=metadata or {}
    )


def run(
    client: openai.OpenAI, control: SimulatorControl, lines: Iterable[bytes], *, endpoint: Any = CHAT
) -> tuple[Batch, list[Any], list[Any]]:
    """A batch from upload to its end, with the parsed lines of its output and of its error file."""
    batch = start(client, lines, endpoint=endpoint)
    control.advance(60)
    batch = client.batches.retrieve(batch.id)
    return batch, results(client, batch.output_file_id), results(client, batch.error_file_id)


def results(client: openai.OpenAI, file_id: str | None) -> list[Any]:
    return [json.loads(text) for text in raw(client, file_id).split(b"\n") if text.strip()]


def raw(client: openai.OpenAI, file_id: str | None) -> bytes:
    return client.files.content(file_id).content if file_id else b""


def answer_of(row: Any) -> Any:
    return json.loads(row["response"]["body"]["choices"][0]["message"]["content"])
