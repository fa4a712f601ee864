"""A provider job made behind the ledger's back: by plain HTTP, with a marker as ours would have."""

from __future__ import annotations

from typing import Any

import urllib3

from tests.support.simulated import CHAT, MARKER, chat_lines


def create_behind_the_back(base_url: str, marker: str, *, records: int = 3) -> str:
    """The job's id. `base_url` ends in /v1; an empty `marker` leaves the job unmarked."""
    body = b"".join(line + b"\n" for line in chat_lines(records))
    uploaded = _post(f"{base_url}/files", fields={"purpose": "batch", "file": ("input.jsonl", body)})
    asked = {
        "input_file_id": uploaded["id"],
        "endpoint": CHAT,
        "completion_window": "24h",
        "metadata": {MARKER: marker} if marker else {},
    }
    return str(_post(f"{base_url}/batches", json=asked)["id"])


def _post(url: str, **content: Any) -> dict[str, Any]:
    with urllib3.PoolManager() as http:
        answer = http.request("POST", url, headers={"authorization": "Bearer sk-somebody"}, timeout=10, **content)
        assert answer.status == 200, answer.data
        document: dict[str, Any] = answer.json()
        return document
