"""What tests of the Gemini half share: request lines and the way of one batch through the official SDK."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

from google import genai
from google.genai import types

from infra.local.simulator.client import SimulatorControl
from tests.support.simulated import GENRE_SCHEMA

MODEL = "gemini-2.5-flash"


def sdk(base_url: str, **options: Any) -> genai.Client:
    return genai.Client(
        api_key="test-key", vertexai=False, http_options=types.HttpOptions(base_url=base_url, **options)
    )


def request(text: str, *, schema: dict[str, Any] | None = GENRE_SCHEMA, **config: Any) -> dict[str, Any]:
    if schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
    return {"contents": [{"role": "user", "parts": [{"text": text}]}], "generationConfig": config}


def line(key: str, body: Any) -> bytes:
    return json.dumps({"key": key, "request": body}).encode()


def film_lines(count: int) -> list[bytes]:
    return [line(f"row-{number:04}", request(f"Title: Film {number}")) for number in range(count)]


def upload(client: genai.Client, lines: Iterable[bytes], *, mime_type: str = "jsonl") -> str:
    body = io.BytesIO(b"".join(text + b"\n" for text in lines))
    name = client.files.upload(file=body, config={"mime_type": mime_type, "display_name": "input"}).name
    assert name
    return name


def start(client: genai.Client, lines: Iterable[bytes], *, name: str = "job") -> str:
    """The name of a batch that was created from an uploaded file."""
    src = upload(client, lines)
    created = client.batches.create(model=MODEL, src=src, config={"display_name": name}).name
    assert created
    return created


def run(
    client: genai.Client, control: SimulatorControl, lines: Iterable[bytes]
) -> tuple[types.BatchJob, list[dict[str, Any]]]:
    """A batch from upload to its end, with the parsed lines of its results."""
    name = start(client, lines)
    control.advance(60)
    job = client.batches.get(name=name)
    return job, rows(client, job)


def raw(client: genai.Client, job: types.BatchJob) -> bytes:
    file = job.dest.file_name if job.dest is not None else None
    data: Any = client.files.download(file=file) if file else b""
    return bytes(data)


def rows(client: genai.Client, job: types.BatchJob) -> list[dict[str, Any]]:
    return [json.loads(text) for text in raw(client, job).split(b"\n") if text.strip()]


def answer_of(row: dict[str, Any]) -> Any:
    return json.loads(row["response"]["candidates"][0]["content"]["parts"][0]["text"])
