"""Microseconds per record of the two OpenAI functions that sit in the record loop. Prints figures; asserts nothing.

uv run python -m tests.bench.bench_openai_lines
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from tallybatch.adapters.providers.openai import OpenAIFormat
from tallybatch.adapters.providers.openai.requests import CHAT, EMBEDDINGS, RESPONSES

ROUNDS = 7
CALLS = 20_000
RECORD_ID = "0123456789abcdef" * 2
SYSTEM = "You label films by genre, from the title and the synopsis alone. " * 4
USER = "Title: The Third Man\nDirector: Carol Reed\nSynopsis: " + "A writer comes to a divided city. " * 30
SCHEMA = {"type": "object", "required": ["genre"], "properties": {"genre": {"type": "string"}}}


def best_us(call: Callable[[], object]) -> float:
    """The fastest of several rounds, in microseconds per call."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter_ns() - start) / CALLS / 1000)
    return min(rounds)


def result_line(body: dict[str, object]) -> bytes:
    return msgspec.json.encode(
        {
            "id": "batch_req_01",
            "custom_id": RECORD_ID,
            "response": {"status_code": 200, "request_id": "req_9c", "body": body},
            "error": None,
        }
    )


def chat_body(text: str) -> dict[str, object]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1795900500,
        "model": "gpt-6-luna-2026-09-01",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 2,
            "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "system_fingerprint": "fp_a",
    }


def response_body(text: str) -> dict[str, object]:
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-6-luna-2026-09-01",
        "output": [
            {"id": "rs_1", "type": "reasoning", "summary": []},
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
            },
        ],
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 12},
            "total_tokens": 29,
        },
        "text": {"format": {"type": "text"}},
        "metadata": {},
    }


def embedding_body(dimensions: int) -> dict[str, object]:
    vector = [place / 7919 for place in range(dimensions)]
    return {
        "object": "list",
        "model": "text-embedding-3-small",
        "data": [{"object": "embedding", "index": 0, "embedding": vector}],
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }


def main() -> None:
    for endpoint in (RESPONSES, CHAT, EMBEDDINGS):
        schema, system = (None, "") if endpoint == EMBEDDINGS else (SCHEMA, SYSTEM)
        form = OpenAIFormat("gpt-6-luna-2026-09-01", endpoint, {}, schema)
        took = best_us(lambda form=form, system=system: form.request_line(RECORD_ID, system=system, user=USER))  # type: ignore[misc]
        size = len(form.request_line(RECORD_ID, system=system, user=USER))
        print(f"request_line {endpoint:22} {size:6} bytes  {took:6.2f} us")
    encoder = msgspec.json.Encoder()
    print(f"  of it, encoding the user text alone          {best_us(lambda: encoder.encode(USER)):6.2f} us")
    bodies = {
        "chat, short": chat_body("pong"),
        "chat": chat_body("word " * 180),
        "responses": response_body("word " * 140),
        "embedding of 256": embedding_body(256),
        "embedding of 1536": embedding_body(1536),
    }
    form = OpenAIFormat("gpt-6-luna-2026-09-01")
    for label, body in bodies.items():
        line = result_line(body)
        took = best_us(lambda line=line: form.parse(line))  # type: ignore[misc]
        print(f"parse {label:29} {len(line):6} bytes  {took:6.2f} us")


if __name__ == "__main__":
    main()
